"""Keys that open routes, as `Authorization: Bearer ...` or `x-api-key: ...`: kept as digests and compared in constant
time."""

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

Holder = TypeVar("Holder", bound=str)


def credential(headers: Mapping[str, str]) -> str | None:
    """The credential of a request: its Authorization header; without one the key of its `x-api-key`, in which
    Anthropic's clients send it, as a bearer token."""
    given = headers.get("authorization")
    key = headers.get("x-api-key")
    return f"Bearer {key}" if given is None and key is not None else given


class KeyRing(Generic[Holder]):
    """The keys that a service knows, each with its kind of holder ("user", "worker", ...)."""

    def __init__(self, keys: Iterable[tuple[Holder, str]]) -> None:
        self._digests = [(holder, _digest(key)) for holder, key in keys]

    def holders(self, authorization: str | None) -> set[Holder]:
        """The kinds of holder whose key the header has; empty without a bearer token and for an unknown one.

        Compares with every key, so that the time taken reveals nothing.
        """
        scheme, _, key = (authorization or "").partition(" ")
        given = _digest(key.strip())
        found = {holder for holder, known in self._digests if hmac.compare_digest(given, known)}
        return found if scheme.lower() == "bearer" else set()


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
