"""Checks of one client library: each is a function that raises where the client and the server do not fit."""

import os
import sys
import traceback
from collections.abc import Callable
from typing import TypeVar

Error = TypeVar("Error", bound=Exception)

URL = os.environ["AGON_URL"]  #: http://host:port of the server
V1 = f"{URL}/v1"
MODEL = os.environ["AGON_MODEL"]
KEY = os.environ.get("AGON_KEY") or "none"

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
