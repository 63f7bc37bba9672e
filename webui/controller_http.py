"""HTTP to the controllers: connections, the visitor's headers, typed errors, and the next one when one does not answer.

Every request carries the visitor's address in X-Forwarded-For, the visitor's cookie, and the proxy token for which
controllers believe the address, because they limit and count visitors, not this process. Knows no route but the probe.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any

import httpx
from pydantic import BaseModel

from service_kit.logs import log_event
from service_kit.request_ids import forwarded_id
from service_kit.trust import tls_problem, trust
from webui.controllers import Controllers, ControllerUnreachable, is_elsewhere
from webui.visitors import Visitor
from wire.errors import ApiError, ErrorCode
from wire.proxies import PROXY_TOKEN_HEADER
from wire.sse import SseDecoder, SseEvent

_logger = logging.getLogger(__name__)

_NOBODY = "192.0.2.1"  #: an address of documentation (RFC 5737)
_TIMEOUT = httpx.Timeout(10.0)
#: A stream may be silent while its request waits in a queue; the controller sends a keep-alive within twenty seconds.
_ADMIN_TIMEOUT = httpx.Timeout(10.0, read=100.0)  #: a model that wakes, or that finishes its answers first
_STREAM_TIMEOUT = httpx.Timeout(10.0, read=60.0)
#: Streams live long: with httpx's default of 100 connections the 101st visitor would wait for another to finish.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100)


class ControllerHttp:
    """Owns one connection pool; close it with `aclose`. `controllers` says which controller is asked next."""

    def __init__(
        self,
        *urls: str,
        api_key: str | None,
        proxy_token: str,
        ca_file: Path | None,
        transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        if proxy_token:
            headers[PROXY_TOKEN_HEADER] = proxy_token
        self.controllers = Controllers(urls)
        self._tls_logged: set[str] = set()
        no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))  # one visitor's would be sent for the next
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=_TIMEOUT,
            limits=_LIMITS,
            transport=transport,
            cookies=no_cookies,
            verify=trust(ca_file),
        )

    async def aclose(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    async def is_ready(self) -> bool:
        """True if a controller answers its readiness probe within 3 s."""
        for _ in range(len(self.controllers)):
            url = self.controllers.current
            try:
                if (await self._client.get(f"{url}/ready", timeout=3.0)).status_code == 200:
                    return True
            except httpx.TransportError as error:
                self._log_tls(url, error)
            self.controllers.leave(url)
        return False

    def _log_tls(self, url: str, error: httpx.TransportError) -> None:
        """Log, once for each controller, why TLS with it fails: that never passes by itself."""
        problem = tls_problem(error)
        if problem is not None and url not in self._tls_logged:
            self._tls_logged.add(url)
            log_event(_logger, "controller_not_trusted", logging.ERROR, controller=url, reason=f"it {problem}")

    async def doubting_controllers(self, known: tuple[str, ...]) -> tuple[str, ...]:
        """URLs of the controllers that ignore X-Forwarded-For of this web UI; one that does not answer within 3 s is
        among them if it is among `known`."""
        answers = await asyncio.gather(*(self._is_doubting(url) for url in self.controllers.urls))
        pairs = zip(self.controllers.urls, answers, strict=True)
        return tuple(url for url, doubts in pairs if (url in known if doubts is None else doubts))

    async def _is_doubting(self, url: str) -> bool | None:
        try:
            answer = await self._client.get(f"{url}/ready", headers={"X-Forwarded-For": _NOBODY}, timeout=3.0)
            return bool(answer.json().get("forwarded_address") == "ignored") if answer.is_success else None
        except (httpx.HTTPError, ValueError, AttributeError):
            return None

    async def json(self, method: str, path: str, visitor: Visitor, body: BaseModel | None = None) -> Any:
        """The JSON of one answer. Raises as `request` does."""
        response = await self.request(method, path, visitor, body)
        try:
            return response.json()
        except json.JSONDecodeError as error:
            raise ApiError(ErrorCode.INTERNAL_ERROR, "The controller gave an answer that is not JSON.") from error

    async def as_admin(
        self, method: str, path: str, visitor: Visitor, admin_token: str, body: BaseModel | None = None
    ) -> httpx.Response:
        """One answer to the token that this visitor has shown; without one it is as any other request."""
        headers = {"Authorization": f"Bearer {admin_token}"} if admin_token else {}
        return await self.request(method, path, visitor, body, headers, _ADMIN_TIMEOUT)

    async def request(
        self,
        method: str,
        path: str,
        visitor: Visitor,
        body: BaseModel | None = None,
        headers: dict[str, str] | None = None,
        limits: httpx.Timeout = _TIMEOUT,
    ) -> httpx.Response:
        """One answer, of the first controller that can serve the request. A request whose answer was lost is repeated
        too: votes and stops may be, and of two new battles one is never used. Raises ApiError and
        ControllerUnreachable."""
        failure: Exception = ControllerUnreachable()
        for _ in range(len(self.controllers)):
            url = self.controllers.current
            try:
                response = await self._client.request(
                    method,
                    url + path,
                    headers=_headers(visitor, has_body=body is not None) | (headers or {}),
                    content=None if body is None else body.model_dump_json(exclude_none=True),
                    timeout=limits,
                )
                await raise_for_error(response)
                return response
            except httpx.TransportError as error:
                self._log_tls(url, error)
                failure = ControllerUnreachable()
                failure.__cause__ = error
            except ApiError as error:
                if not is_elsewhere(error):
                    raise
                failure = error
            self.controllers.leave(url)
        raise failure

    def stream(
        self,
        method: str,
        url: str,
        visitor: Visitor,
        *,
        headers: dict[str, str] | None = None,
        content: str | None = None,
        json: Any = None,
    ) -> AbstractAsyncContextManager[httpx.Response]:
        """One streamed answer of the controller at `url`, as httpx gives it."""
        merged = _headers(visitor, has_body=content is not None) | {"Accept": "text/event-stream"} | (headers or {})
        return self._client.stream(method, url, headers=merged, content=content, json=json, timeout=_STREAM_TIMEOUT)


def _headers(visitor: Visitor, *, has_body: bool) -> dict[str, str]:
    headers = visitor.headers() | forwarded_id()
    return headers | {"Content-Type": "application/json"} if has_body else headers


async def sse_events(response: httpx.Response) -> AsyncIterator[SseEvent]:
    """The events of a streamed answer."""
    decoder = SseDecoder()
    async for chunk in response.aiter_bytes():
        for event in decoder.feed(chunk):
            yield event


async def raise_for_error(response: httpx.Response) -> None:
    """Raise the ApiError that an error answer stands for."""
    if response.is_success:
        return
    await response.aread()
    try:
        error = ApiError.from_body(response.json())
    except json.JSONDecodeError:
        error = ApiError(ErrorCode.INTERNAL_ERROR, f"The controller answered with status {response.status_code}.")
    wait = response.headers.get("Retry-After", "")
    if wait.isdigit():
        error.retry_after_s = float(wait)
    raise error
