"""A small controller for tests and for work on the pages: wire types over HTTP, no Redis, no models.

Words in a prompt choose the behaviour: "fail b" fails one side, "slow" streams slowly, "raw <...>" answers with that
text, "drop" breaks the first connection in the middle of the turn, "busy" refuses the first attempt.
"""

import asyncio
import itertools
import os
import re
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Literal

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel

from tests.webui import fake_views
from tests.webui.fake_admin import FakeAdmin, add_fake_admin, is_admin
from tests.webui.fake_answers import MODELS, answers, thoughts
from tests.webui.fake_chats import FakeChat, add_fake_chats
from wire.battles import (
    SIDES,
    Answer,
    BattleView,
    CastVote,
    CreateBattle,
    CreateTurn,
    DeltaEvent,
    FailedEvent,
    FinishedEvent,
    Outcome,
    Side,
    SideView,
    Turn,
    TurnFinishedEvent,
    VoteReply,
)
from wire.chat import FinishReason
from wire.chats import AnswerAgain, AskChat
from wire.errors import ApiError, ErrorCode
from wire.feedback import MAX_ADDITIONS, FeedbackReply, GiveFeedback
from wire.history import HistoryEntry, HistoryReply, SharedBattle, ShareReply
from wire.ids import BattleId, ShareId
from wire.invitations import JoinReply
from wire.leaderboard import CohortView, HistoryView, LeaderboardView
from wire.model_cards import BoardCard, BoardCards
from wire.openai.models import ModelList, ModelObject
from wire.sse import SseEvent, encode
from wire.voters import NEW_COOKIE_HEADER
from wire.workers import WorkerPool, WorkerView


@dataclass
class FakeBattle:
    id: str
    mode: Literal["anonymous", "named"]
    models: tuple[str, str]
    state: Any = "open"
    turns: list[Turn] = field(default_factory=list)
    events: list[SseEvent] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    outcome: Outcome | None = None
    share_id: ShareId | None = None
    is_forgotten: bool = False
    feedback: GiveFeedback = field(default_factory=GiveFeedback)
    flags: tuple[str, ...] = ()
    error: ApiError | None = None
    stopping: bool = False
    task: asyncio.Task[None] | None = None

    def view(self) -> BattleView:
        known = self.mode == "named" or self.state == "voted"
        return BattleView(
            id=BattleId(self.id),
            mode=self.mode,
            state=self.state,
            a=SideView(model=self.models[0] if known else None),
            b=SideView(model=self.models[1] if known else None),
            turns=tuple(turn if known else _without_thoughts(turn) for turn in self.turns),
            outcome=self.outcome,
            flags=self.flags,
            error=None if self.error is None else self.error.body().error,
            max_turns=8,
        )

    def entry(self) -> HistoryEntry:
        view = self.view()
        return HistoryEntry(
            id=view.id,
            began_s=1_795_435_200,
            mode=view.mode,
            state=view.state,
            question=self.turns[0].content,
            num_turns=len(self.turns),
            outcome=self.outcome,
            models=dict(zip(SIDES, self.models, strict=True)) if view.a.model else None,
            share_id=self.share_id,
        )


def _without_thoughts(turn: Turn) -> Turn:
    return turn.model_copy(update={side: getattr(turn, side).model_copy(update={"thoughts": ""}) for side in SIDES})


class FakeArena:
    """The state of the fake controller, with attributes that a test may change."""

    def __init__(self, *, models: tuple[str, ...] = MODELS, delta_s: float = 0.01) -> None:
        self.models = models
        self.delta_s = delta_s
        self.battles: dict[str, FakeBattle] = {}
        self.votes: list[tuple[str, str, Outcome]] = []
        self.holds_answers = False  #: models that think go on thinking
        self.fails = True  #: whether prompts with "fail a" or "fail b" in them fail that side
        self.vote_delays_s: list[float] = []  #: delays of the answers to the next votes, which are recorded at once
        self.refuse_creation = 0
        self.refuse_turns = 0  #: how many of the next turns are refused for lack of room
        self.feedback_failures: list[ErrorCode] = []  #: of the next additions to votes
        self.additions: list[tuple[str, GiveFeedback]] = []  #: all that were taken, with their battles
        self.refusal = ErrorCode.QUEUE_FULL
        self.requests: list[tuple[str, str, str]] = []  #: method, path, X-Forwarded-For
        self.revoked: set[str] = set()  #: tokens of invitations
        self.voters: list[tuple[str | None, str | None]] = []  #: of the same requests: cookie, new cookie
        self.ids = itertools.count(1)
        self.chats: dict[str, FakeChat] = {}
        self.chat_delays_s: list[float] = []  #: of the answers to the next requests for a chat
        self.asked: list[AskChat | AnswerAgain] = []  #: in chats
        self.has_full_board = False  #: the boards have all that a view can hold; those of an old controller have not
        self.board_queries: list[str] = []
        self.holds_boards_after: int | None = None  #: once there are more votes, boards wait
        self.num_more_votes = 0  #: on those boards
        self.vote_flags: tuple[str, ...] = ()  #: why the next votes are not rated
        self.admin = FakeAdmin()
        self.cards: list[BoardCard] = []
        self.consents: list[bool | None] = []  #: those of all votes

    @property
    def num_streaming(self) -> int:
        return sum(battle.state == "streaming" for battle in self.battles.values())

    def require_room(self) -> None:
        if self.refuse_turns:
            self.refuse_turns -= 1
            raise ApiError(ErrorCode.QUEUE_FULL, "The models are busy.", retry_after_s=1)

    def find(self, battle_id: str) -> FakeBattle:
        if battle_id not in self.battles:
            raise ApiError(ErrorCode.BATTLE_NOT_FOUND, "There is no such battle.")
        return self.battles[battle_id]

    def run_turn(self, battle: FakeBattle, content: str) -> None:
        battle.state, battle.stopping, battle.events = "streaming", False, []
        number = len(battle.turns) + 1
        battle.turns.append(Turn(number=number, content=content, a=Answer(text=""), b=Answer(text="")))
        battle.task = asyncio.create_task(self._stream(battle, content))

    async def _stream(self, battle: FakeBattle, content: str) -> None:
        slowness = 8 if "slow" in content else 1
        texts = answers(content)
        await asyncio.sleep(2 * slowness * self.delta_s)
        await asyncio.gather(
            *(
                self._answer(battle, side, text, content, slowness * (1 + 0.7 * SIDES.index(side)))
                for side, text in zip(SIDES, texts, strict=True)
            )
        )
        battle.state = "answered"
        self._emit(battle, "turn_finished", TurnFinishedEvent(turn=len(battle.turns), state=battle.state))

    async def _answer(self, battle: FakeBattle, side: Side, text: str, content: str, slowness: float) -> None:
        """slowness: how many delta_s a piece takes; tests change delta_s in the middle."""
        done, finish_reason, thought = "", "stop", ""
        num_thoughts = 0
        for piece in re.findall(r"(?s).{1,6}", thoughts(content) if side == "a" else ""):
            thought += piece
            if battle.mode == "named":
                self._record(battle, side, Answer(text="", thoughts=thought))
                event = DeltaEvent(side=side, seq=num_thoughts, text="", thoughts=piece)
                self._emit(battle, "delta", event)
                num_thoughts += 1
            await asyncio.sleep(slowness * self.delta_s)
        while thought and self.holds_answers:
            await asyncio.sleep(0.01)
        for seq, start in enumerate(range(0, len(text), 6), start=num_thoughts):
            if battle.stopping:
                finish_reason = "abort"
                break
            if f"fail {side}" in content and seq == 3 and self.fails:
                error = ApiError(ErrorCode.WORKER_FAILED, f"The worker of {battle.models[0]} failed.").body().error
                self._record(battle, side, Answer(text=done, error=error))
                self._emit(battle, "failed", FailedEvent(side=side, error=error))
                return
            piece = text[start : start + 6]
            done += piece
            self._record(battle, side, Answer(text=done, thoughts=thought))
            self._emit(battle, "delta", DeltaEvent(side=side, seq=seq, text=piece))
            await asyncio.sleep(slowness * self.delta_s)
        reason: FinishReason = "abort" if finish_reason == "abort" else "stop"
        self._record(battle, side, Answer(text=done, thoughts=thought, finish_reason=reason))
        self._emit(battle, "finished", FinishedEvent(side=side, finish_reason=reason))

    def _record(self, battle: FakeBattle, side: Side, answer: Answer) -> None:
        battle.turns[-1] = battle.turns[-1].model_copy(update={side: answer})

    def _emit(self, battle: FakeBattle, event: str, body: BaseModel) -> None:
        battle.events.append(SseEvent(body.model_dump_json(), event, str(len(battle.events) + 1)))
        battle.changed.set()
        battle.changed = asyncio.Event()

    async def follow(
        self, battle: FakeBattle | FakeChat, after: int, *, break_after: int | None = None
    ) -> AsyncIterator[bytes]:
        position = after
        while True:
            changed = battle.changed
            while position < len(battle.events):
                event = battle.events[position]
                position += 1
                yield encode(event)
                if event.event == "turn_finished":
                    return
                if break_after is not None and position >= break_after:
                    return
            await changed.wait()


def create_fake(arena: FakeArena) -> FastAPI:
    """The fake controller as an ASGI app, with the routes that the web UI calls."""
    app = FastAPI()

    @app.middleware("http")
    async def note(request: Request, call_next: Any) -> Response:
        arena.requests.append((request.method, request.url.path, request.headers.get("x-forwarded-for", "")))
        arena.voters.append((request.headers.get("cookie"), request.headers.get(NEW_COOKIE_HEADER)))
        response: Response = await call_next(request)
        return response

    @app.exception_handler(ApiError)
    async def on_error(request: Request, error: ApiError) -> JSONResponse:
        return JSONResponse(error.body().model_dump(), error.status, error.headers)

    @app.get("/ready")
    async def ready() -> dict[str, str]:
        return {"status": "ready"}

    @app.get("/v1/models")
    async def models() -> ModelList:
        rows = [ModelObject(id=model, created=0) for model in arena.models]
        return ModelList(data=[*rows, ModelObject(id="base", created=0, chat="none")])

    @app.post("/arena/voters/join/{token}")
    async def join(token: str) -> JoinReply:
        if token in arena.revoked:
            raise ApiError(ErrorCode.INVITATION_NOT_FOUND, "It was revoked.")
        return JoinReply(name="ada")

    _add_battle_routes(app, arena)
    _add_turn_routes(app, arena)
    _add_board_routes(app, arena)
    add_fake_chats(app, arena)
    add_fake_admin(app, arena.admin, arena.models)
    return app


def _add_battle_routes(app: FastAPI, arena: FakeArena) -> None:
    @app.post("/arena/battles", status_code=201)
    async def create(body: CreateBattle, request: Request) -> BattleView:
        if arena.refuse_creation:
            arena.refuse_creation -= 1
            raise ApiError(arena.refusal, "Not now.", retry_after_s=1)
        arena.admin.require_terms(request)
        number = next(arena.ids)
        pair = body.models or (arena.models[number % len(arena.models)], arena.models[(number + 1) % len(arena.models)])
        battle = FakeBattle(f"battle-{number}", body.mode, pair)
        arena.battles[battle.id] = battle
        return battle.view()

    @app.get("/arena/battles/{battle_id}")
    async def show(battle_id: str) -> BattleView:
        return arena.find(battle_id).view()

    @app.get("/arena/history")
    async def history() -> HistoryReply:
        own = [battle for battle in reversed(arena.battles.values()) if battle.turns and not battle.is_forgotten]
        return HistoryReply(battles=tuple(battle.entry() for battle in own))

    @app.delete("/arena/history/{battle_id}", status_code=204)
    async def forget(battle_id: str) -> None:
        arena.find(battle_id).is_forgotten = True

    @app.post("/arena/battles/{battle_id}/share")
    async def share(battle_id: str) -> ShareReply:
        battle = arena.find(battle_id)
        battle.share_id = ShareId(f"link-{battle_id.removeprefix('battle-')}")
        return ShareReply(share_id=battle.share_id)

    @app.delete("/arena/battles/{battle_id}/share", status_code=204)
    async def unshare(battle_id: str) -> None:
        arena.find(battle_id).share_id = None

    @app.get("/arena/shared/{share_id}")
    async def shared(share_id: str) -> SharedBattle:
        for battle in arena.battles.values():
            if battle.share_id == share_id and battle.outcome is not None:
                models = dict(zip(SIDES, battle.models, strict=True))
                turns = battle.view().turns
                return SharedBattle(
                    mode=battle.mode, outcome=battle.outcome, models=models, turns=turns, day="2026-11-23"
                )
        raise ApiError(ErrorCode.BATTLE_NOT_FOUND, "There is no such battle.")

    @app.post("/arena/battles/{battle_id}/vote")
    async def vote(battle_id: str, body: CastVote) -> VoteReply:
        battle = arena.find(battle_id)
        if battle.outcome not in (None, body.outcome):
            raise ApiError(ErrorCode.BATTLE_ALREADY_VOTED, "Another outcome is recorded.")
        if battle.outcome is None and body.number not in (None, len(battle.turns)):
            raise ApiError(ErrorCode.STALE_TURN, "Stale.")
        is_answered = any(turn.a.error is None and turn.b.error is None for turn in battle.turns)
        if battle.state not in ("answered", "voted") or not is_answered:
            raise ApiError(ErrorCode.BATTLE_NOT_FINISHED, "Not finished.")
        if battle.outcome is None:
            battle.outcome, battle.state = body.outcome, "voted"
            battle.flags = arena.vote_flags or (("named",) if battle.mode == "named" else ())
            arena.votes.append((*battle.models, body.outcome))
            arena.consents.append(body.consent)
        if arena.vote_delays_s:
            await asyncio.sleep(arena.vote_delays_s.pop(0))
        return VoteReply(
            vote_id=f"vote-{battle_id}",
            battle_id=BattleId(battle_id),
            outcome=body.outcome,
            models={"a": battle.models[0], "b": battle.models[1]},
            rated=not battle.flags,
            flags=battle.flags,
        )

    @app.post("/arena/battles/{battle_id}/feedback")
    async def add(battle_id: str, body: GiveFeedback) -> FeedbackReply:
        if arena.feedback_failures:
            raise ApiError(arena.feedback_failures.pop(0), "Not now.")
        battle = arena.find(battle_id)
        battle.feedback = body
        arena.additions.append((battle_id, body))
        return FeedbackReply(feedback=body, num_left=MAX_ADDITIONS)

    @app.get("/arena/battles/{battle_id}/feedback")
    async def said(battle_id: str) -> FeedbackReply:
        return FeedbackReply(feedback=arena.find(battle_id).feedback, num_left=MAX_ADDITIONS)


def _add_turn_routes(app: FastAPI, arena: FakeArena) -> None:
    @app.post("/arena/battles/{battle_id}/turns")
    async def turn(battle_id: str, body: CreateTurn) -> StreamingResponse:
        battle = arena.find(battle_id)
        arena.require_room()
        if battle.state == "streaming":
            raise ApiError(ErrorCode.BATTLE_BUSY, "Busy.")
        if body.number not in (None, len(battle.turns) + 1):
            raise ApiError(ErrorCode.STALE_TURN, "Stale.")
        arena.run_turn(battle, body.content)
        drop = 7 if "drop" in body.content else None
        return StreamingResponse(arena.follow(battle, 0, break_after=drop), media_type="text/event-stream")

    @app.get("/arena/battles/{battle_id}/stream")
    async def stream(battle_id: str, request: Request) -> StreamingResponse:
        after = int(request.headers.get("last-event-id", "0"))
        return StreamingResponse(arena.follow(arena.find(battle_id), after), media_type="text/event-stream")

    @app.post("/arena/battles/{battle_id}/stop")
    async def stop(battle_id: str) -> dict[str, str]:
        arena.find(battle_id).stopping = True
        return {"status": "stopping"}

    @app.post("/arena/battles/{battle_id}/regenerate")
    async def regenerate(battle_id: str, number: int | None = None) -> StreamingResponse:
        battle = arena.find(battle_id)
        if battle.state == "streaming":
            raise ApiError(ErrorCode.BATTLE_BUSY, "Busy.")
        if number not in (None, len(battle.turns)):
            raise ApiError(ErrorCode.STALE_TURN, "Stale.")
        content = battle.turns.pop().content
        arena.run_turn(battle, content)
        return StreamingResponse(arena.follow(battle, 0), media_type="text/event-stream")


def _add_board_routes(app: FastAPI, arena: FakeArena) -> None:
    @app.get("/arena/leaderboard")
    async def leaderboard(request: Request, board: str = "overall", style_control: bool = False) -> LeaderboardView:
        arena.board_queries.append(request.url.query)
        while arena.holds_boards_after is not None and len(arena.votes) > arena.holds_boards_after:
            await asyncio.sleep(0.01)
        if arena.has_full_board:
            return fake_views.full_board(arena.num_more_votes, board=board, style_controlled=style_control)
        return fake_views.leaderboard(arena.models, arena.votes)

    @app.get("/arena/leaderboard/history")
    async def history(board: str) -> HistoryView:
        if not arena.has_full_board:
            raise ApiError(ErrorCode.NOT_FOUND, "An older controller has no history.")
        return fake_views.full_history(board)

    @app.get("/arena/leaderboard/cohorts")
    async def cohorts(first: str, second: str) -> CohortView:
        return fake_views.comparison(first, second)

    @app.get("/arena/models")
    async def cards() -> BoardCards:
        return BoardCards(models=tuple(arena.cards))

    @app.put("/arena/models/{model:path}/card")
    async def put_card(request: Request, model: str, body: BoardCard, reason: str = "") -> BoardCard:
        if not is_admin(request):
            raise ApiError(ErrorCode.UNAUTHORIZED, "This needs a credential.")
        arena.cards = [card for card in arena.cards if card.model != model] + [body]
        arena.admin.note("put_card", model, body.model_dump(mode="json", exclude_none=True), reason)
        return body

    @app.get("/arena/workers")
    async def workers(request: Request) -> list[WorkerView]:
        views = fake_views.workers(arena.models, arena.num_streaming)
        return views if is_admin(request) else [view.without_figures() for view in views]

    @app.get("/arena/pools")
    async def pools(request: Request) -> list[WorkerPool]:
        if not is_admin(request):
            raise ApiError(ErrorCode.UNAUTHORIZED, "This needs a credential.")
        return fake_views.pools(arena.num_streaming)


def some_votes() -> list[tuple[str, str, Outcome]]:
    """A few votes for the leaderboard."""
    outcomes: tuple[tuple[int, int, Outcome], ...] = (
        *((0, 1, "a"), (0, 1, "tie"), (0, 2, "a"), (1, 2, "b"), (2, 3, "a")),
        *((1, 3, "a"), (0, 3, "a"), (2, 1, "a"), (0, 2, "b"), (3, 1, "both_bad")),
    )
    return [(MODELS[a], MODELS[b], outcome) for a, b, outcome in outcomes]


if __name__ == "__main__":
    fake = FakeArena(delta_s=0.03)
    fake.votes.extend(some_votes())
    fake.has_full_board = "--full" in sys.argv
    uvicorn.run(create_fake(fake), port=int(os.environ.get("AGON_PORT", "8100")), log_level="warning")
