"""What one visitor sees of one battle: a frozen value and its transitions. No I/O and no Gradio.

A session is made from the controller's view of the battle (`from_view`) and advanced by the events of a stream
(`after`); the page is a function of it. It holds no model name before the controller has sent one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from webui import sentences, texts
from webui.answers import NO_ANSWER, AnswerEvent, Interrupted, SideAnswer, StreamEvent, Waiting, answer_of
from wire.battles import SIDES, BattleState, BattleView, Mode, Outcome, Side, TurnFinishedEvent, WakingEvent
from wire.errors import ErrorCode
from wire.feedback import GiveFeedback
from wire.ids import BattleId
from wire.leaderboard import LeaderboardView

Pending = Literal["turn", "regenerate", "resume"]
_VOTE = "vote"  #: marks a vote in the browser's storage


@dataclass(frozen=True, slots=True)
class Exchange:
    """One turn: a prompt and two answers."""

    content: str
    a: SideAnswer = NO_ANSWER
    b: SideAnswer = NO_ANSWER

    def side(self, side: Side) -> SideAnswer:
        """The answer of one side."""
        return self.a if side == "a" else self.b

    @property
    def has_failed(self) -> bool:
        """True if a side could not answer: the turn counts for nothing."""
        return "failed" in (self.a.status, self.b.status)

    def with_side(self, side: Side, answer: SideAnswer) -> "Exchange":
        """A copy with another answer on one side."""
        return replace(self, a=answer) if side == "a" else replace(self, b=answer)


@dataclass(frozen=True, slots=True)
class Standing:
    """A model's rating and rank; `change` is by how much the vote moved the rating, None if unknown."""

    rating: float
    rank: int | None  #: None: too few votes to tell
    num_models: int
    change: float | None = None
    is_new: bool = False  #: this was its first vote


@dataclass(frozen=True, slots=True)
class Choice:
    """What a visitor clicked. `has_consent`: they agree to a release of the texts."""

    outcome: Outcome
    has_consent: bool = False
    number: int | None = None  #: of the last turn that they saw


@dataclass(frozen=True, slots=True)
class Session:
    """What one visitor sees of one battle. `names` is None until the controller has sent them."""

    mode: Mode = "anonymous"
    battle_id: BattleId | None = None
    state: BattleState = "open"
    exchanges: tuple[Exchange, ...] = ()
    max_turns: int | None = None
    names: tuple[str, str] | None = None
    outcome: Outcome | None = None
    is_rated: bool = True
    flags: tuple[str, ...] = ()  #: why the vote is not rated, as far as the controller says
    is_busy: bool = False  #: the page follows a stream, or is about to
    pending: Pending | None = None  #: the request that is still to be sent
    standings: dict[Side, Standing] = field(default_factory=dict)
    facts: dict[Side, tuple[str, ...]] = field(default_factory=dict)  #: what the models' cards say, after the vote
    #: What the visitor had said about the vote when the page was loaded or the vote recorded; None: they cannot.
    feedback: GiveFeedback | None = None
    notice: str | None = None  #: one sentence about an error or a wait, shown above the prompt
    failure_code: str | None = None  #: why the battle was aborted
    is_interrupted: bool = False  #: the stream is being connected again
    can_resume: bool = False  #: the stream was lost: following it again may help
    unsent_text: str | None = None  #: a prompt that was not taken: the page puts it back into the box
    refusal_code: str | None = None  #: why the last prompt was not taken
    choice: Choice | None = None  #: a vote that can still be taken back, or is being recorded

    @property
    def is_over(self) -> bool:
        """True if no further turn can be taken."""
        return self.state in ("voted", "aborted", "expired") or self.choice is not None

    @property
    def is_votable(self) -> bool:
        """True if the controller would take a vote now."""
        return self.state == "answered" and not self.is_busy and bool(self.exchanges) and self.choice is None

    @property
    def has_answers(self) -> bool:
        """True if there is an answer to compare; both sides may have been stopped before their first token."""
        answers = [exchange.side(side) for exchange in self.exchanges if not exchange.has_failed for side in SIDES]
        return any(answer.text or answer.status == "finished" for answer in answers)

    @property
    def has_failed_turn(self) -> bool:
        """True if the last turn failed and can be asked again."""
        return self.is_votable and self.exchanges[-1].has_failed

    @property
    def stopped_turns(self) -> tuple[int, ...]:
        """The turns, from 0, of which an answer was stopped before its end."""
        return tuple(
            number
            for number, exchange in enumerate(self.exchanges)
            if "stopped" in (exchange.a.status, exchange.b.status)
        )

    @property
    def is_full(self) -> bool:
        """True if the battle has reached its limit of turns."""
        return self.max_turns is not None and len(self.exchanges) >= self.max_turns

    def name(self, side: Side) -> str | None:
        """The model of one side, None while it is hidden."""
        return None if self.names is None else self.names[SIDES.index(side)]

    def asking(self, content: str) -> "Session":
        """A new turn with this prompt, shown before the controller has received it."""
        return self._waiting((*self.exchanges, Exchange(content)), "turn")

    def asking_again(self) -> "Session":
        """The last turn is answered again; its prompt stays."""
        return self._waiting((*self.exchanges[:-1], Exchange(self.exchanges[-1].content)), "regenerate")

    def resuming(self) -> "Session":
        """The stream of the running turn is to be followed again."""
        return self._waiting(self.exchanges, "resume")

    def _waiting(self, exchanges: tuple[Exchange, ...], pending: Pending) -> "Session":
        return replace(
            self,
            exchanges=exchanges,
            state="streaming",
            is_busy=True,
            pending=pending,
            notice=None,
            can_resume=False,
            unsent_text=None,
            refusal_code=None,
        )

    def ended(self, notice: str | None, *, unsent_text: str | None = None, can_resume: bool = False) -> "Session":
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

    def after(self, events: Iterable[StreamEvent]) -> "Session":
        """Apply a batch of stream events to the last exchange."""
        session, is_interrupted, notice = self, self.is_interrupted, self.notice
        for event in events:
            is_interrupted = isinstance(event, Interrupted)
            notice = _notice(event)
            if not isinstance(event, (Interrupted, Waiting, WakingEvent)):
                session = session._after_one(event)
        if (session.is_interrupted, session.notice) == (is_interrupted, notice):
            return session
        return replace(session, is_interrupted=is_interrupted, notice=notice)

    def _after_one(self, event: AnswerEvent | TurnFinishedEvent) -> "Session":
        match event:
            case TurnFinishedEvent():
                return self._after_turn(event)
            case _:
                answer = self.exchanges[-1].side(event.side).after(event)
        last = self.exchanges[-1].with_side(event.side, answer)
        return replace(self, exchanges=(*self.exchanges[:-1], last))

    def _after_turn(self, event: TurnFinishedEvent) -> "Session":
        """A turn that failed stays, to be answered again; one that was refused is removed."""
        ended = replace(self, state=event.state, is_busy=False, exchanges=_at_rest(self.exchanges))
        if event.is_kept:
            return ended
        last = self.exchanges[-1]
        failed = next((answer for answer in (last.a, last.b) if answer.status == "failed"), None)
        code = ErrorCode.WORKER_FAILED if failed is None else failed.error_code
        return replace(ended, exchanges=self.exchanges[:-1], unsent_text=last.content, refusal_code=code)

    def revealed(
        self, names: dict[Side, str], outcome: Outcome, *, is_rated: bool, flags: tuple[str, ...] = ()
    ) -> "Session":
        """The session after its vote was recorded; `flags` are the reasons why it is not rated."""
        return replace(
            self,
            state="voted",
            names=(names["a"], names["b"]),
            outcome=outcome,
            is_rated=is_rated,
            flags=flags,
            is_busy=False,
            notice=None,
            choice=None,
            feedback=GiveFeedback(),
        )


def _notice(event: StreamEvent) -> str | None:
    """What the page says until the next event."""
    match event:
        case Waiting(num_before):
            return sentences.waiting_in_line(num_before)
        case WakingEvent():
            return texts.WAKING
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Bookmark:
    """What the browser stores of a battle: where a page goes on after a reload. While the controller has not yet got a
    prompt, the prompt is a part of it."""

    battle_id: BattleId | None = None
    asked: str | None = None  #: the prompt that was sent last, unless its turn has ended
    number: int = 0  #: number of its turn, from 1
    choice: Choice | None = None  #: a vote that is not recorded yet

    def to_storage(self) -> str | list[str | int | None]:
        """A JSON value: the battle's id alone, with the prompt and its number, or with the vote. An empty list where
        there is none: Gradio does not store null, so that the battle before would come back."""
        if self.choice is not None:
            return [self.battle_id, _VOTE, self.choice.outcome, self.choice.has_consent, self.choice.number]
        if self.asked is not None:
            return [self.battle_id, self.asked, self.number]
        return self.battle_id or []


def bookmark_of(session: Session) -> Bookmark:
    """Where the page of this session goes on."""
    if session.choice is not None:
        return Bookmark(session.battle_id, choice=session.choice)
    if session.pending != "turn":
        return Bookmark(session.battle_id)
    return Bookmark(session.battle_id, session.exchanges[-1].content, len(session.exchanges))


def from_storage(stored: Any) -> Bookmark:
    """The bookmark from the browser's storage, which the visitor may have changed; empty if it is none."""
    match stored:
        case str():
            return Bookmark(BattleId.parse(stored))
        case [str() as battle_id, "vote", "a" | "b" | "tie" | "both_bad" as outcome, bool() as has_consent, *rest]:
            number = rest[0] if rest and isinstance(rest[0], int) and rest[0] > 0 else None
            return Bookmark(BattleId.parse(battle_id), choice=Choice(outcome, has_consent, number))
        case [str() | None as battle_id, str() as asked, int() as number]:
            return Bookmark(BattleId.parse(battle_id), asked, number)
    return Bookmark()


def _at_rest(exchanges: tuple[Exchange, ...]) -> tuple[Exchange, ...]:
    """After the end of a turn no side is streaming."""
    last = exchanges[-1]
    return (*exchanges[:-1], replace(last, a=last.a.at_rest(), b=last.b.at_rest()))


def from_view(view: BattleView) -> Session:
    """The session of a page that has only the battle's id, for instance after a reload."""
    exchanges = tuple(Exchange(turn.content, answer_of(turn.a), answer_of(turn.b)) for turn in view.turns)
    if exchanges and view.state != "streaming":
        exchanges = _at_rest(exchanges)
    flags = view.flags
    if not flags and view.mode == "named":
        flags = ("named",)
    elif not flags and view.identity_revealed:
        flags = ("identity_revealed",)
    names = None if view.a.model is None or view.b.model is None else (view.a.model, view.b.model)
    return Session(
        mode=view.mode,
        battle_id=view.id,
        state=view.state,
        exchanges=exchanges,
        max_turns=view.max_turns,
        names=names,
        outcome=view.outcome,
        is_rated=not flags,
        flags=flags,
        failure_code=None if view.error is None else view.error.code,
    )


def standings(names: tuple[str, str], before: LeaderboardView | None, after: LeaderboardView) -> dict[Side, Standing]:
    """Rating and rank of both models, and the change of their ratings since `before`."""
    old = {} if before is None else {row.model: row.rating for row in before.rows if row.votes}
    new = {row.model: row for row in after.rows}
    found: dict[Side, Standing] = {}
    for side, name in zip(SIDES, names, strict=True):
        row = new.get(name)
        if row is not None:
            change = row.rating - old[name] if name in old else None
            is_new = before is not None and name not in old
            rank = None if row.lower is None else row.rank
            found[side] = Standing(row.rating, rank, len(after.rows), change, is_new)
    return found
