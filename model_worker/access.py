"""Who may call what. Every route belongs to exactly one of three routers: open, user (/v1) or worker (/internal).

Credentials travel as `Authorization: Bearer ...`. Keys are compared by digest, in constant time, all of
them every time.
"""

import hashlib
import hmac

from fastapi import Request

from model_worker.config import WorkerSettings
from wire.errors import ApiError, ErrorCode


class Credentials:
    """The secrets of one worker, as digests."""

    def __init__(
        self, *, api_keys: tuple[str, ...], worker_token: str | None, is_public: bool, is_on_loopback: bool
    ) -> None:
        self._worker = _digests((worker_token,) if worker_token else ())
        self._user = _digests(api_keys)
        if not api_keys and not is_public:
            self._user = self._worker
        self._is_public = is_public and not api_keys
        self._is_on_loopback = is_on_loopback

    @classmethod
    def from_settings(cls, settings: WorkerSettings) -> "Credentials":
        """Without API keys only a stand-alone server answers everybody; one behind a controller does not."""
        return cls(
            api_keys=settings.read_api_keys(),
            worker_token=settings.read_worker_token(),
            is_public=not settings.controller_urls,
            is_on_loopback=settings.is_on_loopback,
        )

    @property
    def is_public(self) -> bool:
        return self._is_public

    def check_user(self, request: Request) -> None:
        if not self._is_public:
            _check(request, self._user, "an API key")
        elif self._is_on_loopback and not _is_local_name(request.headers.get("host", "")):
            # A site whose name is made to point at this machine would otherwise read our answers (DNS rebinding).
            raise ApiError(ErrorCode.FORBIDDEN, "Without API keys this server answers to local names only.")

    def check_worker(self, request: Request) -> None:
        _check(request, self._worker, "the worker token")


def _digests(secrets: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(hashlib.sha256(secret.encode()).digest() for secret in secrets)


def _check(request: Request, accepted: tuple[bytes, ...], what: str) -> None:
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    given = hashlib.sha256(secret.strip().encode()).digest()
    matches = [hmac.compare_digest(given, digest) for digest in accepted]
    if scheme.lower() != "bearer" or not any(matches):
        raise ApiError(ErrorCode.UNAUTHORIZED, f"This needs {what} as a bearer token.")


def _is_local_name(host: str) -> bool:
    name = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
    return name.lower() in ("localhost", "127.0.0.1", "[::1]")


def require_user(request: Request) -> None:
    """Dependency of the /v1 router."""
    credentials: Credentials = request.app.state.credentials
    credentials.check_user(request)


def require_worker(request: Request) -> None:
    """Dependency of the /internal router."""
    credentials: Credentials = request.app.state.credentials
    credentials.check_worker(request)
