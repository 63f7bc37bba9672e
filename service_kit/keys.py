"""Keys that open routes, as `Authorization: Bearer ...` or `x-api-key: ...`: kept as digests and compared in constant
time. Wrong ones are logged and limited."""

import hashlib
import hmac
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from service_kit.buckets import BucketMemory
from service_kit.logs import log_event
from wire.errors import ApiError, ErrorCode

WRONG_AT_ONCE = 20  #: wrong keys of one address; more are answered 429
_WRONG_EVERY_US = 6_000_000
_LOG_EVERY_S = 60.0

_logger = logging.getLogger(__name__)
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


class WrongKeys:
    """Logs keys that are not known, in one line a minute, and limits them for each address."""

    def __init__(self, count: Callable[[str], None] = lambda access: None) -> None:
        """count: called with the access that was asked for, for each wrong key."""
        self._count = count
        self._buckets = BucketMemory()
        self._num_unlogged = 0
        self._log_at = 0.0  #: time.monotonic()

    def note(self, access: str, address: str) -> None:
        """Note a wrong key. Raises ApiError RATE_LIMITED for an address that has sent many. No log names addresses."""
        self._count(access)
        self._num_unlogged += 1
        now = time.monotonic()
        if now >= self._log_at:
            count = self._num_unlogged
            log_event(_logger, "wrong_credentials", logging.WARNING, access=access, count=count)
            self._num_unlogged, self._log_at = 0, now + _LOG_EVERY_S
        wait_us, _ = self._buckets.take(address, _WRONG_EVERY_US, WRONG_AT_ONCE)
        if wait_us:
            message = "Too many credentials that are not known. Wait a moment."
            raise ApiError(ErrorCode.RATE_LIMITED, message, retry_after_s=wait_us / 1e6)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
