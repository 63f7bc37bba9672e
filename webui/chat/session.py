"""What one visitor sees of a chat: a frozen value and its transitions. No I/O and no Gradio.

Made from the controller's view (`from_view`) and advanced by the events of a stream (`after`), as a battle's session
is. Each exchange has the name of the model that was asked, because a visitor may change the model in between.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from webui import sentences, texts
from webui.answers import NO_ANSWER, Interrupted, SideAnswer, StreamEvent, Waiting, answer_of
from wire.battles import BattleSampling, TurnFinishedEvent, WakingEvent
from wire.chats import ChatView
from wire.errors import ErrorCode
from wire.ids import ChatId

Pending = Literal["turn", "again", "resume"]


@dataclass(frozen=True, slots=True)
class ChatExchange:
    """One question and its answer."""

    content: str
    model: str
    answer: SideAnswer = NO_ANSWER


@dataclass(frozen=True, slots=True)
class ChatSession:
    """What one visitor sees of one chat."""

    chat_id: ChatId | None = None
    model: str | None = None  #: that answers the next question
    system_prompt: str = ""
    exchanges: tuple[ChatExchange, ...] = ()
    max_turns: int | None = None
    is_busy: bool = False  #: the page follows a stream, or is about to
    pending: Pending | None = None  #: the request that is still to be sent
    sampling: BattleSampling | None = None  #: of that request; None: as before
    is_editing: bool = False  #: the last question is in the box; sending replaces it
    notice: str | None = None  #: one sentence, shown above the box
    is_interrupted: bool = False  #: the stream is being connected again
    can_resume: bool = False  #: the stream was lost: following it again may help
    unsent_text: str | None = None  #: a question that was not taken: the page puts it back into the box
    refusal_code: str | None = None  #: why the turn that was followed is not kept

    @property
    def shown(self) -> tuple[ChatExchange, ...]:
        """The exchanges that the page shows: while the last question is edited, those before it."""
        return self.exchanges[:-1] if self.is_editing else self.exchanges

    @property
    def is_full(self) -> bool:
        """True if no further turn can be taken."""
        return self.max_turns is not None and len(self.shown) >= self.max_turns

    @property
    def has_failed_turn(self) -> bool:
        """True if the last turn failed and can be asked again."""
        return not self.is_busy and bool(self.shown) and self.shown[-1].answer.status == "failed"

    def asking(self, content: str, model: str, sampling: BattleSampling | None = None) -> "ChatSession":
        """A question, shown before the controller has it: a new one, or one in place of the one that is edited."""
        pending: Pending = "again" if self.is_editing else "turn"
        return self._waiting((*self.shown, ChatExchange(content, model)), pending, model, sampling)

    def asking_again(self, model: str, sampling: BattleSampling | None = None) -> "ChatSession":
        """The last question is answered again."""
        last = ChatExchange(self.exchanges[-1].content, model)
        return self._waiting((*self.exchanges[:-1], last), "again", model, sampling)

    def resuming(self) -> "ChatSession":
        """The stream of the running turn is to be followed again."""
        return self._waiting(self.exchanges, "resume", self.model, None)

    def editing(self) -> "ChatSession":
        """The last question goes into the box; until it is sent, the controller keeps it with its answer."""
        if self.is_busy or not self.shown:
            return self
        return replace(self, is_editing=True, notice=None, unsent_text=self.exchanges[-1].content)

    def _waiting(
        self,
        exchanges: tuple[ChatExchange, ...],
        pending: Pending,
        model: str | None,
        sampling: BattleSampling | None,
    ) -> "ChatSession":
        return replace(
            self,
            exchanges=exchanges,
            model=model,
            is_busy=True,
            pending=pending,
            sampling=sampling,
            is_editing=False,
            notice=None,
            can_resume=False,
            unsent_text=None,
            refusal_code=None,
        )

    def ended(self, notice: str | None, *, unsent_text: str | None = None, can_resume: bool = False) -> "ChatSession":
        """The session after its last request ended; `notice` tells the visitor why."""
        return replace(
            self,
            is_busy=False,
            is_interrupted=False,
            pending=None,
            notice=notice,
            unsent_text=unsent_text,
            can_resume=can_resume,
        )

    def after(self, events: Iterable[StreamEvent]) -> "ChatSession":
        """Apply a batch of stream events to the last exchange."""
        session = self
        for event in events:
            match event:
                case Interrupted():
                    session = replace(session, is_interrupted=True)
                    continue
                case Waiting(num_before):
                    session = replace(session, notice=sentences.waiting_in_line(num_before))
                    continue
                case WakingEvent():
                    session = replace(session, is_interrupted=False, notice=texts.WAKING)
                    continue
                case TurnFinishedEvent():
                    session = session._after_turn(event)
                case _:
                    session = session._with_answer(session.exchanges[-1].answer.after(event))
            session = replace(session, is_interrupted=False, notice=None)
        return session

    def _with_answer(self, answer: SideAnswer) -> "ChatSession":
        return replace(self, exchanges=(*self.exchanges[:-1], replace(self.exchanges[-1], answer=answer)))

    def _after_turn(self, event: TurnFinishedEvent) -> "ChatSession":
        last = self.exchanges[-1].answer
        ended = replace(self._with_answer(last.at_rest()), is_busy=False)
        if event.is_kept:
            return ended
        return replace(ended, refusal_code=last.error_code or ErrorCode.WORKER_FAILED)


@dataclass(frozen=True, slots=True)
class ChatBookmark:
    """What the browser stores of a chat: where a page goes on after a reload, and with which model. While the
    controller has not yet got a question, the question is a part of it."""

    chat_id: ChatId | None = None
    model: str | None = None
    asked: str | None = None
    number: int = 0  #: of the turn that `asked` begins, from 1
    system_prompt: str = ""  #: of a chat that is still to be begun

    def to_storage(self) -> list[str | int | None]:
        """A JSON value."""
        return [self.chat_id, self.model, self.asked, self.number, self.system_prompt]


def bookmark_of(session: ChatSession) -> ChatBookmark:
    """Where the page of this session goes on."""
    if session.pending not in ("turn", "again"):
        return ChatBookmark(session.chat_id, session.model)
    system_prompt = session.system_prompt if session.chat_id is None else ""
    last = session.exchanges[-1]
    return ChatBookmark(session.chat_id, session.model, last.content, len(session.exchanges), system_prompt)


def from_storage(stored: Any) -> ChatBookmark:
    """The bookmark from the browser's storage, which the visitor may have changed; empty if it is none."""
    match stored:
        case [str() | None as chat_id, str() | None as model, str() | None as asked, int() as number, str() as system]:
            return ChatBookmark(ChatId.parse(chat_id), model, asked, number, system)
    return ChatBookmark()


def from_view(view: ChatView, *, model: str | None = None) -> ChatSession:
    """The session of a page that has only the chat's id; `model`: chosen for the next question, if not the chat's."""
    exchanges = tuple(ChatExchange(turn.content, turn.model, answer_of(turn.answer)) for turn in view.turns)
    if exchanges and view.state != "streaming":
        exchanges = (*exchanges[:-1], replace(exchanges[-1], answer=exchanges[-1].answer.at_rest()))
    session = ChatSession(
        chat_id=view.id,
        model=model or view.model,
        system_prompt=view.system_prompt,
        exchanges=exchanges,
        max_turns=view.max_turns,
    )
    return session.resuming() if view.state == "streaming" else session
