"""One turn of a battle while it runs: two independent answers, one event stream, one end.

A background task of the controller that accepted the turn; no browser is needed to keep it alive, and it ends by itself
because every answer is bounded. It ends in exactly one way: finished, stopped, refused (the turn never was) or aborted.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from controller.battles.battle_record import Battle, StoredAnswer, StoredSide, StoredTurn, side_fields
from controller.battles.battle_store import BegunTurn
from controller.battles.identity_guard import IdentityGuard
from controller.battles.matchmaking import Matchmaker
from controller.battles.neutral_errors import REFUSALS, neutral
from controller.battles.turn_writer import TurnWriter
from controller.errors import OwnershipLost
from controller.metrics import Metrics
from controller.workers.dispatch import Dispatcher, Lane, Wish
from controller.workers.relay import Relay
from controller.workers.upstream import Delta, Finished, Opened
from service_kit.cancellation import cancel
from service_kit.logs import log_event, short
from wire.battles import SIDES, BattleState, FailedEvent, FinishedEvent, Side, TurnFinishedEvent
from wire.chat import ChatMessage, FinishReason, SamplingOptions, Usage
from wire.errors import ApiError, ErrorCode, ErrorDetail
from wire.workers import GenerateRequest

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TurnTools:
    """What every turn uses; made once in the composition root."""

    relay: Relay
    dispatcher: Dispatcher
    matchmaker: Matchmaker
    identity: IdentityGuard
    metrics: Metrics
    prompt_key: Callable[[str], str]
    max_tokens: int
    admission_wait_s: float


@dataclass
class _Draft:
    """One side's answer so far."""

    lane: Lane
    stored: StoredSide
    texts: list[str] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    first_token_ms: float | None = None
    total_ms: float | None = None

    @property
    def has_begun(self) -> bool:
        return self.first_token_ms is not None

    def answer(self) -> StoredAnswer:
        return StoredAnswer(
            text="".join(self.texts),
            finish_reason=self.finish_reason,
            usage=self.usage,
            first_token_ms=self.first_token_ms,
            total_ms=self.total_ms,
        )


class _SideFailed(Exception):
    def __init__(self, side: Side, error: ApiError) -> None:
        super().__init__(error.message)
        self.side = side
        self.error = error


class TurnRun:
    """`battle` is the battle as it was before the turn began; `lanes` become this run's to close."""

    def __init__(
        self,
        battle: Battle,
        begun: BegunTurn,
        content: str,
        lanes: dict[Side, Lane],
        writer: TurnWriter,
        tools: TurnTools,
    ) -> None:
        self.begun = begun
        self._battle = battle
        self._content = content
        self._writer = writer
        self._tools = tools
        self._drafts = {side: _Draft(lanes[side], battle.sides[side]) for side in SIDES}
        self._may_redraw = battle.may_redraw
        self._opened: set[Side] = set()
        self._failures: dict[Side, ErrorDetail] = {}  #: sides that have failed, in the order in which they did
        self._admission: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        self._started = time.monotonic()

    async def admitted(self) -> None:
        """Returns once events may flow; raises ApiError when the workers refused the turn before any did."""
        await asyncio.shield(self._admission)

    def stop(self) -> None:
        """End both answers now; what there is of them is kept."""
        self._stop.set()

    async def run(self) -> None:
        """The whole turn. Cancelling it ends the battle with a typed failure."""
        self._gate = asyncio.get_running_loop().call_later(self._tools.admission_wait_s, self._open)
        flusher = asyncio.create_task(self._writer.run())
        result = "lost"
        try:
            try:
                result = await self._until_over(flusher)
            except asyncio.CancelledError:
                for side in self._open_sides() or ("b",):  # both finished, but nobody has been told: not answered
                    await self._fail_side(_SideFailed(side, ApiError(ErrorCode.SHUTTING_DOWN, "")))
                await self._end_aborted()
                raise
        except (OwnershipLost, ApiError) as error:
            log_event(
                _logger, "turn_lost", logging.WARNING, battle=short(self.begun.battle_id), error=type(error).__name__
            )
        finally:
            for draft in self._drafts.values():
                await draft.lane.close()
            self._open()
            self._tools.metrics.turns.labels(result).inc()
            log_event(
                _logger,
                "turn_ended",
                battle=short(self.begun.battle_id),
                turn=self.begun.turn,
                result=result,
                ms=round(self._elapsed_ms()),
            )

    async def _until_over(self, flusher: "asyncio.Task[None]") -> str:
        answers = [asyncio.create_task(self._answer(side)) for side in SIDES]
        stops = [asyncio.create_task(event.wait()) for event in (self._stop, self._writer.stop_asked)]
        waiting: set[asyncio.Task[object]] = {*answers, flusher, *stops}
        try:
            while not all(task.done() for task in answers):
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    try:
                        await task
                    except _SideFailed as failure:
                        if self._is_refusal(failure):
                            await cancel(*answers, *stops, flusher)
                            return await self._end_refused(failure)
                        await self._fail_side(failure)  # the other one goes on to its own end
                if any(task.done() for task in stops):
                    break
        finally:
            await cancel(*answers, *stops, flusher)
        return await (self._end_aborted() if self._failures else self._end_answered())

    async def _answer(self, side: Side) -> None:
        draft = self._drafts[side]
        while True:
            try:
                await self._relay_answer(side, draft)
                return
            except ApiError as error:
                if draft.has_begun or not await self._redraw(side, draft):
                    raise _SideFailed(side, error) from None

    async def _relay_answer(self, side: Side, draft: _Draft) -> None:
        request = GenerateRequest(
            request_id=secrets.token_hex(12),
            messages=(
                *self._battle.history(side, self.begun.turn - 1),
                ChatMessage(role="user", content=self._content),
            ),
            sampling=self._sampling(draft.lane),
        )
        async with aclosing(self._tools.relay.answer(draft.lane, request)) as events:
            async for event in events:
                match event:
                    case Opened():
                        self._opened.add(side)
                        if len(self._opened) == len(SIDES):
                            self._open()
                    case Delta(text):
                        if draft.first_token_ms is None:
                            draft.first_token_ms = self._elapsed_ms()
                        draft.texts.append(text)
                        self._writer.delta(side, text)
                    case Finished(finish_reason, usage):
                        self._finish_side(side, draft, finish_reason, usage)
        await draft.lane.close()  # the other side may take much longer

    def _sampling(self, lane: Lane) -> SamplingOptions:
        chosen = self._battle.sampling
        limit = min(self._tools.max_tokens, max(1, lane.worker.card.context_length // 2))
        return SamplingOptions(
            max_tokens=min(chosen.max_tokens or limit, limit), temperature=chosen.temperature, top_p=chosen.top_p
        )

    async def _redraw(self, side: Side, draft: _Draft) -> bool:
        """Put another model on a side that has not said a word, once in a battle."""
        if not self._may_redraw:
            return False
        self._may_redraw = False
        other = self._drafts["b" if side == "a" else "a"].stored.model
        drawn = self._tools.matchmaker.redraw(other, excluded=draft.stored.model)
        if drawn is None:
            return False
        try:
            [lane] = await self._tools.dispatcher.reserve([Wish(drawn.model)])
        except ApiError:
            return False
        await draft.lane.close()
        draft.lane = lane
        draft.stored = StoredSide(drawn.model, drawn.revision, None)
        changes = {**side_fields(side, draft.stored), "redraws": "1", "probability": repr(drawn.probability)}
        self._writer.restarted(side, changes)
        log_event(_logger, "side_redrawn", battle=short(self.begun.battle_id))
        return True

    def _finish_side(self, side: Side, draft: _Draft, finish_reason: FinishReason, usage: Usage | None) -> None:
        draft.finish_reason, draft.usage, draft.total_ms = finish_reason, usage, self._elapsed_ms()
        shown = usage if self._battle.names_are_known else None
        self._writer.event(
            "finished", FinishedEvent(side=side, finish_reason=finish_reason, usage=shown), {"finished": side}
        )

    async def _fail_side(self, failure: _SideFailed) -> None:
        """From here on the battle cannot be voted on, but what the other side says can still be read."""
        detail = neutral(failure.error).body().error
        self._failures[failure.side] = detail
        self._writer.event("failed", FailedEvent(side=failure.side, error=detail))
        self._open()
        await self._drafts[failure.side].lane.close()

    def _finish_the_rest(self) -> None:
        """Sides that were stopped: their streams end, too."""
        for side in self._open_sides():
            self._finish_side(side, self._drafts[side], "abort", None)

    async def _end_answered(self) -> str:
        self._finish_the_rest()
        stopped = any(draft.finish_reason == "abort" for draft in self._drafts.values())
        turns = (*self._battle.turns[: self.begun.turn - 1], self._stored_turn())
        changes = self._changes("answered")
        changes["votable"] = "1" if any(turn.is_votable for turn in turns) else "0"
        if self.begun.turn == 1:
            changes["prompt"] = self._tools.prompt_key(self._content)
        prompts = [turn.content for turn in turns]
        if self._tools.identity.is_revealed((turns[-1].a.text, turns[-1].b.text), prompts):
            changes["identity"] = "1"
        self._writer.event("turn_finished", TurnFinishedEvent(turn=self.begun.turn, state="answered"))
        await self._writer.end("finish", changes)
        return "stopped" if stopped else "finished"

    def _is_refusal(self, failure: _SideFailed) -> bool:
        """Whether the whole turn can still be refused, as if it had never been asked for."""
        is_refusal = neutral(failure.error).code in REFUSALS
        return is_refusal and not self._failures and not self._drafts[failure.side].has_begun

    async def _end_refused(self, failure: _SideFailed) -> str:
        """A refused turn is forgotten."""
        self._gate.cancel()
        shown = neutral(failure.error)
        state: BattleState = "answered" if self._battle.turns else "open"
        self._writer.event("failed", FailedEvent(side=failure.side, error=shown.body().error))
        self._writer.event("turn_finished", TurnFinishedEvent(turn=self.begun.turn, state=state))
        await self._writer.end("refuse", {})
        if not self._admission.done():
            self._admission.set_exception(shown)
            self._admission.exception()  # retrieved: the client may have gone
        return "refused"

    async def _end_aborted(self) -> str:
        """A failed turn is the end of its battle."""
        self._finish_the_rest()
        self._writer.event("turn_finished", TurnFinishedEvent(turn=self.begun.turn, state="aborted"))
        await self._writer.end("finish", self._changes("aborted", next(iter(self._failures.values()))))
        self._tools.metrics.battles.labels("aborted").inc()
        return "aborted"

    def _changes(self, state: BattleState, error: ErrorDetail | None = None) -> dict[str, str]:
        changes = {"state": state, f"turn:{self.begun.turn}": self._stored_turn().model_dump_json()}
        if error is not None:
            changes["error"] = error.model_dump_json()
        for side, draft in self._drafts.items():
            changes.update(side_fields(side, replace(draft.stored, worker_id=draft.lane.worker.worker_id)))
        return changes

    def _stored_turn(self) -> StoredTurn:
        return StoredTurn(content=self._content, a=self._drafts["a"].answer(), b=self._drafts["b"].answer())

    def _open_sides(self) -> tuple[Side, ...]:
        """Those whose streams have not ended."""
        return tuple(
            side for side, draft in self._drafts.items() if draft.finish_reason is None and side not in self._failures
        )

    def _open(self) -> None:
        self._gate.cancel()
        if not self._admission.done():
            self._admission.set_result(None)
            self._writer.open()

    def _elapsed_ms(self) -> float:
        return (time.monotonic() - self._started) * 1000
