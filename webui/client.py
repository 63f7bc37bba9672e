"""The controller's HTTP API as async calls. It knows URLs, retries and the SSE codec; it knows no page and no Gradio.

Three rules. A stream that breaks is taken up again where it broke (Last-Event-ID). A vote that gets no answer is
unknown, not lost: the same request is sent again, and the controller answers a replay like the first. Every request
carries the visitor's address in X-Forwarded-For, because the controller limits and counts people, not this process.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any
from urllib.parse import urlencode

import httpx
from pydantic import BaseModel, TypeAdapter

from webui.session import BattleEvent
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
from wire.leaderboard import LeaderboardView
from wire.openai import ModelList
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
_RESUME_DELAYS_S = (0.0, 0.3, 1.0, 2.0, 4.0)
_VOTE_DELAYS_S = (0.0, 0.5, 1.0, 2.0, 4.0)
_TIMEOUT = httpx.Timeout(10.0)
#: A stream may be quiet while a request waits in a queue; the controller sends a comment every ten seconds.
_STREAM_TIMEOUT = httpx.Timeout(10.0, read=60.0)
#: Streams live long: with httpx's default of 100 connections the 101st visitor would wait for another to finish.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100)


class ControllerUnreachable(Exception):
    """No answer from the controller: it is down, or the network is."""


class StreamLost(Exception):
    """The stream broke and could not be taken up again; the turn may still be running."""


class _RequestUnanswered(Exception):
    """The request was sent and the connection broke before its answer."""


class ControllerClient:
    """Owns one connection pool; close it with `aclose`."""

    def __init__(self, url: str, *, api_key: str | None = None, transport: httpx.AsyncBaseTransport | None = None):
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._http = httpx.AsyncClient(
            base_url=url, headers=headers, timeout=_TIMEOUT, limits=_LIMITS, transport=transport
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def is_ready(self) -> bool:
        try:
            return (await self._http.get("/ready", timeout=3.0)).status_code == 200
        except httpx.TransportError:
            return False

    async def models(self, visitor: str) -> tuple[str, ...]:
        models = ModelList.model_validate(await self._json("GET", "/v1/models", visitor))
        return tuple(model.id for model in models.data)

    async def create_battle(self, request: CreateBattle, visitor: str) -> BattleView:
        return BattleView.model_validate(await self._json("POST", "/arena/battles", visitor, request))

    async def battle(self, battle_id: str, visitor: str) -> BattleView:
        return BattleView.model_validate(await self._json("GET", f"/arena/battles/{battle_id}", visitor))

    async def turn(self, battle_id: str, number: int, content: str, visitor: str) -> AsyncGenerator[BattleEvent, None]:
        """Take turn `number`. Raises ControllerUnreachable only when the turn has not begun."""
        path = f"/arena/battles/{battle_id}/turns"
        events = self._events(battle_id, visitor, method="POST", path=path, body=CreateTurn(content=content))
        try:
            async with aclosing(events):
                async for event in events:
                    yield event
            return
        except _RequestUnanswered as error:
            # Whether the turn began is unknown; the battle tells.
            if len((await self.battle(battle_id, visitor)).turns) < number:
                raise ControllerUnreachable from error
        async with aclosing(self.resume(battle_id, visitor)) as rest:
            async for event in rest:
                yield event

    async def regenerate(self, battle_id: str, visitor: str) -> AsyncGenerator[BattleEvent, None]:
        events = self._events(battle_id, visitor, method="POST", path=f"/arena/battles/{battle_id}/regenerate")
        try:
            async with aclosing(events):
                async for event in events:
                    yield event
        except _RequestUnanswered:
            async with aclosing(self.resume(battle_id, visitor)) as rest:
                async for event in rest:
                    yield event

    def resume(self, battle_id: str, visitor: str) -> AsyncGenerator[BattleEvent, None]:
        """Follow the running turn from its first event."""
        return self._events(battle_id, visitor, method="GET", path=f"/arena/battles/{battle_id}/stream")

    async def stop(self, battle_id: str, visitor: str) -> None:
        await self._request("POST", f"/arena/battles/{battle_id}/stop", visitor)

    async def vote(self, battle_id: str, outcome: Outcome, visitor: str) -> VoteReply:
        """Retried until an answer comes: the controller counts one vote however often it hears it."""
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
        query = urlencode({"board": board, "style_control": "true" if style_control else "false"})
        return LeaderboardView.model_validate(await self._json("GET", f"/arena/leaderboard?{query}", visitor))

    async def workers(self, visitor: str) -> tuple[WorkerView, ...]:
        return _WORKERS.validate_python(await self._json("GET", "/arena/workers", visitor), strict=False)

    async def pools(self, visitor: str) -> tuple[WorkerPool, ...]:
        return _POOLS.validate_python(await self._json("GET", "/arena/pools", visitor), strict=False)

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
        try:
            async with self._stream("POST", "/v1/chat/completions", visitor, json=body) as response:
                await _raise_for_error(response)
                async for event in _sse(response):
                    if event.data == "[DONE]":
                        return
                    piece = _completion_text(event.data)
                    if piece:
                        yield piece
        except httpx.TransportError as error:
            raise ControllerUnreachable from error
        raise StreamLost

    async def _events(
        self, battle_id: str, visitor: str, *, method: str, path: str, body: BaseModel | None = None
    ) -> AsyncGenerator[BattleEvent, None]:
        """One turn's events up to turn_finished, across broken connections.

        Only a POST starts something, so it is never repeated: once it has been answered, every further attempt is the
        harmless GET of the same stream. Raises _RequestUnanswered when it was sent and no answer came.
        """
        last_id: str | None = None
        is_answered = False
        attempt = 0
        while attempt < len(_RESUME_DELAYS_S):
            await asyncio.sleep(_RESUME_DELAYS_S[attempt])
            headers = {} if last_id is None else {"Last-Event-ID": last_id}
            content = None if body is None else body.model_dump_json()
            try:
                async with self._stream(method, path, visitor, headers=headers, content=content) as response:
                    await _raise_for_error(response)
                    is_answered = True
                    async for event in _sse(response):
                        attempt = 0
                        last_id = event.id or last_id
                        if event.event == "error":
                            break  # this connection cannot go on, the turn may
                        kind = _EVENTS.get(event.event)
                        if kind is None:
                            continue
                        parsed = kind.model_validate_json(event.data)
                        yield parsed
                        if isinstance(parsed, TurnFinishedEvent):
                            return
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                if method == "POST":
                    raise ControllerUnreachable from error
            except httpx.TransportError as error:
                if method == "POST" and not is_answered:
                    raise _RequestUnanswered from error
            attempt += 1
            method, path, body = "GET", f"/arena/battles/{battle_id}/stream", None
        raise StreamLost

    async def _json(self, method: str, path: str, visitor: str, body: BaseModel | None = None) -> Any:
        response = await self._request(method, path, visitor, body)
        try:
            return response.json()
        except json.JSONDecodeError as error:
            raise ApiError(ErrorCode.INTERNAL_ERROR, "The controller gave an answer that is not JSON.") from error

    async def _request(self, method: str, path: str, visitor: str, body: BaseModel | None = None) -> httpx.Response:
        try:
            response = await self._http.request(
                method,
                path,
                headers=_headers(visitor, has_body=body is not None),
                content=None if body is None else body.model_dump_json(exclude_none=True),
            )
        except httpx.TransportError as error:
            raise ControllerUnreachable from error
        await _raise_for_error(response)
        return response

    def _stream(
        self,
        method: str,
        path: str,
        visitor: str,
        *,
        headers: dict[str, str] | None = None,
        content: str | None = None,
        json: Any = None,
    ) -> AbstractAsyncContextManager[httpx.Response]:
        merged = _headers(visitor, has_body=content is not None) | {"Accept": "text/event-stream"} | (headers or {})
        return self._http.stream(method, path, headers=merged, content=content, json=json, timeout=_STREAM_TIMEOUT)


def _headers(visitor: str, *, has_body: bool) -> dict[str, str]:
    headers = {"X-Forwarded-For": visitor}
    return headers | {"Content-Type": "application/json"} if has_body else headers


async def _sse(response: httpx.Response) -> AsyncIterator[SseEvent]:
    decoder = SseDecoder()
    async for chunk in response.aiter_bytes():
        for event in decoder.feed(chunk):
            yield event


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
