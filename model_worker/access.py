"""Access rules: every route belongs to exactly one router: open, user (/v1), worker (/internal) or metrics."""

import hashlib
import hmac
import secrets
from typing import Literal

from fastapi import Request

from model_worker.config import WorkerSettings
from service_kit.keys import KeyRing, WrongKeys, credential
from wire.errors import ApiError, ErrorCode

Holder = Literal["user", "worker"]


class Credentials:
    """The keys of one worker, whether it answers requests without a key, and who shares cached prefixes."""

    def __init__(self, *, api_keys: tuple[str, ...], worker_token: str | None, is_public: bool) -> None:
        keys: list[tuple[Holder, str]] = [("user", key) for key in api_keys]
        if worker_token:
            keys.append(("worker", worker_token))
            if not api_keys and not is_public:
                keys.append(("user", worker_token))
        self._keys: KeyRing[Holder] = KeyRing(keys)
        self._is_public = is_public and not api_keys
        self._has_controllers = not is_public
        self._wrong = WrongKeys()
        self._salt_key = secrets.token_bytes(32)  # the cache lives no longer than this process

    @classmethod
    def from_settings(cls, settings: WorkerSettings) -> "Credentials":
        """Without API keys a stand-alone server answers every caller; one behind a controller asks for its token."""
        return cls(
            api_keys=settings.key_texts,
            worker_token=settings.token_text or None,
            is_public=not settings.controller_urls,
        )

    @property
    def is_public(self) -> bool:
        """Whether /v1 needs no key."""
        return self._is_public

    def check_user(self, request: Request) -> None:
        """Raises ApiError UNAUTHORIZED without a key that opens /v1."""
        if not self._is_public:
            self._check(request, "user", "an API key")

    def check_worker(self, request: Request) -> None:
        """Raises ApiError UNAUTHORIZED without the worker token."""
        self._check(request, "worker", "the worker token")

    def check_metrics(self, request: Request) -> None:
        """Raises ApiError UNAUTHORIZED without the worker token on a worker with controllers: its counters move with
        every answer, and so tell the models of a battle. A stand-alone server has no battles."""
        if self._has_controllers:
            self.check_worker(request)

    def cache_salt(self, request: Request) -> str:
        """The salt of the prefix cache for a request to /v1: `cached_tokens` counts only what was sent before with the
        same credential from the same address. The address is that of the peer: a proxy in front is one caller."""
        caller = f"{request.client.host if request.client else ''}\n{credential(request.headers) or ''}"
        return hmac.new(self._salt_key, caller.encode(), hashlib.sha256).hexdigest()[:32]

    def _check(self, request: Request, holder: Holder, what: str) -> None:
        given = credential(request.headers) if holder == "user" else request.headers.get("authorization")
        holders = self._keys.holders(given)
        if holder not in holders:
            if given is not None and not holders:
                self._wrong.note(holder, request.client.host if request.client else "")
            raise ApiError(ErrorCode.UNAUTHORIZED, f"This needs {what} as a bearer token.")


def require_user(request: Request) -> None:
    """Dependency of the /v1 router."""
    credentials: Credentials = request.app.state.credentials
    credentials.check_user(request)


def require_worker(request: Request) -> None:
    """Dependency of the /internal router."""
    credentials: Credentials = request.app.state.credentials
    credentials.check_worker(request)


def require_metrics(request: Request) -> None:
    """Dependency of the /metrics router."""
    credentials: Credentials = request.app.state.credentials
    credentials.check_metrics(request)
