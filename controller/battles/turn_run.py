"""One turn of a battle while it runs: two independent answers, one event stream, one end. A turn of a chat has one.

It is a background task of the controller that owns the turn. It needs no connected browser, and it ends by itself
because every answer has a limit. It ends in exactly one way: finished, stopped, refused (the turn is forgotten),
failed, or released: then another controller goes on where the written events end, as it does after a `kill -9`.
"""

import asyncio
from collections.abc import Mapping, Sequence

from controller.battles.battle_record import Battle, StoredSide, StoredTurn, side_fields
from controller.battles.battle_store import BegunTurn
from controller.battles.neutral_errors import REFUSALS, neutral
from controller.battles.side_answer import SideAnswer
from controller.battles.side_run import SideRun
from controller.battles.turn_admission import TurnAdmission
from controller.battles.turn_notes import TurnNotes
from controller.battles.turn_outcome import answered_turn, changes_of, facts_for_vote
from controller.battles.turn_progress import SideProgress
from controller.battles.turn_tools import TurnTools
from controller.battles.turn_writer import TurnWriter
from controller.errors import OwnershipLost
from controller.workers.dispatch import Lane, Wish
from service_kit.cancellation import cancel
from wire.battles import BattleState, FailedEvent, Side, TurnFinishedEvent, WakingEvent
from wire.errors import ApiError, ErrorCode, ErrorDetail
from wire.ids import WorkerId

ADMISSION_STEP_S = 0.25  #: a turn of hidden models is admitted at a whole number of these after it began


class _SideFailed(Exception):
    def __init__(self, side: Side, error: ApiError) -> None:
        super().__init__(error.message)
        self.side = side
        self.error = error


class TurnRun:
    """One running turn. `battle` is the battle before the turn began.

    `lanes` are those of a turn that begins; the run closes them. A turn that was taken over has `progress` instead, and
    reserves its lanes itself; `is_given_up`: its open sides only fail. Made by TurnRunner, which runs `run` in a task.
    All methods belong to the event loop of that task.
    """

    def __init__(
        self,
        battle: Battle,
        begun: BegunTurn,
        asked: StoredTurn,
        writer: TurnWriter,
        tools: TurnTools,
        *,
        lanes: Mapping[Side, Lane] | None = None,
        progress: Mapping[Side, SideProgress] | None = None,
        is_given_up: bool = False,
    ) -> None:
        self.begun = begun
        self._battle = battle
        self._asked = asked
        self._writer = writer
        self._tools = tools
        self._may_redraw = battle.may_redraw
        self._failures: dict[Side, ErrorDetail] = {}  #: sides that have failed, in this order
        self._is_given_up = is_given_up
        self._admission = TurnAdmission(battle.sides, writer.open)
        self._notes = TurnNotes(tools.trails, begun)
        self._stop = asyncio.Event()
        self._is_awake = asyncio.Event()  #: the sides may begin
        self._not_woken: dict[WorkerId, ApiError] = {}
        self._sides: dict[Side, SideRun] = {}
        for side, stored in battle.sides.items():
            if progress is None:
                answer = SideAnswer(lanes[side] if lanes else None, stored)
            else:
                answer = self._resumed(side, stored, progress[side])
            self._sides[side] = SideRun(
                side, answer, battle, begun, asked, writer, tools, self._notes, self._admission.note_accepted
            )

    def _resumed(self, side: Side, stored: StoredSide, progress: SideProgress) -> SideAnswer:
        self._writer.resume(side, progress)
        if progress.error is not None:
            self._failures[side] = progress.error
        return SideAnswer.resumed(stored, progress)

    async def admitted(self) -> None:
        """Return once events may be read. Raises ApiError if the workers refused the turn before that."""
        await self._admission.wait()
        if self._tools.pace_of(self._battle) > 0:  # how soon two workers have accepted would tell which they are
            await asyncio.sleep(-self._notes.elapsed_ms() / 1000 % ADMISSION_STEP_S)

    def stop(self) -> None:
        """End both answers now and keep their text so far."""
        self._stop.set()

    async def run(self) -> None:
        """The whole turn, or the rest of it. Cancelling it releases the turn."""
        self._admission.begin(self._tools.admission_wait_s)
        if self._is_taken_over:
            self._admission.open()
        flusher = asyncio.create_task(self._writer.run())
        result = "lost"
        try:
            result = await self._until_over(flusher)
        except (OwnershipLost, ApiError) as error:
            self._notes.lost(error)
        except asyncio.CancelledError:
            result = await self._release()
            raise
        finally:
            self._tools.metrics.turns.labels(result).inc()
            self._notes.ended(result)
            for answer in self._answers.values():
                await answer.close()
            self._admission.open()

    async def _until_over(self, flusher: "asyncio.Task[None]") -> str:
        """Run both answers and end the turn. Returns how it ended."""
        waking = asyncio.create_task(self._wake())
        answers = [asyncio.create_task(self._answer(side)) for side in self._open_sides()]
        stops = [asyncio.create_task(event.wait()) for event in (self._stop, self._writer.stop_asked)]
        shown = [asyncio.create_task(self._writer.shown(side)) for side in self._sides]
        try:
            refusal = await self._watch(answers, stops, flusher)
            if refusal is None:
                await self._watch(shown, stops, flusher)
        finally:
            await cancel(waking, *answers, *shown, *stops, flusher)
        if refusal is not None:
            return await self._end_refused(refusal)
        return await (self._end_dropped() if self._failures and self._replaces_answers else self._end_kept())

    async def _watch(
        self,
        answers: "Sequence[asyncio.Task[object]]",
        stops: "Sequence[asyncio.Task[object]]",
        flusher: "asyncio.Task[None]",
    ) -> _SideFailed | None:
        """Wait until both answers have ended or a stop was asked for; a refused turn ends the wait with its failure."""
        waiting: set[asyncio.Task[object]] = {*answers, *stops, flusher}
        while not (all(task.done() for task in answers) or any(task.done() for task in stops)):
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                refusal = await self._settle(task)
                if refusal is not None:
                    return refusal
        return None

    async def _settle(self, task: "asyncio.Task[object]") -> _SideFailed | None:
        """Handle the failure of a task that is done. Returns it if it refuses the turn; otherwise only its side fails,
        and the other one continues to its own end."""
        try:
            await task
        except _SideFailed as failure:
            if self._is_refusal(failure):
                return failure
            await self._fail_side(failure)
        return None

    async def _wake(self) -> None:
        """Bring the models into memory where they sleep; then both sides begin together."""
        workers = [answer.lane.worker for answer in self._answers.values() if answer.lane is not None]
        is_even = self._tools.pace_of(self._battle) > 0
        try:
            if workers and self._tools.waking.is_needed(workers, is_even=is_even):
                self._writer.event("waking", WakingEvent())
                self._admission.open()
                self._not_woken = await self._tools.waking.wake(workers, is_even=is_even)
        finally:
            self._is_awake.set()

    async def _answer(self, side: Side) -> None:
        run = self._sides[side]
        await self._is_awake.wait()
        if self._is_given_up:
            raise _SideFailed(side, ApiError(ErrorCode.WORKER_FAILED, "The turn was left too long or too often."))
        while True:
            try:
                self._check_awake(run.answer)
                await run.relay()
                return
            except ApiError as error:
                if run.answer.has_begun or not await self._redraw(side, run.answer):
                    raise _SideFailed(side, error) from None

    def _check_awake(self, answer: SideAnswer) -> None:
        """Raise ApiError where the side's model could not be woken."""
        lane = answer.lane
        if lane is not None and (error := self._not_woken.pop(lane.worker.worker_id, None)) is not None:
            raise error

    async def _redraw(self, side: Side, answer: SideAnswer) -> bool:
        """Give a side without a token another model, once in a battle. Returns whether that was possible."""
        if not self._may_redraw:
            return False
        self._may_redraw = False
        opponent = self._sides["b" if side == "a" else "a"].answer.stored.model
        drawn = self._tools.matchmaker.redraw(opponent, excluded=answer.stored.model)
        if drawn is None:
            return False
        try:
            [lane] = await self._tools.dispatcher.reserve([Wish(drawn.model)], self._tools.kind)
        except ApiError:
            return False
        await answer.close()
        answer.lane = lane
        answer.stored = StoredSide(drawn.model, drawn.revision, None)
        changes = {**side_fields(side, answer.stored), "redraws": "1", "probability": repr(drawn.probability)}
        self._writer.restarted(side, changes)
        self._notes.redrawn(side, answer)
        return True

    async def _fail_side(self, failure: _SideFailed) -> None:
        """The turn counts for nothing now, but the other side can still be read to its end."""
        answer = self._sides[failure.side].answer
        self._notes.side("failed", failure.side, answer, reason=failure.error.code.value)
        detail = neutral(failure.error).body().error
        self._failures[failure.side] = detail
        self._writer.end_side(failure.side, "failed", FailedEvent(side=failure.side, error=detail))
        self._admission.open()
        await answer.close()

    def _finish_open_sides(self) -> None:
        """End the streams of sides that were stopped: with the text that has been shown."""
        for side, run in self._sides.items():
            if side not in self._failures:
                run.cut_unshown()
        for side in self._open_sides():
            self._sides[side].finish("abort", None)

    async def _end_kept(self) -> str:
        """Keep the turn with its answers. One that has failed counts for nothing and may be answered again."""
        self._finish_open_sides()
        shown_ms = {side: self._writer.shown_ms(side) for side in self._sides}
        last = answered_turn(self._asked, self._answers, self._failures, shown_ms)
        changes = changes_of(self.begun.turn, last, self._answers)
        if self._battle.is_votable and not self._is_given_up:  # its text may be what has ended its controllers
            changes |= await facts_for_vote(self._battle, self.begun.turn, last, self._tools)
        self._writer.event("turn_finished", TurnFinishedEvent(turn=self.begun.turn, state="answered"))
        await self._writer.end("finish", changes)
        if last.has_failed:
            return "failed"
        return "stopped" if "abort" in (last.a.finish_reason, last.b.finish_reason) else "finished"

    async def _end_dropped(self) -> str:
        """Nothing is lost when good answers were to be replaced and a side failed: the battle keeps them."""
        self._finish_open_sides()
        self._writer.event("turn_finished", TurnFinishedEvent(turn=self.begun.turn, state="answered", is_kept=False))
        await self._writer.end("refuse", {})
        return "failed"

    def _is_refusal(self, failure: _SideFailed) -> bool:
        """Whether the failure refuses the whole turn, which is then discarded."""
        is_refusal = neutral(failure.error).code in REFUSALS
        return is_refusal and not self._failures and not self._sides[failure.side].answer.has_begun

    async def _end_refused(self, failure: _SideFailed) -> str:
        """Discard the turn. `admitted` raises the refusal, unless events may be read already."""
        self._admission.close()
        answer = self._sides[failure.side].answer
        self._notes.side("refused", failure.side, answer, reason=failure.error.code.value)
        shown = neutral(failure.error)
        state: BattleState = "answered" if self._battle.turns else "open"
        self._writer.event("failed", FailedEvent(side=failure.side, error=shown.body().error))
        self._writer.event("turn_finished", TurnFinishedEvent(turn=self.begun.turn, state=state, is_kept=False))
        await self._writer.end("refuse", {})
        self._admission.refuse(shown)
        return "refused"

    async def _release(self) -> str:
        """Write what there is and give up the ownership: another controller, or the next one here, goes on."""
        try:
            await self._writer.end("release", {})
        except (OwnershipLost, ApiError) as error:
            self._notes.lost(error)
            return "lost"
        return "released"

    @property
    def _replaces_answers(self) -> bool:
        """Whether the turn had good answers before."""
        before = self._battle.turns[self.begun.turn - 1 : self.begun.turn]
        return any(not turn.has_failed for turn in before)

    @property
    def _answers(self) -> dict[Side, SideAnswer]:
        return {side: run.answer for side, run in self._sides.items()}

    @property
    def _is_taken_over(self) -> bool:
        return all(answer.lane is None for answer in self._answers.values())

    def _open_sides(self) -> tuple[Side, ...]:
        """Sides whose streams have not ended."""
        return tuple(
            side
            for side, answer in self._answers.items()
            if answer.finish_reason is None and side not in self._failures
        )
