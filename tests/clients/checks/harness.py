"""Checks of one client library: each is a function that raises where the client and the server do not fit."""

import os
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

Error = TypeVar("Error", bound=Exception)

URL = os.environ["AGON_URL"]  #: http://host:port of the server
V1 = f"{URL}/v1"
MODEL = os.environ["AGON_MODEL"]
KEY = os.environ.get("AGON_KEY") or "none"
HELLO = [{"role": "user", "content": "Hello!"}]
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "boolean"}},
    "required": ["a"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": SCHEMA}}

_CHECKS: list[tuple[str, Callable[[], object]]] = []


def check(name: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
    """Register a function as the check of this name. What it returns is printed as a remark."""

    def register(function: Callable[[], object]) -> Callable[[], object]:
        _CHECKS.append((name, function))
        return function

    return register


def refusal(kind: type[Error], call: Callable[[], object]) -> Error:
    """The error of this kind that the call raises; raises AssertionError if it raises none."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def run(client: str) -> None:
    """Run the checks in their order and print one line for each; exit with 1 if one has failed."""
    has_failed = False
    only = os.environ.get("AGON_ONLY", "")
    for name, function in _CHECKS:
        if only not in name:
            continue
        try:
            remark = function()
            print(f"ok    {client}: {name}" + (f" ({remark})" if remark else ""), flush=True)
        except Exception as error:
            has_failed = True
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:400]
            print(f"FAIL  {client}: {name}: {reason}", flush=True)
            if os.environ.get("AGON_TRACE"):
                traceback.print_exc()
    sys.exit(has_failed)


@contextmanager
def started(command: list[str], path: str, environment: Mapping[str, str], timeout_s: float = 300.0) -> Iterator[str]:
    """A client that is itself a server, run with `{port}` in its command replaced: its base URL once it answers at
    `path`. Raises RuntimeError with the end of its log if it does not come up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url, words = f"http://127.0.0.1:{port}", [word.replace("{port}", str(port)) for word in command]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **environment})
        try:
            give_up_at = time.monotonic() + timeout_s
            while not _answers(f"{url}{path}"):
                if process.poll() is not None or time.monotonic() > give_up_at:
                    log.seek(0)
                    raise RuntimeError(f"{words[0]} did not come up: {log.read().decode(errors='replace')[-2000:]}")
                time.sleep(0.5)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except (urllib.error.URLError, OSError):
        return False
    return True
