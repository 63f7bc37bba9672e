"""How commands reach a running arena: its address and admin token, from flags, environment or data directory."""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import httpx

from cli.arena.data_dir import DataDir, default_data_dir, secret_from_environment
from cli.errors import CliError
from service_kit.trust import tls_problem, trust
from wire.errors import ApiError

DEFAULT_URL = "http://127.0.0.1:8100"
_TIMEOUT_S = 120.0


def controller_url(url: str | None, data_dir: Path | None = None) -> str:
    """The controller's URL: the flag, AGON_CONTROLLER_URL, the arena that runs on the data directory, or the
    default."""
    if url is None:
        running = DataDir(data_dir or default_data_dir()).running()
        first = os.environ.get("AGON_CONTROLLER_URL", "").partition(",")[0].strip()  # the web UI takes several
        url = first or (running.controller_url if running else DEFAULT_URL)
    return url.rstrip("/")


def admin_token(data_dir: Path | None) -> str:
    """AGON_ADMIN_TOKEN, or the token that `agon up` stored in the data directory; raises CliError without one."""
    token = secret_from_environment("AGON_ADMIN_TOKEN")
    if token:
        return token
    folder = DataDir(data_dir or default_data_dir())
    if not folder.has_secrets():
        raise CliError(
            f"the vote log needs the admin token: set AGON_ADMIN_TOKEN, or --data-dir (not in {folder.path})."
        )
    return folder.secrets().admin_token


def is_loopback(url: str) -> bool:
    """True if `url` is on this machine; then the proxies of the environment are not used."""
    return httpx.URL(url).host in ("127.0.0.1", "localhost", "::1")


def trusted() -> ssl.SSLContext | Literal[True]:
    """The authorities that commands trust: those of AGON_CA_FILE beside the public ones. Raises CliError."""
    ca_file = os.environ.get("AGON_CA_FILE")
    try:
        return trust(Path(ca_file) if ca_file else None)
    except ValueError as error:
        raise CliError(f"{error}.") from None


@contextmanager
def arena_client(url: str, token: str | None) -> Iterator[httpx.Client]:
    """A client for the controller; network failures inside the block become a CliError."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    options: dict[str, Any] = {"timeout": _TIMEOUT_S, "trust_env": not is_loopback(url), "verify": trusted()}
    with httpx.Client(base_url=url, headers=headers, **options) as client:
        try:
            yield client
        except httpx.HTTPError as error:
            if (problem := tls_problem(error)) is not None:
                raise CliError(f"the arena at {url} {problem}.") from None
            raise CliError(f"no arena answers at {url} ({error}). Is `agon up` running?") from None


def check(answer: httpx.Response) -> httpx.Response:
    """Return a successful answer; raises CliError with the controller's message for any other."""
    if answer.is_success:
        return answer
    answer.read()
    try:
        message = ApiError.from_body(answer.json()).message
    except ValueError:
        message = answer.reason_phrase
    raise CliError(f"HTTP {answer.status_code}: {message}")
