"""What tests of both services need of docs/api.md and of the OpenAPI documents behind it."""

import functools
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

PAGE = Path(__file__).parents[1] / "docs/api.md"


def curl_lines(server: str) -> list[str]:
    """The page's curl lines for one service, in the order of the page."""
    return re.findall(rf"^curl .*{re.escape(server)}/.*$", PAGE.read_text(), re.MULTILINE)


@dataclass
class Request:
    """A curl line as httpx takes it."""

    method: str = ""
    path: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    content: str | None = None


def parse_curl(line: str, server: str, variables: Mapping[str, str]) -> Request:
    for name, value in variables.items():
        line = line.replace(f"${name}", value)
    request = Request()
    words = iter(shlex.split(line)[1:])
    for word in words:
        match word:
            case "-N":
                pass
            case "-X":
                request.method = next(words)
            case "-H":
                name, _, value = next(words).partition(": ")
                request.headers[name] = value
            case "-d" | "--data-binary":
                request.content = next(words)
            case url:
                request.path = url.removeprefix(server)
    request.method = request.method or ("GET" if request.content is None else "POST")
    return request


def only_declared_errors(app: FastAPI) -> Callable[[httpx.Response], Awaitable[None]]:
    """A response hook for httpx: fails the test where a route answers with a code that it does not declare."""

    @functools.cache
    def routes() -> list[tuple[re.Pattern[str], dict[str, Any]]]:
        found = []
        for path, operations in app.openapi()["paths"].items():
            pattern = re.escape(path).replace(r"\{model\}", ".+")  # its name may hold slashes
            found.append((re.compile(re.sub(r"\\{\w+\\}", "[^/]+", pattern)), operations))
        return found

    async def check(response: httpx.Response) -> None:
        if response.status_code < 400:
            return
        method, path = response.request.method.lower(), response.request.url.path
        found = [operations for pattern, operations in routes() if pattern.fullmatch(path) and method in operations]
        await response.aread()
        if not found or b'"error"' not in response.content:
            return  # no route, or an answer that is no error, such as that of a worker that is not ready
        code = response.json()["error"]["code"]
        declared = found[0][method]["responses"].get(str(response.status_code), {}).get("x-codes", ())
        assert code in declared, f"{method} {path} answers {response.status_code} {code}, which it does not declare"

    return check
