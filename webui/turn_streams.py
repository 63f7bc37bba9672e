"""Turns of battles and chats over the controllers' HTTP API: begun once, and followed across broken connections.

A broken stream is resumed after its last event (Last-Event-ID), at any controller. A request without an answer is
unknown, not lost: it carries an Idempotency-Key and is sent again, so that it begins one turn.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, aclosing
from dataclasses import dataclass

import httpx
from pydantic import BaseModel

from webui.answers import BattleEvent, Interrupted, StreamEvent, Waiting
from webui.controller_http import ControllerHttp, raise_for_error, sse_events
from webui.controllers import ControllerUnreachable, is_elsewhere
from webui.visitors import Visitor
from webui.waiting_line import MAX_WAIT_S, WAITING_CODES, Place, WaitingLine
from wire.battles import DeltaEvent, FailedEvent, FinishedEvent, RestartedEvent, TurnFinishedEvent, WakingEvent
from wire.errors import ApiError, ErrorCode

_EVENTS: dict[str, type[BattleEvent]] = {
    "delta": DeltaEvent,
    "finished": FinishedEvent,
    "failed": FailedEvent,
    "restarted": RestartedEvent,
    "turn_finished": TurnFinishedEvent,
    "waking": WakingEvent,
}
#: Before each further connection of a stream that broke. Together they outlast the restart of a controller and of the
#: store, and the take-over of a turn by another controller.
_RESUME_DELAYS_S = (0.0, 0.3, 0.7, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 5.0, 5.0)


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


def _stream_of(path: str) -> _TurnRequest:
    """Reads the running turn and starts nothing, so it may be repeated."""
    return _TurnRequest("GET", f"{path}/stream")


@dataclass(slots=True)
class _Progress:
    """How far one turn has been read, across its connections."""

    last_id: str | None = None  #: id of the last event, for Last-Event-ID
    is_answered: bool = False  #: a connection was answered with success
    is_over: bool = False  #: turn_finished was read
    num_failures: int = 0  #: connections in a row that ended without an event


class TurnStreams:
    """Begins and follows turns. `path` is that of the conversation, `/arena/battles/ID` or `/arena/chats/ID`.

    A turn for which the models have no room waits in `line`."""

    def __init__(self, http: ControllerHttp, line: WaitingLine) -> None:
        self._http = http
        self._line = line

    async def begin(
        self,
        path: str,
        action: str,
        body: BaseModel,
        visitor: Visitor,
        has_begun: Callable[[], Awaitable[bool]] | None = None,
    ) -> AsyncGenerator[StreamEvent, None]:
        """Post `body` to the `action` of the conversation, until the turn has begun; yields its events. `has_begun`
        reads that from the conversation, where it can be told. Raises ControllerUnreachable only when the turn has not
        begun."""
        request = _TurnRequest("POST", f"{path}/{action}", body, secrets.token_urlsafe(16))
        for delay_s in _RESUME_DELAYS_S:
            await asyncio.sleep(delay_s)
            try:
                async with aclosing(self._when_there_is_room(path, visitor, request)) as events:
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
            try:  # whether the turn began is unknown
                if has_begun is not None and await has_begun():
                    break
            except (ApiError, ControllerUnreachable) as error:
                if not is_elsewhere(error):
                    raise
        else:
            raise ControllerUnreachable from unanswered
        async with aclosing(self.resume(path, visitor)) as rest:
            async for event in rest:
                yield event

    async def _when_there_is_room(
        self, path: str, visitor: Visitor, request: _TurnRequest
    ) -> AsyncGenerator[StreamEvent, None]:
        """The events of a request that is sent again while it is refused for lack of room, in the order in which the
        visitors have asked. A refused request may be sent again under its key."""
        give_up_at = time.monotonic() + MAX_WAIT_S
        with ExitStack() as in_line:
            place: Place | None = None
            while True:
                try:
                    async with aclosing(self._events(path, visitor, request)) as events:
                        async for event in events:
                            in_line.close()  # there is room: the next one may ask
                            yield event
                    return
                except ApiError as error:
                    if error.code not in WAITING_CODES or time.monotonic() > give_up_at:
                        raise
                    wait_s = error.retry_after_s or 1.0
                if place is None:
                    place = in_line.enter_context(self._line.place())
                async with aclosing(place.wait(wait_s, give_up_at)) as heard:
                    async for num_before in heard:
                        yield Waiting(num_before)

    async def begin_again(self, path: str, action: str, visitor: Visitor) -> AsyncGenerator[StreamEvent, None]:
        """Post once, without a body; yields the events of the turn that runs then."""
        request = _TurnRequest("POST", f"{path}/{action}", key=secrets.token_urlsafe(16))
        try:
            async with aclosing(self._events(path, visitor, request)) as events:
                async for event in events:
                    yield event
        except _RequestUnanswered:
            async with aclosing(self.resume(path, visitor)) as rest:
                async for event in rest:
                    yield event

    def resume(self, path: str, visitor: Visitor) -> AsyncGenerator[StreamEvent, None]:
        """Follow the running turn from its first event."""
        return self._events(path, visitor, _stream_of(path))

    async def _events(self, path: str, visitor: Visitor, request: _TurnRequest) -> AsyncGenerator[StreamEvent, None]:
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
                if num_connections >= len(self._http.controllers):
                    raise
                continue
            if progress.is_over:
                return
            progress.num_failures += 1
            request = _stream_of(path)
        raise StreamLost

    async def _connection(
        self, visitor: Visitor, request: _TurnRequest, progress: _Progress
    ) -> AsyncGenerator[BattleEvent, None]:
        """The events of one connection, until it ends or breaks; moves `progress` on."""
        headers = {} if progress.last_id is None else {"Last-Event-ID": progress.last_id}
        if request.key is not None:
            headers["Idempotency-Key"] = request.key
        content = None if request.body is None else request.body.model_dump_json()
        is_post = request.method == "POST"
        url = self._http.controllers.current
        try:
            async with self._http.stream(
                request.method, url + request.path, visitor, headers=headers, content=content
            ) as response:
                await raise_for_error(response)
                progress.is_answered = True
                async for event in _battle_events(response, progress):
                    yield event
            if not progress.is_over:
                self._http.controllers.leave(url)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            self._http.controllers.leave(url)
            if is_post:
                raise ControllerUnreachable from error
        except httpx.TransportError as error:
            self._http.controllers.leave(url)
            if is_post and not progress.is_answered:
                raise _RequestUnanswered from error
        except ApiError as error:
            if not is_elsewhere(error):
                raise
            self._http.controllers.leave(url)
            if is_post:
                raise _RequestUnanswered from error


async def _battle_events(response: httpx.Response, progress: _Progress) -> AsyncIterator[BattleEvent]:
    """Known events up to turn_finished, or to an `error`: it ends this connection, but the turn may go on."""
    async for event in sse_events(response):
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
