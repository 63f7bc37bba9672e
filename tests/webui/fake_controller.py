"""A small controller for tests and for work on the pages: wire types over HTTP, no Redis, no models.

What a prompt says decides what happens: "fail b" fails one side, "slow" streams slowly, "raw <...>" answers with that
text, "drop" breaks the first connection in the middle of the turn, "busy" refuses the first attempt.
"""

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel

from tests.quick_server import QuickServer
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
from wire.chat import FinishReason, Usage
from wire.errors import ApiError, ErrorCode
from wire.leaderboard import LeaderboardRow, LeaderboardView
from wire.openai import ChatCompletionRequest, CompletionShaper, ModelList, ModelObject
from wire.sse import SseEvent, encode
from wire.workers import Capacity, Load, ModelCard, PageCounts, PoolPicture, WorkerPool, WorkerView

MODELS = ("marsh-heron-9m", "tawny-owl-3m", "river-otter-6m", "grey-vole-1m")
USAGE = Usage(prompt_tokens=12, completion_tokens=34, total_tokens=46)

STORY = (
    "Once there was a small fox who found a lantern in the snow. She did not know what it was, so she asked the crow. "
    '"It keeps a piece of the day," said the crow. The fox carried it through the long night, and everyone she met '
    "walked beside her for a while.\n\nIn the morning she set the lantern down where she had found it. "
    "Somebody else would need it next winter."
)
STORY_B = (
    "A fox lived at the edge of the wood. One evening the fox found a lantern.\n\n"
    "- It was warm.\n- It was bright.\n- It was not hers.\n\nSo she brought it back to the village and left it at the "
    "first door. The next day there was a bowl of milk on the step."
)
CODE = (
    "Here is a way to add them:\n\n"
    "```python\ndef add(a: int, b: int) -> int:\n    return a + b\n\nprint(add(12, 30))\n```\n\n"
    "So the answer is **42**, or in a formula:\n\n$$12 + 30 = 42$$"
)
CODE_B = "12 + 30 = 42.\n\n| step | value |\n|---|---|\n| tens | 40 |\n| ones | 2 |\n\nThe sum is $40 + 2 = 42$."


def answers(prompt: str) -> tuple[str, str]:
    text = prompt.lower()
    if text.startswith("raw "):
        return prompt[4:], prompt[4:]
    if "capital" in text:
        return "The capital of France is Paris.", "It is **Paris**, a city on the river Seine."
    if "12 + 30" in text:
        return CODE, CODE_B
    if "name" in text:
        return "Your name is Ada. I will remember it.", "You are called Ada."
    if "hello" in text:
        return "Hello! I am well, thank you. What can I do for you?", "Good day to you. I am fine. And you?"
    return STORY, STORY_B


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
    error: ApiError | None = None
    stopping: bool = False
    task: asyncio.Task[None] | None = None

    def view(self) -> BattleView:
        known = self.mode == "named" or self.state == "voted"
        return BattleView(
            id=self.id,
            mode=self.mode,
            state=self.state,
            a=SideView(model=self.models[0] if known else None),
            b=SideView(model=self.models[1] if known else None),
            turns=tuple(self.turns),
            outcome=self.outcome,
            error=None if self.error is None else self.error.body().error,
            max_turns=8,
        )


class FakeArena:
    """The state behind the fake, with knobs that a test may turn."""

    def __init__(self, *, models: tuple[str, ...] = MODELS, delta_s: float = 0.01) -> None:
        self.models = models
        self.delta_s = delta_s
        self.battles: dict[str, FakeBattle] = {}
        self.votes: list[tuple[str, str, Outcome]] = []
        self.vote_delays_s: list[float] = []  #: for the next votes: recorded at once, answered this much later
        self.refuse_creation = 0
        self.requests: list[tuple[str, str, str]] = []  #: method, path, X-Forwarded-For
        self.ids = itertools.count(1)
        self.chats_closed = 0

    def run_turn(self, battle: FakeBattle, content: str) -> None:
        battle.state, battle.stopping, battle.events = "streaming", False, []
        number = len(battle.turns) + 1
        battle.turns.append(Turn(number=number, content=content, a=Answer(text=""), b=Answer(text="")))
        battle.task = asyncio.create_task(self._stream(battle, content))

    async def _stream(self, battle: FakeBattle, content: str) -> None:
        pace = self.delta_s * (8 if "slow" in content else 1)
        texts = answers(content)
        await asyncio.sleep(2 * pace)
        await asyncio.gather(
            *(
                self._answer(battle, side, text, content, pace * (1 + 0.7 * SIDES.index(side)))
                for side, text in zip(SIDES, texts, strict=True)
            )
        )
        battle.state = "aborted" if battle.error else "answered"
        self._emit(battle, "turn_finished", TurnFinishedEvent(turn=len(battle.turns), state=battle.state))

    async def _answer(self, battle: FakeBattle, side: Side, text: str, content: str, pace: float) -> None:
        done, finish_reason = "", "stop"
        for seq, start in enumerate(range(0, len(text), 6)):
            if battle.stopping:
                finish_reason = "abort"
                break
            if f"fail {side}" in content and seq == 3:
                battle.error = ApiError(ErrorCode.WORKER_FAILED, f"The worker of {battle.models[0]} failed.")
                error = battle.error.body().error
                self._record(battle, side, Answer(text=done, error=error))
                self._emit(battle, "failed", FailedEvent(side=side, error=error))
                return
            piece = text[start : start + 6]
            done += piece
            self._record(battle, side, Answer(text=done))
            self._emit(battle, "delta", DeltaEvent(side=side, seq=seq, text=piece))
            await asyncio.sleep(pace)
        reason: FinishReason = "abort" if finish_reason == "abort" else "stop"
        self._record(battle, side, Answer(text=done, finish_reason=reason))
        self._emit(battle, "finished", FinishedEvent(side=side, finish_reason=reason))

    def _record(self, battle: FakeBattle, side: Side, answer: Answer) -> None:
        battle.turns[-1] = battle.turns[-1].model_copy(update={side: answer})

    def _emit(self, battle: FakeBattle, event: str, body: BaseModel) -> None:
        battle.events.append(SseEvent(body.model_dump_json(), event, str(len(battle.events) + 1)))
        battle.changed.set()
        battle.changed = asyncio.Event()

    async def follow(self, battle: FakeBattle, after: int, *, break_after: int | None = None) -> AsyncIterator[bytes]:
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

    def leaderboard(self) -> LeaderboardView:
        wins = {model: 0.0 for model in self.models}
        counts = {model: 0 for model in self.models}
        pairs: dict[tuple[str, str], tuple[float, int]] = {}
        for a, b, outcome in self.votes:
            score = {"a": 1.0, "b": 0.0}.get(outcome, 0.5)
            for one, other, won in ((a, b, score), (b, a, 1 - score)):
                wins[one] += won
                counts[one] += 1
                total, met = pairs.get((one, other), (0.0, 0))
                pairs[one, other] = (total + won, met + 1)
        seen = [model for model in self.models if counts[model]]
        ratings = {model: 1000 + 400 * (wins[model] + 1) / (counts[model] + 2) - 200 for model in seen}
        ordered = sorted(seen, key=lambda model: -ratings[model])
        rows = []
        for place, model in enumerate(ordered, start=1):
            enough = counts[model] >= 3
            half = 300 / (counts[model] + 1) ** 0.5
            rows.append(
                LeaderboardRow(
                    model=model,
                    rating=ratings[model],
                    lower=ratings[model] - half if enough else None,
                    upper=ratings[model] + half if enough else None,
                    rank=place,
                    worst_rank=min(place + 1, len(ordered)) if enough else None,
                    votes_to_flip=2 * place if enough and place < len(ordered) else None,
                    votes=counts[model],
                    wins=int(wins[model]),
                    losses=counts[model] - int(wins[model]),
                    ties=0,
                    win_rate=wins[model] / counts[model],
                    flags=() if enough else ("too_few_votes",),
                )
            )
        return LeaderboardView(
            board="overall",
            num_votes=len(self.votes),
            last_vote_id=str(len(self.votes)) if self.votes else None,
            updated_at=time.time(),
            rows=tuple(rows),
            win_rate=tuple(
                tuple(
                    pairs[one, other][0] / pairs[one, other][1] if (one, other) in pairs else None for other in ordered
                )
                for one in ordered
            ),
            battle_count=tuple(tuple(pairs.get((one, other), (0, 0))[1] for other in ordered) for one in ordered),
        )

    def pools(self) -> list[WorkerPool]:
        """Worker 0 has one type of layers, worker 1 three; the others show nothing: hosted, or too busy to answer."""
        busy = 10 * sum(battle.state == "streaming" for battle in self.battles.values())
        mixed = [(i % 4, 90 - i % 7 * 10, i % 7 * 10) if i % 4 < 3 else (None, 0, 0) for i in range(256)]
        return [
            WorkerPool(
                worker_id="worker-0",
                picture=PoolPicture(
                    layer_types=("full_attention",),
                    cells=tuple((0, 60 + busy, 30) if i < 90 else (None, 0, 0) for i in range(200)),
                ),
            ),
            WorkerPool(
                worker_id="worker-1",
                picture=PoolPicture(
                    layer_types=("full_attention", "mamba_state", "sliding_window/0"), cells=tuple(mixed)
                ),
            ),
        ]

    def workers(self) -> list[WorkerView]:
        busy = sum(battle.state == "streaming" for battle in self.battles.values())
        pools = (
            (PageCounts(layer_type="full_attention", used=96 + 20 * busy, evictable=210, empty=206, page_bytes=16384),),
            (
                PageCounts(layer_type="full_attention", used=40, evictable=60, empty=156, page_bytes=16384),
                PageCounts(layer_type="sliding_window", used=24 + 8 * busy, evictable=16, empty=88, page_bytes=8192),
                PageCounts(layer_type="mamba_state", used=6, evictable=2, empty=24, page_bytes=65536),
            ),
            (),
            (PageCounts(layer_type="full_attention", used=0, evictable=0, empty=2048, page_bytes=16384),),
        )
        return [
            WorkerView(
                worker_id=f"worker-{index}",
                model=model,
                state="ready" if index != 2 else "draining",
                in_flight=busy,
                card=ModelCard(
                    name=model,
                    revision="4b1f00c2",
                    architecture="llama",
                    num_parameters=9_412_000 // (index + 1),
                    dtype="bfloat16",
                    context_length=1024,
                ),
                capacity=Capacity(max_running=16, max_queued=64, kv_tokens=8192),
                load=Load(
                    running=busy + index,
                    waiting=3 if index == 1 else 0,
                    tokens_per_s=212.4 if index < 2 else 0.0,
                    kv_bytes_used=3_000_000,
                    kv_bytes_evictable=2_000_000,
                    kv_bytes_total=8_388_608,
                    prompt_tokens_total=48_211,
                    generation_tokens_total=120_934,
                    prefix_hit_tokens_total=30_118,
                    preemptions_total=index,
                    pages=pool,
                ),
                last_heartbeat_age_s=0.4 + index,
            )
            for index, (model, pool) in enumerate(zip(self.models, pools, strict=False))
        ]


def create_fake(arena: FakeArena) -> FastAPI:
    app = FastAPI()

    @app.middleware("http")
    async def note(request: Request, call_next: Any) -> Response:
        arena.requests.append((request.method, request.url.path, request.headers.get("x-forwarded-for", "")))
        response: Response = await call_next(request)
        return response

    @app.exception_handler(ApiError)
    async def on_error(request: Request, error: ApiError) -> JSONResponse:
        return JSONResponse(error.body().model_dump(), error.status, error.headers)

    def find(battle_id: str) -> FakeBattle:
        if battle_id not in arena.battles:
            raise ApiError(ErrorCode.BATTLE_NOT_FOUND, "There is no such battle.")
        return arena.battles[battle_id]

    @app.get("/ready")
    async def ready() -> dict[str, str]:
        return {"status": "ready"}

    @app.get("/v1/models")
    async def models() -> ModelList:
        return ModelList(data=[ModelObject(id=model, created=0) for model in arena.models])

    @app.post("/arena/battles", status_code=201)
    async def create(body: CreateBattle) -> BattleView:
        if arena.refuse_creation:
            arena.refuse_creation -= 1
            raise ApiError(ErrorCode.QUEUE_FULL, "Full.", retry_after_s=1)
        number = next(arena.ids)
        pair = body.models or (arena.models[number % len(arena.models)], arena.models[(number + 1) % len(arena.models)])
        battle = FakeBattle(f"battle-{number}", body.mode, pair)
        arena.battles[battle.id] = battle
        return battle.view()

    @app.get("/arena/battles/{battle_id}")
    async def show(battle_id: str) -> BattleView:
        return find(battle_id).view()

    @app.post("/arena/battles/{battle_id}/turns")
    async def turn(battle_id: str, body: CreateTurn) -> StreamingResponse:
        battle = find(battle_id)
        if battle.state == "streaming":
            raise ApiError(ErrorCode.BATTLE_BUSY, "Busy.")
        arena.run_turn(battle, body.content)
        drop = 7 if "drop" in body.content else None
        return StreamingResponse(arena.follow(battle, 0, break_after=drop), media_type="text/event-stream")

    @app.get("/arena/battles/{battle_id}/stream")
    async def stream(battle_id: str, request: Request) -> StreamingResponse:
        after = int(request.headers.get("last-event-id", "0"))
        return StreamingResponse(arena.follow(find(battle_id), after), media_type="text/event-stream")

    @app.post("/arena/battles/{battle_id}/stop")
    async def stop(battle_id: str) -> dict[str, str]:
        find(battle_id).stopping = True
        return {"status": "stopping"}

    @app.post("/arena/battles/{battle_id}/regenerate")
    async def regenerate(battle_id: str) -> StreamingResponse:
        battle = find(battle_id)
        content = battle.turns.pop().content
        arena.run_turn(battle, content)
        return StreamingResponse(arena.follow(battle, 0), media_type="text/event-stream")

    @app.post("/arena/battles/{battle_id}/vote")
    async def vote(battle_id: str, body: CastVote) -> VoteReply:
        battle = find(battle_id)
        if battle.outcome not in (None, body.outcome):
            raise ApiError(ErrorCode.BATTLE_ALREADY_VOTED, "Another outcome is recorded.")
        if battle.state not in ("answered", "voted"):
            raise ApiError(ErrorCode.BATTLE_NOT_FINISHED, "Not finished.")
        if battle.outcome is None:
            battle.outcome, battle.state = body.outcome, "voted"
            arena.votes.append((*battle.models, body.outcome))
        if arena.vote_delays_s:
            await asyncio.sleep(arena.vote_delays_s.pop(0))
        return VoteReply(
            vote_id=f"vote-{battle_id}",
            battle_id=battle_id,
            outcome=body.outcome,
            models={"a": battle.models[0], "b": battle.models[1]},
            rated=True,
        )

    @app.get("/arena/leaderboard")
    async def leaderboard() -> LeaderboardView:
        return arena.leaderboard()

    @app.get("/arena/workers")
    async def workers() -> list[WorkerView]:
        return arena.workers()

    @app.get("/arena/pools")
    async def pools() -> list[WorkerPool]:
        return arena.pools()

    @app.post("/v1/chat/completions")
    async def chat(body: ChatCompletionRequest) -> StreamingResponse:
        shaper = CompletionShaper(kind="chat", completion_id="chat-1", model=body.model, created=0)
        prompt = body.chat_messages()[-1].content

        async def chunks() -> AsyncIterator[bytes]:
            import json

            try:
                yield encode(SseEvent(json.dumps(shaper.first_chunk())))
                text = answers(prompt)[0]
                for start in range(0, len(text), 6):
                    yield encode(SseEvent(json.dumps(shaper.text_chunk(text[start : start + 6]))))
                    await asyncio.sleep(arena.delta_s * (8 if "slow" in prompt else 1))
                yield encode(SseEvent(json.dumps(shaper.finish_chunk("stop"))))
                yield encode(SseEvent("[DONE]"))
            finally:
                arena.chats_closed += 1

        return StreamingResponse(chunks(), media_type="text/event-stream")

    return app


class ServerThread:
    """An ASGI app on a free port of this machine, in a thread of its own. The app is made inside the thread's event
    loop: made outside of one, Gradio opens loops of its own and never closes them."""

    def __init__(self, make_app: Callable[[], Any]) -> None:
        self._make_app = make_app
        self._server: QuickServer | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    async def _serve(self) -> None:
        config = uvicorn.Config(
            self._make_app(), host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=1
        )
        self._server = QuickServer(config)
        await self._server.serve()

    def __enter__(self) -> str:
        self._thread.start()
        while self._server is None or not self._server.started:
            if not self._thread.is_alive():
                raise RuntimeError("the server did not start")
            time.sleep(0.02)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def __exit__(self, *exc: object) -> None:
        if self._server is not None:
            self._server.should_exit = True
        self._thread.join(timeout=10)


def some_votes() -> list[tuple[str, str, Outcome]]:
    """A few votes, so that a board has something to show."""
    outcomes: tuple[tuple[int, int, Outcome], ...] = (
        *((0, 1, "a"), (0, 1, "tie"), (0, 2, "a"), (1, 2, "b"), (2, 3, "a")),
        *((1, 3, "a"), (0, 3, "a"), (2, 1, "a"), (0, 2, "b"), (3, 1, "both_bad")),
    )
    return [(MODELS[a], MODELS[b], outcome) for a, b, outcome in outcomes]


if __name__ == "__main__":
    fake = FakeArena(delta_s=0.03)
    fake.votes.extend(some_votes())
    uvicorn.run(create_fake(fake), port=8100, log_level="warning")
