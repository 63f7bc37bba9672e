"""The controllers' HTTP API as async calls. It knows URLs, retries and event streams; it knows no page and no Gradio.

Three rules. A request that a controller does not answer goes to the next one (controller_http.py). A broken stream is
resumed after its last event (Last-Event-ID), at any controller. A vote without an answer is unknown, not lost: the same
request is sent again, and a replay is answered like the first; a turn carries an Idempotency-Key for the same reason.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import httpx
from pydantic import BaseModel, TypeAdapter

from webui.battle.session import BattleEvent, Interrupted, StreamEvent
from webui.controller_http import ControllerHttp, raise_for_error, sse_events
from webui.controllers import ControllerUnreachable, is_elsewhere
from webui.visitors import Visitor
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
from wire.captcha import CheckReply, CheckVisitor
from wire.chat import ChatMessage, SamplingOptions
from wire.errors import ApiError, ErrorCode
from wire.feedback import FeedbackReply, GiveFeedback
from wire.history import HistoryEntry, HistoryReply, SharedBattle, ShareReply
from wire.ids import BattleId, ShareId
from wire.invitations import JoinReply
from wire.leaderboard import CohortView, FitModel, HistoryView, LeaderboardView, Weighting
from wire.model_cards import BoardCards
from wire.notices import AcceptTerms, NoticeList, TermsView
from wire.openai import ChatDelta, ModelList
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


class StreamLost(Exception):
    """The stream broke and could not be resumed; the turn may still be running."""


class _RequestUnanswered(Exception):
    """The request was sent, and whether it took effect is unknown."""


@dataclass(frozen=True, slots=True)
class BoardQuery:
    """Which votes a board counts, and how its ratings are computed."""

    board: str = "overall"
    style_control: bool = False
    fit: FitModel = "bradley_terry"
    weighting: Weighting = "votes"

    def encoded(self) -> str:
        """The parameters in a URL. Defaults of `fit` and `weighting` are left out: older controllers know neither."""
        style_control = "true" if self.style_control else "false"
        others = {"fit": self.fit, "weighting": self.weighting}
        given = {name: value for name, value in others.items() if value not in ("bradley_terry", "votes")}
        return urlencode({"board": self.board, "style_control": style_control, **given})


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

    `visitor` is the visitor on whose behalf a request is made. Calls raise ApiError for error answers
    and ControllerUnreachable if no controller answers."""

    def __init__(
        self,
        *urls: str,
        api_key: str | None = None,
        proxy_token: str = "",
        transport: httpx.AsyncBaseTransport | None = None,
    ):
        self._http = ControllerHttp(*urls, api_key=api_key, proxy_token=proxy_token, transport=transport)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def is_ready(self) -> bool:
        """True if a controller answers its readiness probe within 3 s."""
        return await self._http.is_ready()

    async def models(self, visitor: Visitor) -> tuple[str, ...]:
        """Names of the models that are served now."""
        models = ModelList.model_validate(await self._http.json("GET", "/v1/models", visitor))
        return tuple(model.id for model in models.data)

    async def create_battle(self, request: CreateBattle, visitor: Visitor) -> BattleView:
        """Open a battle."""
        return BattleView.model_validate(await self._http.json("POST", "/arena/battles", visitor, request))

    async def battle(self, battle_id: BattleId, visitor: Visitor) -> BattleView:
        """The battle as the visitor may see it now."""
        return BattleView.model_validate(await self._http.json("GET", f"/arena/battles/{battle_id}", visitor))

    async def turn(
        self, battle_id: BattleId, number: int, content: str, visitor: Visitor
    ) -> AsyncGenerator[StreamEvent, None]:
        """Take turn `number`. Raises ControllerUnreachable only when the turn has not begun."""
        path = f"/arena/battles/{battle_id}/turns"
        request = _TurnRequest("POST", path, CreateTurn(content=content, number=number), secrets.token_urlsafe(16))
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

    async def regenerate(self, battle_id: BattleId, number: int, visitor: Visitor) -> AsyncGenerator[StreamEvent, None]:
        """Answer the last turn, which has this number, again; yields the events of the new answers."""
        path = f"/arena/battles/{battle_id}/regenerate?number={number}"
        request = _TurnRequest("POST", path, key=secrets.token_urlsafe(16))
        try:
            async with aclosing(self._events(battle_id, visitor, request)) as events:
                async for event in events:
                    yield event
        except _RequestUnanswered:
            async with aclosing(self.resume(battle_id, visitor)) as rest:
                async for event in rest:
                    yield event

    def resume(self, battle_id: BattleId, visitor: Visitor) -> AsyncGenerator[StreamEvent, None]:
        """Follow the running turn from its first event."""
        return self._events(battle_id, visitor, _stream_of(battle_id))

    async def stop(self, battle_id: BattleId, visitor: Visitor) -> None:
        """End both running answers; the stream of the turn tells how they ended."""
        await self._http.request("POST", f"/arena/battles/{battle_id}/stop", visitor)

    async def vote(
        self,
        battle_id: BattleId,
        outcome: Outcome,
        visitor: Visitor,
        *,
        has_consent: bool = False,
        number: int | None = None,
    ) -> VoteReply:
        """Cast the vote on a battle whose last turn has this number. Sent up to five times until it is answered: the
        controller counts a repeated vote once."""
        vote = CastVote(outcome=outcome, number=number, consent=has_consent or None)
        failure: Exception = ControllerUnreachable()
        for delay_s in _VOTE_DELAYS_S:
            await asyncio.sleep(delay_s)
            try:
                return VoteReply.model_validate(
                    await self._http.json("POST", f"/arena/battles/{battle_id}/vote", visitor, vote)
                )
            except ControllerUnreachable as error:
                failure = error
            except ApiError as error:
                if error.status < 500 and error.status != 429:
                    raise
                failure = error
        raise failure

    async def feedback(self, battle_id: BattleId, visitor: Visitor) -> GiveFeedback:
        """What the visitor has said about the vote on their battle."""
        reply = await self._http.json("GET", f"/arena/battles/{battle_id}/feedback", visitor)
        return FeedbackReply.model_validate(reply).feedback

    async def give_feedback(self, battle_id: BattleId, feedback: GiveFeedback, visitor: Visitor) -> None:
        """Say this about the vote, in place of what was said before."""
        await self._http.request("POST", f"/arena/battles/{battle_id}/feedback", visitor, feedback)

    async def own_battles(self, visitor: Visitor) -> tuple[HistoryEntry, ...]:
        """The visitor's battles, newest first."""
        return HistoryReply.model_validate(await self._http.json("GET", "/arena/history", visitor)).battles

    async def forget(self, battle_id: BattleId, visitor: Visitor) -> None:
        """Take a battle off the visitor's history."""
        await self._http.request("DELETE", f"/arena/history/{battle_id}", visitor)

    async def share(self, battle_id: BattleId, visitor: Visitor) -> ShareId:
        """The link of a voted battle."""
        reply = await self._http.json("POST", f"/arena/battles/{battle_id}/share", visitor)
        return ShareReply.model_validate(reply).share_id

    async def unshare(self, battle_id: BattleId, visitor: Visitor) -> None:
        """Take the link of a battle back."""
        await self._http.request("DELETE", f"/arena/battles/{battle_id}/share", visitor)

    async def shared(self, share_id: ShareId, visitor: Visitor) -> SharedBattle:
        """What a link shows."""
        return SharedBattle.model_validate(await self._http.json("GET", f"/arena/shared/{share_id}", visitor))

    async def check_visitor(self, response: str, visitor: Visitor) -> CheckReply:
        """What became of a visitor's response to the captcha."""
        body = CheckVisitor(response=response)
        return CheckReply.model_validate(await self._http.json("POST", "/arena/voters/check", visitor, body))

    async def join(self, token: str, visitor: Visitor) -> JoinReply:
        """The invitation with this token, if it holds."""
        return JoinReply.model_validate(await self._http.json("POST", f"/arena/voters/join/{token}", visitor))

    async def notices(self, visitor: Visitor) -> NoticeList:
        """The notices that visitors see now."""
        return NoticeList.model_validate(await self._http.json("GET", "/arena/notices", visitor))

    async def terms(self, visitor: Visitor) -> TermsView:
        """The terms in force, and whether this visitor has accepted them."""
        return TermsView.model_validate(await self._http.json("GET", "/arena/terms", visitor))

    async def accept_terms(self, version: str, visitor: Visitor) -> None:
        """Accept this version of the terms."""
        await self._http.request("POST", "/arena/terms", visitor, AcceptTerms(version=version))

    async def leaderboard(self, visitor: Visitor, query: BoardQuery | None = None) -> LeaderboardView:
        """One board, by default that of all rated votes."""
        path = f"/arena/leaderboard?{(query or BoardQuery()).encoded()}"
        return LeaderboardView.model_validate(await self._http.json("GET", path, visitor))

    async def history(self, visitor: Visitor, board: str) -> HistoryView:
        """A board at the end of each day."""
        path = f"/arena/leaderboard/history?{urlencode({'board': board})}"
        return HistoryView.model_validate(await self._http.json("GET", path, visitor))

    async def cohorts(self, visitor: Visitor, first: str, second: str) -> CohortView:
        """The ratings of two boards, or groups of voters, beside each other."""
        path = f"/arena/leaderboard/cohorts?{urlencode({'first': first, 'second': second})}"
        return CohortView.model_validate(await self._http.json("GET", path, visitor))

    async def workers(self, visitor: Visitor, admin_token: str = "") -> tuple[WorkerView, ...]:
        """Every registered worker; with figures where the visitor has shown the admin token."""
        return _WORKERS.validate_python(
            await self.as_admin("GET", "/arena/workers", visitor, admin_token), strict=False
        )

    async def pools(self, visitor: Visitor, admin_token: str) -> tuple[WorkerPool, ...]:
        """The page pools of all workers that have one."""
        return _POOLS.validate_python(await self.as_admin("GET", "/arena/pools", visitor, admin_token), strict=False)

    async def as_admin(
        self, method: str, path: str, visitor: Visitor, admin_token: str, body: BaseModel | None = None
    ) -> Any:
        """The JSON of an answer to the administrator: by the token, or by a name that the controller knows."""
        return (await self._http.as_admin(method, path, visitor, admin_token, body)).json()

    async def admin_text(self, path: str, visitor: Visitor, admin_token: str) -> bytes:
        """The same for a GET whose answer is no JSON."""
        return (await self._http.as_admin("GET", path, visitor, admin_token)).content

    async def cards(self, visitor: Visitor) -> BoardCards:
        """The model cards."""
        return BoardCards.model_validate(await self._http.json("GET", "/arena/models", visitor))

    async def chat(
        self, model: str, messages: tuple[ChatMessage, ...], sampling: SamplingOptions, visitor: Visitor
    ) -> AsyncGenerator[ChatDelta, None]:
        """The pieces of one answer, thoughts first. Closing the iterator closes the connection and ends the request."""
        body = {
            "model": model,
            "messages": [message.model_dump() for message in messages],
            "stream": True,
            **sampling.model_dump(exclude_none=True),
        }
        failure: Exception = ControllerUnreachable()
        for _ in range(len(self._http.controllers)):
            url = self._http.controllers.current
            is_begun = False
            try:
                async with self._http.stream("POST", f"{url}/v1/chat/completions", visitor, json=body) as response:
                    await raise_for_error(response)
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
            self._http.controllers.leave(url)
        raise failure

    async def _events(
        self, battle_id: BattleId, visitor: Visitor, request: "_TurnRequest"
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
                if num_connections >= len(self._http.controllers):
                    raise
                continue
            if progress.is_over:
                return
            progress.num_failures += 1
            request = _stream_of(battle_id)
        raise StreamLost

    async def _connection(
        self, visitor: Visitor, request: "_TurnRequest", progress: "_Progress"
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


async def _completion_pieces(response: httpx.Response) -> AsyncIterator[ChatDelta]:
    """The deltas of an OpenAI stream up to its [DONE]; raises StreamLost if the stream ends before."""
    async for event in sse_events(response):
        if event.data == "[DONE]":
            return
        piece = _completion_delta(event.data)
        if piece.content or piece.reasoning_content:
            yield piece
    raise StreamLost


def _completion_delta(data: str) -> ChatDelta:
    """What one chunk adds; an error sent inside the stream is raised."""
    try:
        chunk = json.loads(data)
    except json.JSONDecodeError as error:
        raise StreamLost from error
    if "error" in chunk:
        raise ApiError.from_body(chunk)
    choices: list[dict[str, Any]] = chunk.get("choices") or [{}]
    return ChatDelta.model_validate(choices[0].get("delta", {}))
