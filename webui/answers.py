"""One model's answer as far as it has arrived: a frozen value, the events that change it, and its markdown. Pure.

Battles have two of them in each turn, chats one.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal

from webui import sentences, texts
from webui.as_written import as_written
from webui.thoughts import folded
from wire.battles import Answer, DeltaEvent, FailedEvent, FinishedEvent, RestartedEvent, TurnFinishedEvent, WakingEvent

SideStatus = Literal["waiting", "writing", "finished", "stopped", "failed"]
AnswerEvent = DeltaEvent | FinishedEvent | FailedEvent | RestartedEvent
BattleEvent = AnswerEvent | TurnFinishedEvent | WakingEvent


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The stream of a turn broke and is being connected again; its next event ends the interruption."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The turn waits for room at the models, behind about so many other questions; its next event ends that."""

    num_before: int


StreamEvent = BattleEvent | Interrupted | Waiting


@dataclass(frozen=True, slots=True)
class SideAnswer:
    """One side's answer to one turn, as far as it has arrived."""

    text: str = ""
    status: SideStatus = "waiting"  #: also while the model thinks
    error_code: str | None = None
    is_cut: bool = False  #: true if the answer ended at its length limit
    thoughts: str = ""  #: what the model thought before; hidden models have none before the vote

    def after(self, event: AnswerEvent) -> "SideAnswer":
        """The answer after an event of its side."""
        match event:
            case DeltaEvent():
                # Delta 0 starts the answer: a stream that is read from its beginning again replaces the text.
                before = self if event.seq else SideAnswer()
                text = before.text + event.text
                return SideAnswer(
                    text=text, status="writing" if text else "waiting", thoughts=before.thoughts + event.thoughts
                )
            case FinishedEvent():
                status: SideStatus = "stopped" if event.finish_reason == "abort" else "finished"
                return replace(self, status=status, is_cut=event.finish_reason == "length")
            case FailedEvent():
                return replace(self, status="failed", error_code=event.error.code, is_cut=False)
            case RestartedEvent():
                return SideAnswer()

    def at_rest(self) -> "SideAnswer":
        """After the end of a turn nothing is written: an answer without an end event lost its controller, so it is
        stopped."""
        return replace(self, status="stopped") if self.status in ("waiting", "writing") else self


NO_ANSWER: Final = SideAnswer()


def answer_of(answer: Answer) -> SideAnswer:
    """An answer as the controller shows it."""
    if answer.error is not None:
        return SideAnswer(answer.text, "failed", answer.error.code, thoughts=answer.thoughts)
    if answer.finish_reason is None:
        return SideAnswer(answer.text, "writing" if answer.text else "waiting", thoughts=answer.thoughts)
    return SideAnswer(
        answer.text,
        "stopped" if answer.finish_reason == "abort" else "finished",
        is_cut=answer.finish_reason == "length",
        thoughts=answer.thoughts,
    )


def answer_markdown(answer: SideAnswer, thoughts_id: str, *, failed: str) -> str:
    """The answer below its thoughts. An empty one is drawn as a typing indicator; `failed` begins the sentence of one
    that failed."""
    if not answer.thoughts:
        return _said_text(answer, failed)
    thoughts = folded(answer.thoughts, thoughts_id, is_thinking=answer.status == "waiting")
    return f"{thoughts}\n\n{_said_text(answer, failed)}"


def _said_text(answer: SideAnswer, failed: str) -> str:
    """The answer alone; one that ended without text says so."""
    if answer.status == "failed":
        reason = f"**{failed}** {sentences.failure(answer.error_code)}"
        return f"{as_written(answer.text)}\n\n{reason}" if answer.text else reason
    if not answer.text and answer.status in ("finished", "stopped"):
        return f"*({texts.STATUS[answer.status]})*"
    return as_written(answer.text)
