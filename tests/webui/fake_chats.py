"""The fake controller's chats: the routes of `/arena/chats`, with answers that tests choose by words in the prompt.

"fail" fails the answer in its middle while `arena.fails`; "slow" streams slowly; "think" thinks first; "drop" breaks
the first connection in the middle of the answer; "too long" is refused.
"""

import asyncio
import re
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from tests.webui.fake_answers import answers, thoughts
from wire.battles import Answer, BattleSampling, DeltaEvent, FailedEvent, FinishedEvent, TurnFinishedEvent
from wire.chat import FinishReason
from wire.chats import AnswerAgain, AskChat, ChatState, ChatTurn, ChatView, CreateChat
from wire.errors import ApiError, ErrorCode
from wire.ids import ChatId
from wire.sse import SseEvent


@dataclass
class FakeChat:
    id: ChatId
    model: str
    system_prompt: str
    sampling: BattleSampling
    state: ChatState = "open"
    turns: list[ChatTurn] = field(default_factory=list)
    before: list[ChatTurn] = field(default_factory=list)  #: the turns before the running one
    events: list[SseEvent] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    stopping: bool = False
    task: asyncio.Task[None] | None = None

    def view(self) -> ChatView:
        return ChatView(
            id=self.id,
            state=self.state,
            model=self.model,
            system_prompt=self.system_prompt,
            sampling=self.sampling,
            turns=tuple(self.turns),
            max_turns=8,
        )

    def emit(self, event: str, body: Any) -> None:
        self.events.append(SseEvent(body.model_dump_json(), event, str(len(self.events) + 1)))
        self.changed.set()
        self.changed = asyncio.Event()


class HasChats(Protocol):
    """The fake arena, as far as chats need it."""

    chats: dict[str, FakeChat]
    chat_delays_s: list[float]
    asked: list[AskChat | AnswerAgain]
    delta_s: float
    fails: bool
    holds_answers: bool
    refuse_creation: int
    refusal: ErrorCode
    admin: Any

    def require_room(self) -> None: ...

    def follow(self, battle: Any, after: int, *, break_after: int | None = None) -> Any: ...


def add_fake_chats(app: FastAPI, arena: HasChats) -> None:
    """Add the routes."""

    def find(chat_id: str) -> FakeChat:
        if chat_id not in arena.chats:
            raise ApiError(ErrorCode.CHAT_NOT_FOUND, "There is no such chat.")
        return arena.chats[chat_id]

    def begin(chat: FakeChat, body: AskChat | AnswerAgain, content: str, number: int) -> StreamingResponse:
        if chat.state == "streaming":
            raise ApiError(ErrorCode.BATTLE_BUSY, "Busy.")
        if "too long" in content:
            raise ApiError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "Too long.")
        arena.asked.append(body)
        chat.model, chat.sampling = body.model or chat.model, body.sampling or chat.sampling
        chat.state, chat.stopping, chat.events = "streaming", False, []
        chat.before = chat.turns
        turn = ChatTurn(number=number, content=content, model=chat.model, answer=Answer(text=""))
        chat.turns = [*chat.turns[: number - 1], turn]
        chat.task = asyncio.create_task(_answer(arena, chat, content))
        drop = 7 if "drop" in content else None
        return StreamingResponse(arena.follow(chat, 0, break_after=drop), media_type="text/event-stream")

    @app.post("/arena/chats", status_code=201)
    async def create(body: CreateChat, request: Request) -> ChatView:
        if arena.refuse_creation:
            arena.refuse_creation -= 1
            raise ApiError(arena.refusal, "Not now.", retry_after_s=1)
        arena.admin.require_terms(request)
        chat_id = ChatId(f"chat-{len(arena.chats) + 1}")
        chat = FakeChat(chat_id, body.model, body.system_prompt, body.sampling or BattleSampling())
        arena.chats[chat_id] = chat
        return chat.view()

    @app.get("/arena/chats/{chat_id}")
    async def show(chat_id: str) -> ChatView:
        view = find(chat_id).view()
        if arena.chat_delays_s:
            await asyncio.sleep(arena.chat_delays_s.pop(0))
        return view

    @app.delete("/arena/chats/{chat_id}", status_code=204)
    async def delete(chat_id: str) -> None:
        find(chat_id)
        del arena.chats[chat_id]

    @app.post("/arena/chats/{chat_id}/turns")
    async def ask(chat_id: str, body: AskChat) -> StreamingResponse:
        chat = find(chat_id)
        arena.require_room()
        if chat.state != "streaming" and body.number not in (None, len(chat.turns) + 1):
            raise ApiError(ErrorCode.STALE_TURN, "Stale.")
        return begin(chat, body, body.content, len(chat.turns) + 1)

    @app.post("/arena/chats/{chat_id}/regenerate")
    async def again(chat_id: str, body: AnswerAgain) -> StreamingResponse:
        chat = find(chat_id)
        if body.number not in (None, len(chat.turns)):
            raise ApiError(ErrorCode.STALE_TURN, "Stale.")
        return begin(chat, body, body.content or chat.turns[-1].content, len(chat.turns))

    @app.get("/arena/chats/{chat_id}/stream")
    async def stream(chat_id: str, request: Request) -> StreamingResponse:
        after = int(request.headers.get("last-event-id", "0"))
        return StreamingResponse(arena.follow(find(chat_id), after), media_type="text/event-stream")

    @app.post("/arena/chats/{chat_id}/stop")
    async def stop(chat_id: str) -> ChatView:
        find(chat_id).stopping = True
        return find(chat_id).view()


async def _answer(arena: HasChats, chat: FakeChat, content: str) -> None:
    done, thought, seq = "", "", 0
    reason: FinishReason = "stop"

    def record(answer: Answer) -> None:
        chat.turns[-1] = chat.turns[-1].model_copy(update={"answer": answer})

    async def pause() -> None:
        await asyncio.sleep(arena.delta_s * (8 if "slow" in content else 1))

    await pause()
    for piece in re.findall(r"(?s).{1,6}", thoughts(content)):
        thought += piece
        record(Answer(text="", thoughts=thought))
        chat.emit("delta", DeltaEvent(side="a", seq=seq, text="", thoughts=piece))
        seq += 1
        await pause()
    while thought and arena.holds_answers:
        await asyncio.sleep(0.01)
    for number, piece in enumerate(re.findall(r"(?s).{1,6}", answers(content)[0])):
        if chat.stopping:
            reason = "abort"
            break
        if "fail" in content and arena.fails and number == 3:
            _fail(chat, Answer(text=done), record)
            return
        done += piece
        record(Answer(text=done, thoughts=thought))
        chat.emit("delta", DeltaEvent(side="a", seq=seq, text=piece))
        seq += 1
        await pause()
    record(Answer(text=done, thoughts=thought, finish_reason=reason))
    chat.state = "answered"
    chat.emit("finished", FinishedEvent(side="a", finish_reason=reason))
    chat.emit("turn_finished", TurnFinishedEvent(turn=len(chat.turns), state="answered"))


def _fail(chat: FakeChat, answer: Answer, record: Any) -> None:
    """The turn fails; a good answer that it was to replace stays."""
    error = ApiError(ErrorCode.WORKER_FAILED, "The worker failed.").body().error
    record(answer.model_copy(update={"error": error}))
    chat.emit("failed", FailedEvent(side="a", error=error))
    replaced = chat.before[len(chat.turns) - 1 :]
    is_kept = not replaced or replaced[0].answer.error is not None
    if not is_kept:
        chat.turns = chat.before
    chat.state = "answered"
    chat.emit("turn_finished", TurnFinishedEvent(turn=len(chat.turns), state="answered", is_kept=is_kept))
