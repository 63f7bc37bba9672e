"""The controllers' HTTP API as async calls. It knows URLs, retries and the SSE codec; it knows no page and no Gradio.

Four rules. A request that a controller does not answer goes to the next one (controllers.py). A broken stream is
resumed after its last event (Last-Event-ID), at any controller. A vote without an answer is unknown, not lost: the same
request is sent again, and a replay is answered like the first; a turn carries an Idempotency-Key for the same reason.
Every request carries the visitor's address in X-Forwarded-For, and the proxy token for which controllers believe it,
because they limit and count visitors, not this process.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import httpx
from pydantic import BaseModel, TypeAdapter

from webui.controllers import Controllers, ControllerUnreachable, is_elsewhere
from webui.session import BattleEvent, Interrupted, StreamEvent
from wire.battles import (
    BattleView,
    CastVote,
    CreateBattle,
    CreateTurn,
    DeltaEvent,
    FailedEvent,
    FinishedEvent,
    Outcome,
    RestartedEvent,
    TurnFinishedEvent,
    VoteReply,
)
from wire.chat import ChatMessage, SamplingOptions
from wire.errors import ApiError, ErrorCode
from wire.ids import BattleId
from wire.leaderboard import LeaderboardView
from wire.openai import ModelList
from wire.proxies import PROXY_TOKEN_HEADER
from wire.sse import SseDecoder, SseEvent
from wire.workers import WorkerPool, WorkerView

_EVENTS: dict[str, type[BattleEvent]] = {
    "delta": DeltaEvent,
    "finished": FinishedEvent,
    "failed": FailedEvent,
    "restarted": RestartedEvent,
    "turn_finished": TurnFinishedEvent,
}
_WORKERS: TypeAdapter[tuple[WorkerView, ...]] = TypeAdapter(tuple[WorkerView, ...])
_POOLS: TypeAdapter[tuple[WorkerPool, ...]] = TypeAdapter(tuple[WorkerPool, ...])
#: Before each further connection of a stream that broke. Together they outlast the restart of a controller and of the
#: store, and the take-over of a turn by another controller.
_RESUME_DELAYS_S = (0.0, 0.3, 0.7, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 5.0, 5.0)
_VOTE_DELAYS_S = (0.0, 0.5, 1.0, 2.0, 4.0)
_TIMEOUT = httpx.Timeout(10.0)
#: A stream may be silent while its request waits in a queue; the controller sends a keep-alive within twenty seconds.
_STREAM_TIMEOUT = httpx.Timeout(10.0, read=60.0)
#: Streams live long: with httpx's default of 100 connections the 101st visitor would wait for another to finish.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100)


class StreamLost(Exception):
    """The stream broke and could not be resumed; the turn may still be running."""


class _RequestUnanswered(Exception):
    """The request was sent, and whether it took effect is unknown."""


@dataclass(frozen=True, slots=True)
class _TurnRequest:
    """A request that is answered with the events of a turn."""

    method: str
    path: str
    body: BaseModel | None = None
    key: str | None = None  #: sent as Idempotency-Key: a controller begins one turn for it, however often it is sent


def _stream_of(battle_id: BattleId) -> _TurnRequest:
    """Reads the running turn and starts nothing, so it may be repeated."""
    return _TurnRequest("GET", f"/arena/battles/{battle_id}/stream")


@dataclass(slots=True)
class _Progress:
    """How far one turn has been read, across its connections."""

    last_id: str | None = None  #: id of the last event, for Last-Event-ID
    is_answered: bool = False  #: a connection was answered with success
    is_over: bool = False  #: turn_finished was read
    num_failures: int = 0  #: connections in a row that ended without an event


class ControllerClient:
    """The calls of all pages. Owns one connection pool; close it with `aclose`.

    `visitor` is the address of the visitor on whose behalf a request is made. Calls raise ApiError for error answers
    and ControllerUnreachable if no controller answers."""

    def __init__(
        self,
        *urls: str,
        api_key: str | None = None,
        proxy_token: str = "",
        transport: httpx.AsyncBaseTransport | None = None,
    ):
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        if proxy_token:
            headers[PROXY_TOKEN_HEADER] = proxy_token
        self._controllers = Controllers(urls)
        self._http = httpx.AsyncClient(headers=headers, timeout=_TIMEOUT, limits=_LIMITS, transport=transport)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def is_ready(self) -> bool:
        """True if a controller answers its readiness probe within 3 s."""
        for _ in range(len(self._controllers)):
            url = self._controllers.current
            try:
                if (await self._http.get(f"{url}/ready", timeout=3.0)).status_code == 200:
                    return True
            except httpx.TransportError:
                pass
            self._controllers.leave(url)
        return False

    async def models(self, visitor: str) -> tuple[str, ...]:
        """Names of the models that are served now."""
        models = ModelList.model_validate(await self._json("GET", "/v1/models", visitor))
        return tuple(model.id for model in models.data)

    async def create_battle(self, request: CreateBattle, visitor: str) -> BattleView:
        """Open a battle."""
        return BattleView.model_validate(await self._json("POST", "/arena/battles", visitor, request))

    async def battle(self, battle_id: BattleId, visitor: str) -> BattleView:
        """The battle as the visitor may see it now."""
        return BattleView.model_validate(await self._json("GET", f"/arena/battles/{battle_id}", visitor))

    async def turn(
        self, battle_id: BattleId, number: int, content: str, visitor: str
    ) -> AsyncGenerator[StreamEvent, None]:
        """Take turn `number`. Raises ControllerUnreachable only when the turn has not begun."""
        path = f"/arena/battles/{battle_id}/turns"
        request = _TurnRequest("POST", path, CreateTurn(content=content), secrets.token_urlsafe(16))
        for delay_s in _RESUME_DELAYS_S:
            await asyncio.sleep(delay_s)
            try:
                async with aclosing(self._events(battle_id, visitor, request)) as events:
                    async for event in events:
                        yield event
                return
            except (_RequestUnanswered, ControllerUnreachable) as error:
                unanswered = error
            except ApiError as error:
                if delay_s == 0.0 or error.code is not ErrorCode.BATTLE_BUSY:
                    raise
                break  # an earlier attempt began it
            yield Interrupted()
            try:  # whether the turn began is unknown; the number of turns of the battle tells
                if len((await self.battle(battle_id, visitor)).turns) >= number:
                    break
            except (ApiError, ControllerUnreachable) as error:
                if not is_elsewhere(error):
                    raise
        else:
            raise ControllerUnreachable from unanswered
        async with aclosing(self.resume(battle_id, visitor)) as rest:
            async for event in rest:
                yield event

    async def regenerate(self, battle_id: BattleId, visitor: str) -> AsyncGenerator[StreamEvent, None]:
        """Answer the last turn again; yields the events of the new answers."""
        path = f"/arena/battles/{battle_id}/regenerate"
        request = _TurnRequest("POST", path, key=secrets.token_urlsafe(16))
        try:
            async with aclosing(self._events(battle_id, visitor, request)) as events:
                async for event in events:
                    yield event
        except _RequestUnanswered:
            async with aclosing(self.resume(battle_id, visitor)) as rest:
                async for event in rest:
                    yield event

    def resume(self, battle_id: BattleId, visitor: str) -> AsyncGenerator[StreamEvent, None]:
        """Follow the running turn from its first event."""
        return self._events(battle_id, visitor, _stream_of(battle_id))

    async def stop(self, battle_id: BattleId, visitor: str) -> None:
        """End both running answers; the stream of the turn tells how they ended."""
        await self._request("POST", f"/arena/battles/{battle_id}/stop", visitor)

    async def vote(self, battle_id: BattleId, outcome: Outcome, visitor: str) -> VoteReply:
        """Cast the vote. Sent up to five times until it is answered: the controller counts a repeated vote once."""
        vote = CastVote(outcome=outcome)
        failure: Exception = ControllerUnreachable()
        for delay_s in _VOTE_DELAYS_S:
            await asyncio.sleep(delay_s)
            try:
                return VoteReply.model_validate(
                    await self._json("POST", f"/arena/battles/{battle_id}/vote", visitor, vote)
                )
            except ControllerUnreachable as error:
                failure = error
            except ApiError as error:
                if error.status < 500 and error.status != 429:
                    raise
                failure = error
        raise failure

    async def leaderboard(
        self, visitor: str, *, board: str = "overall", style_control: bool = False
    ) -> LeaderboardView:
        """One board, by default that of all rated votes."""
        query = urlencode({"board": board, "style_control": "true" if style_control else "false"})
        return LeaderboardView.model_validate(await self._json("GET", f"/arena/leaderboard?{query}", visitor))

    async def workers(self, visitor: str, admin_token: str = "") -> tuple[WorkerView, ...]:
        """Every registered worker; with figures where the visitor has shown the admin token."""
        return _WORKERS.validate_python(await self._as_admin("/arena/workers", visitor, admin_token), strict=False)

    async def pools(self, visitor: str, admin_token: str) -> tuple[WorkerPool, ...]:
        """The page pools of all workers that have one."""
        return _POOLS.validate_python(await self._as_admin("/arena/pools", visitor, admin_token), strict=False)

    async def chat(
        self, model: str, messages: tuple[ChatMessage, ...], sampling: SamplingOptions, visitor: str
    ) -> AsyncGenerator[str, None]:
        """The pieces of one answer. Closing the iterator closes the connection, and with it the request."""
        body = {
            "model": model,
            "messages": [message.model_dump() for message in messages],
            "stream": True,
            **sampling.model_dump(exclude_none=True),
        }
        failure: Exception = ControllerUnreachable()
        for _ in range(len(self._controllers)):
            url = self._controllers.current
            is_begun = False
            try:
                async with self._stream("POST", f"{url}/v1/chat/completions", visitor, json=body) as response:
                    await _raise_for_error(response)
                    async for piece in _completion_pieces(response):
                        is_begun = True
                        yield piece
                return
            except httpx.TransportError as error:
                failure = ControllerUnreachable()
                failure.__cause__ = error
            except ApiError as error:
                failure = error
            if is_begun or not is_elsewhere(failure):
                raise failure
            self._controllers.leave(url)
        raise failure

    async def _events(
        self, battle_id: BattleId, visitor: str, request: "_TurnRequest"
    ) -> AsyncGenerator[StreamEvent, None]:
        """One turn's events up to turn_finished, across broken connections, with an Interrupted before each wait.
        Raises _RequestUnanswered, StreamLost, and ControllerUnreachable for a POST that no controller received.

        Only a POST starts a turn: after its answer every further attempt is a GET of the same stream.
        """
        progress = _Progress()
        num_connections = 0
        while progress.num_failures < len(_RESUME_DELAYS_S):
            if delay_s := _RESUME_DELAYS_S[progress.num_failures]:
                yield Interrupted()
                await asyncio.sleep(delay_s)
            num_connections += 1
            try:
                async with aclosing(self._connection(visitor, request, progress)) as events:
                    async for event in events:
                        yield event
            except ControllerUnreachable:  # the request was not received, so it may be sent to another controller
                if num_connections >= len(self._controllers):
                    raise
                continue
            if progress.is_over:
                return
            progress.num_failures += 1
            request = _stream_of(battle_id)
        raise StreamLost

    async def _connection(
        self, visitor: str, request: "_TurnRequest", progress: "_Progress"
    ) -> AsyncGenerator[BattleEvent, None]:
        """The events of one connection, until it ends or breaks; moves `progress` on."""
        headers = {} if progress.last_id is None else {"Last-Event-ID": progress.last_id}
        if request.key is not None:
            headers["Idempotency-Key"] = request.key
        content = None if request.body is None else request.body.model_dump_json()
        is_post = request.method == "POST"
        url = self._controllers.current
        try:
            async with self._stream(
                request.method, url + request.path, visitor, headers=headers, content=content
            ) as response:
                await _raise_for_error(response)
                progress.is_answered = True
                async for event in _battle_events(response, progress):
                    yield event
            if not progress.is_over:
                self._controllers.leave(url)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            self._controllers.leave(url)
            if is_post:
                raise ControllerUnreachable from error
        except httpx.TransportError as error:
            self._controllers.leave(url)
            if is_post and not progress.is_answered:
                raise _RequestUnanswered from error
        except ApiError as error:
            if not is_elsewhere(error):
                raise
            self._controllers.leave(url)
            if is_post:
                raise _RequestUnanswered from error

    async def _json(self, method: str, path: str, visitor: str, body: BaseModel | None = None) -> Any:
        response = await self._request(method, path, visitor, body)
        try:
            return response.json()
        except json.JSONDecodeError as error:
            raise ApiError(ErrorCode.INTERNAL_ERROR, "The controller gave an answer that is not JSON.") from error

    async def _as_admin(self, path: str, visitor: str, admin_token: str) -> Any:
        """A GET with the token that this visitor has shown; without one it is as any other request."""
        headers = {"Authorization": f"Bearer {admin_token}"} if admin_token else {}
        return (await self._request("GET", path, visitor, headers=headers)).json()

    async def _request(
        self,
        method: str,
        path: str,
        visitor: str,
        body: BaseModel | None = None,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        """One answer, of the first controller that can serve the request. A request whose answer was lost is repeated
        too: votes and stops may be, and of two new battles one is never used."""
        failure: Exception = ControllerUnreachable()
        for _ in range(len(self._controllers)):
            url = self._controllers.current
            try:
                response = await self._http.request(
                    method,
                    url + path,
                    headers=_headers(visitor, has_body=body is not None) | (headers or {}),
                    content=None if body is None else body.model_dump_json(exclude_none=True),
                )
                await _raise_for_error(response)
                return response
            except httpx.TransportError as error:
                failure = ControllerUnreachable()
                failure.__cause__ = error
            except ApiError as error:
                if not is_elsewhere(error):
                    raise
                failure = error
            self._controllers.leave(url)
        raise failure

    def _stream(
        self,
        method: str,
        url: str,
        visitor: str,
        *,
        headers: dict[str, str] | None = None,
        content: str | None = None,
        json: Any = None,
    ) -> AbstractAsyncContextManager[httpx.Response]:
        merged = _headers(visitor, has_body=content is not None) | {"Accept": "text/event-stream"} | (headers or {})
        return self._http.stream(method, url, headers=merged, content=content, json=json, timeout=_STREAM_TIMEOUT)


def _headers(visitor: str, *, has_body: bool) -> dict[str, str]:
    headers = {"X-Forwarded-For": visitor}
    return headers | {"Content-Type": "application/json"} if has_body else headers


async def _sse(response: httpx.Response) -> AsyncIterator[SseEvent]:
    decoder = SseDecoder()
    async for chunk in response.aiter_bytes():
        for event in decoder.feed(chunk):
            yield event


async def _battle_events(response: httpx.Response, progress: _Progress) -> AsyncIterator[BattleEvent]:
    """Known events up to turn_finished, or to an `error`: it ends this connection, but the turn may go on."""
    async for event in _sse(response):
        progress.num_failures = 0
        progress.last_id = event.id or progress.last_id
        if event.event == "error":
            return
        kind = _EVENTS.get(event.event)
        if kind is None:
            continue
        parsed = kind.model_validate_json(event.data)
        progress.is_over = isinstance(parsed, TurnFinishedEvent)
        yield parsed
        if progress.is_over:
            return


async def _completion_pieces(response: httpx.Response) -> AsyncIterator[str]:
    """The texts of an OpenAI stream up to its [DONE]; raises StreamLost if the stream ends before."""
    async for event in _sse(response):
        if event.data == "[DONE]":
            return
        if piece := _completion_text(event.data):
            yield piece
    raise StreamLost


async def _raise_for_error(response: httpx.Response) -> None:
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


def _completion_text(data: str) -> str:
    """The text of one chunk; an error sent inside the stream is raised."""
    try:
        chunk = json.loads(data)
    except json.JSONDecodeError as error:
        raise StreamLost from error
    if "error" in chunk:
        raise ApiError.from_body(chunk)
    choices: list[dict[str, Any]] = chunk.get("choices") or []
    return str(choices[0].get("delta", {}).get("content") or "") if choices else ""
