"""Why the store does not serve, for the log: clients get one error for all reasons.

A reason is logged when it comes, again each half minute while it stays, and its end is logged once.
"""

import logging
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
)
from redis.exceptions import TimeoutError as StoreTimeout

from controller.store.sentinel import NoPrimary
from controller.store_address import StoreAddress
from service_kit.logs import log_event

REPEAT_S = 30.0

_logger = logging.getLogger(__name__)


class Troubles:
    """Owns what was logged last about one store."""

    def __init__(self, address: StoreAddress) -> None:
        self._store = address.shown
        self._reason: str | None = None
        self._logged_at = 0.0

    def note(self, error: Exception) -> None:
        """A command has failed."""
        self._log(reason_of(error))

    def note_unreplicated(self, num_reached: int, num_needed: int) -> None:
        """Too few replicas hold a write that must not be lost."""
        self._log("too_few_replicas", reached=num_reached, needed=num_needed)

    def note_success(self) -> None:
        """A command was answered. Called for every one."""
        if self._reason is not None and self._reason != "too_few_replicas":
            log_event(_logger, "store_back", store=self._store, after=self._reason)
            self._reason = None

    def note_replicated(self) -> None:
        """Enough replicas hold a write."""
        if self._reason == "too_few_replicas":
            log_event(_logger, "store_back", store=self._store, after=self._reason)
            self._reason = None

    def _log(self, reason: str, **fields: Any) -> None:
        now = time.monotonic()
        if reason != self._reason or now - self._logged_at > REPEAT_S:
            self._reason, self._logged_at = reason, now
            log_event(_logger, "store_unavailable", logging.WARNING, reason=reason, store=self._store, **fields)


def reason_of(error: BaseException) -> str:
    """One word for a failure: what an operator must look at."""
    links = list(_chain(error))  # redis-py wraps what the system and the server say
    found = (word for link in links for kinds, word in _WORDS if isinstance(link, kinds))
    if (word := next(found, None)) is not None:
        return word
    if isinstance(error, ResponseError):
        return str(error).split(" ", 1)[0].lower()
    return "connection_lost"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


#: Kinds of errors in a chain of causes, the telling ones first.
_WORDS: tuple[tuple[type[BaseException], str], ...] = (
    (NoPrimary, "no_primary"),
    (AuthenticationError, "wrong_password"),
    (ssl.SSLCertVerificationError, "certificate_not_trusted"),
    (ssl.SSLError, "no_tls"),
    (socket.gaierror, "unknown_host"),
    (ConnectionRefusedError, "refused"),
    (FileNotFoundError, "no_socket"),
    (StoreTimeout, "timeout"),
    (BusyLoadingError, "loading"),
    (ReadOnlyError, "read_only_replica"),
    (OutOfMemoryError, "out_of_memory"),
    (NoPermissionError, "not_permitted"),
)
