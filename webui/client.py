"""The controllers' HTTP API as async calls. It knows URLs, retries and event streams; it knows no page and no Gradio.

Two rules. A request that a controller does not answer goes to the next one (controller_http.py). A vote without an
answer is unknown, not lost: the same request is sent again, and a replay is answered like the first. Turns and their
streams are in turn_streams.py.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
from pydantic import BaseModel, TypeAdapter

from webui.answers import StreamEvent
from webui.controller_http import ControllerHttp
from webui.controllers import ControllerUnreachable
from webui.turn_streams import TurnStreams
from webui.visitors import Visitor
from webui.waiting_line import WaitingLine
from wire.battles import BattleView, CastVote, CreateBattle, CreateTurn, Outcome, VoteReply
from wire.captcha import CheckReply, CheckVisitor
from wire.chats import AnswerAgain, AskChat, ChatView, CreateChat
from wire.errors import ApiError
from wire.feedback import FeedbackReply, GiveFeedback
from wire.history import HistoryEntry, HistoryReply, SharedBattle, ShareReply
from wire.ids import BattleId, ChatId, ShareId
from wire.invitations import JoinReply
from wire.leaderboard import CohortView, FitModel, HistoryView, LeaderboardView, Weighting
from wire.model_cards import BoardCards
from wire.notices import AcceptTerms, NoticeList, TermsView
from wire.openai.models import ModelList
from wire.workers import WorkerPool, WorkerView

_WORKERS: TypeAdapter[tuple[WorkerView, ...]] = TypeAdapter(tuple[WorkerView, ...])
_POOLS: TypeAdapter[tuple[WorkerPool, ...]] = TypeAdapter(tuple[WorkerPool, ...])
_VOTE_DELAYS_S = (0.0, 0.5, 1.0, 2.0, 4.0)


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


class ControllerClient:
    """The calls of all pages. Owns one connection pool; close it with `aclose`.

    `visitor` is the visitor on whose behalf a request is made. Calls raise ApiError for error answers
    and ControllerUnreachable if no controller answers."""

    def __init__(
        self,
        *urls: str,
        api_key: str | None = None,
        proxy_token: str = "",
        ca_file: Path | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ):
        self._http = ControllerHttp(
            *urls, api_key=api_key, proxy_token=proxy_token, ca_file=ca_file, transport=transport
        )
        self.line = WaitingLine()  #: of all visitors who wait for room
        self._turns = TurnStreams(self._http, self.line)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def is_ready(self) -> bool:
        """True if a controller answers its readiness probe within 3 s."""
        return await self._http.is_ready()

    async def doubting_controllers(self, known: tuple[str, ...]) -> tuple[str, ...]:
        """URLs of the controllers that ignore the visitors' addresses; one that does not answer is among them if it is
        among `known`."""
        return await self._http.doubting_controllers(known)

    async def models(self, visitor: Visitor) -> tuple[str, ...]:
        """Names of the models that are served now and can chat."""
        models = ModelList.model_validate(await self._http.json("GET", "/v1/models", visitor))
        return tuple(model.id for model in models.data if model.chat != "none")

    async def create_battle(self, request: CreateBattle, visitor: Visitor) -> BattleView:
        """Open a battle."""
        return BattleView.model_validate(await self._http.json("POST", "/arena/battles", visitor, request))

    async def battle(self, battle_id: BattleId, visitor: Visitor) -> BattleView:
        """The battle as the visitor may see it now."""
        return BattleView.model_validate(await self._http.json("GET", f"/arena/battles/{battle_id}", visitor))

    def turn(
        self, battle_id: BattleId, number: int, content: str, visitor: Visitor
    ) -> AsyncGenerator[StreamEvent, None]:
        """Take turn `number`. Raises ControllerUnreachable only when the turn has not begun."""

        async def has_begun() -> bool:
            return len((await self.battle(battle_id, visitor)).turns) >= number

        path = f"/arena/battles/{battle_id}"
        return self._turns.begin(path, "turns", CreateTurn(content=content, number=number), visitor, has_begun)

    def regenerate(self, battle_id: BattleId, number: int, visitor: Visitor) -> AsyncGenerator[StreamEvent, None]:
        """Answer the last turn, which has this number, again; yields the events of the new answers."""
        return self._turns.begin_again(f"/arena/battles/{battle_id}", f"regenerate?number={number}", visitor)

    def resume(self, battle_id: BattleId, visitor: Visitor) -> AsyncGenerator[StreamEvent, None]:
        """Follow the running turn from its first event."""
        return self._turns.resume(f"/arena/battles/{battle_id}", visitor)

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

    async def create_chat(self, request: CreateChat, visitor: Visitor) -> ChatView:
        """Begin a chat."""
        return ChatView.model_validate(await self._http.json("POST", "/arena/chats", visitor, request))

    async def chat(self, chat_id: ChatId, visitor: Visitor) -> ChatView:
        """The visitor's chat as it is now."""
        return ChatView.model_validate(await self._http.json("GET", f"/arena/chats/{chat_id}", visitor))

    def ask(self, chat_id: ChatId, question: AskChat, visitor: Visitor) -> AsyncGenerator[StreamEvent, None]:
        """Take the next turn of a chat. Raises ControllerUnreachable only when it has not begun."""

        async def has_begun() -> bool:
            return len((await self.chat(chat_id, visitor)).turns) >= (question.number or 0)

        return self._turns.begin(f"/arena/chats/{chat_id}", "turns", question, visitor, has_begun)

    def answer_again(
        self, chat_id: ChatId, question: AnswerAgain, visitor: Visitor
    ) -> AsyncGenerator[StreamEvent, None]:
        """Answer the last turn of a chat again, perhaps with another message."""
        return self._turns.begin(f"/arena/chats/{chat_id}", "regenerate", question, visitor)

    def resume_chat(self, chat_id: ChatId, visitor: Visitor) -> AsyncGenerator[StreamEvent, None]:
        """Follow the running turn of a chat from its first event."""
        return self._turns.resume(f"/arena/chats/{chat_id}", visitor)

    async def stop_chat(self, chat_id: ChatId, visitor: Visitor) -> None:
        """End the running answer; the stream of the turn tells how it ended."""
        await self._http.request("POST", f"/arena/chats/{chat_id}/stop", visitor)

    async def delete_chat(self, chat_id: ChatId, visitor: Visitor) -> None:
        """Delete a chat with everything that was said in it."""
        await self._http.request("DELETE", f"/arena/chats/{chat_id}", visitor)
