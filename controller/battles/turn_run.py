"""One turn of a battle while it runs: two independent answers, one event stream, one end. A turn of a chat has one.

It is a background task of the controller that owns the turn. It needs no connected browser, and it ends by itself
because every answer has a limit. It ends in exactly one way: finished, stopped, refused (the turn is forgotten),
failed, or released: then another controller goes on where the written events end, as it does after a `kill -9`.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from controller.battles.battle_record import Battle, StoredAnswer, StoredSide, StoredTurn, side_fields
from controller.battles.battle_store import BegunTurn
from controller.battles.identity_guard import IdentityGuard
from controller.battles.matchmaking import Matchmaker
from controller.battles.neutral_errors import REFUSALS, neutral
from controller.battles.side_answer import SideAnswer
from controller.battles.trails import Trails
from controller.battles.turn_progress import SideProgress
from controller.battles.turn_writer import TurnWriter
from controller.errors import OwnershipLost
from controller.metrics import Metrics
from controller.workers.congestion import Kind
from controller.workers.dispatch import Dispatcher, Lane, Wish
from controller.workers.relay import Relay
from controller.workers.routing_table import Worker
from controller.workers.upstream import AnswerEvent, Opened, Trouble
from controller.workers.waking import Waking
from service_kit.cancellation import cancel
from service_kit.logs import log_event, short
from wire.answers import Delta, Finished
from wire.battles import BattleState, FailedEvent, FinishedEvent, Side, TurnFinishedEvent, WakingEvent
from wire.chat import ChatMessage, FinishReason, SamplingOptions, Usage
from wire.errors import ApiError, ErrorCode, ErrorDetail
from wire.ids import WorkerId
from wire.trails import Step
from wire.workers import GenerateRequest

ADMISSION_STEP_S = 0.25  #: a turn of hidden models is admitted at a whole number of these after it began
LANE_RETRY_S = 0.2  #: pause between two requests for a place at a worker, after a take-over
#: A place may become free, a worker may start again, or the routing table is not read yet.
_PASSING = frozenset({ErrorCode.QUEUE_FULL, ErrorCode.NO_WORKER, ErrorCode.STORE_UNAVAILABLE})

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TurnTools:
    """Collaborators and limits of every turn; made once in the composition root."""

    relay: Relay
    dispatcher: Dispatcher
    matchmaker: Matchmaker
    waking: Waking
    identity: IdentityGuard
    metrics: Metrics
    prompt_key: Callable[[str], str]
    cache_salt: Callable[[str, str], str]  #: of a battle id and its voter
    trails: Trails
    max_tokens: int  #: longest answer
    thinking_budget: int | None  #: most tokens of thoughts in it, the same for both sides; None: no such limit
    admission_wait_s: float  #: after this time events are sent even if a worker has not accepted yet
    replay_wait_s: float  #: longest wait for a place at a worker after a take-over
    kind: Kind = "battle"  #: of work at the workers
    paced: float = 0.0  #: characters a second at which both answers of an anonymous battle are shown; 0: as they come

    def pace_of(self, battle: Battle) -> float:
        """The speed of both answers of `battle`, 0: as they come."""
        return 0.0 if battle.names_are_known else self.paced


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
        self._answers: dict[Side, SideAnswer] = {}
        self._may_redraw = battle.may_redraw
        self._accepted: set[Side] = set()  #: sides whose worker has accepted the request
        self._failures: dict[Side, ErrorDetail] = {}  #: sides that have failed, in this order
        self._is_given_up = is_given_up
        self._admission: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        self._is_awake = asyncio.Event()  #: the sides may begin
        self._not_woken: dict[WorkerId, ApiError] = {}
        self._started = time.monotonic() - begun.age_s
        for side in battle.sides:
            if progress is None:
                self._answers[side] = SideAnswer(lanes[side] if lanes else None, battle.sides[side])
            else:
                self._resume_side(side, progress[side])

    def _resume_side(self, side: Side, progress: SideProgress) -> None:
        self._answers[side] = SideAnswer.resumed(self._battle.sides[side], progress)
        self._writer.resume(side, progress)
        if progress.error is not None:
            self._failures[side] = progress.error

    async def admitted(self) -> None:
        """Return once events may be read. Raises ApiError if the workers refused the turn before that."""
        await asyncio.shield(self._admission)
        if self._tools.pace_of(self._battle) > 0:  # how soon two workers have accepted would tell which they are
            await asyncio.sleep(-self._elapsed_ms() / 1000 % ADMISSION_STEP_S)

    def stop(self) -> None:
        """End both answers now and keep their text so far."""
        self._stop.set()

    async def run(self) -> None:
        """The whole turn, or the rest of it. Cancelling it releases the turn."""
        loop = asyncio.get_running_loop()
        self._admission_timer = loop.call_later(self._tools.admission_wait_s, self._open)
        if self._is_taken_over:
            self._open()
        flusher = asyncio.create_task(self._writer.run())
        result = "lost"
        try:
            result = await self._until_over(flusher)
        except (OwnershipLost, ApiError) as error:
            self._log_lost(error)
        except asyncio.CancelledError:
            result = await self._release()
            raise
        finally:
            for answer in self._answers.values():
                await answer.close()
            self._open()
            self._tools.metrics.turns.labels(result).inc()
            self._note("ended", reason=result, ms=round(self._elapsed_ms()))
            log_event(
                _logger,
                "turn_ended",
                battle=short(self.begun.battle_id),
                turn=self.begun.turn,
                result=result,
                ms=round(self._elapsed_ms()),
            )

    async def _until_over(self, flusher: "asyncio.Task[None]") -> str:
        """Run both answers and end the turn. Returns how it ended."""
        waking = asyncio.create_task(self._wake())
        answers = [asyncio.create_task(self._answer(side)) for side in self._open_sides()]
        stops = [asyncio.create_task(event.wait()) for event in (self._stop, self._writer.stop_asked)]
        shown = [asyncio.create_task(self._writer.shown(side)) for side in self._answers]
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
                self._open()
                self._not_woken = await self._tools.waking.wake(workers, is_even=is_even)
        finally:
            self._is_awake.set()

    async def _answer(self, side: Side) -> None:
        answer = self._answers[side]
        await self._is_awake.wait()
        if self._is_given_up:
            raise _SideFailed(side, ApiError(ErrorCode.WORKER_FAILED, "The turn was left too long or too often."))
        while True:
            try:
                await self._relay_answer(side, answer)
                return
            except ApiError as error:
                if answer.has_begun or not await self._redraw(side, answer):
                    raise _SideFailed(side, error) from None

    async def _relay_answer(self, side: Side, answer: SideAnswer) -> None:
        lane = answer.lane = answer.lane or await self._reserve_again(answer)
        if answer.has_begun and not (answer.is_resumable and lane.worker.card.can_resume):
            raise ApiError(ErrorCode.WORKER_FAILED, "This model cannot continue an answer.")
        if (error := self._not_woken.pop(lane.worker.worker_id, None)) is not None:
            raise error
        request = self._request(side, answer.stored, lane)

        def on_trouble(worker: Worker, trouble: Trouble, num_tokens: int) -> None:
            self._note_side("trouble", side, worker=worker.worker_id, reason=trouble.reason, tokens=num_tokens)

        relayed = self._tools.relay.answer(lane, request, emitted=answer.emitted, on_trouble=on_trouble)
        async with aclosing(relayed) as events:
            async for event in events:
                self._take(side, answer, event)
        await lane.close()  # the other side may take much longer

    async def _reserve_again(self, answer: SideAnswer) -> Lane:
        """A place for a side of a turn that was taken over. The leases of a dead controller last some time, and its
        worker may be starting again, so this waits."""
        give_up_at = time.monotonic() + self._tools.replay_wait_s
        wish = Wish(answer.stored.model, answer.stored.worker_id)
        while True:
            try:
                [lane] = await self._tools.dispatcher.reserve([wish], self._tools.kind)
                return lane
            except ApiError as error:
                if error.code not in _PASSING or time.monotonic() > give_up_at:
                    raise
            await asyncio.sleep(LANE_RETRY_S)

    def _request(self, side: Side, stored: StoredSide, lane: Lane) -> GenerateRequest:
        history = self._battle.history(side, self.begun.turn - 1)
        return GenerateRequest(
            request_id=self._request_id(side, stored),
            messages=(*history, ChatMessage(role="user", content=self._asked.content)),
            sampling=self._sampling(lane),
            cache_salt=self._tools.cache_salt(self._battle.battle_id, self._battle.owner.voter),
        )

    def _request_id(self, side: Side, stored: StoredSide) -> str:
        """Equal after a take-over: workers derive the seed of their draws from it, so the answer goes on unchanged."""
        name = f"{self.begun.battle_id} {self.begun.run} {side} {stored.model}"
        return hashlib.sha256(name.encode()).hexdigest()[:24]

    def _take(self, side: Side, answer: SideAnswer, event: AnswerEvent) -> None:
        """Handle one event of a worker. Called for every token."""
        match event:
            case Opened():
                self._note_side("accepted", side, request_id=self._request_id(side, answer.stored))
                self._accepted.add(side)
                if len(self._accepted) == len(self._answers):
                    self._open()
            case Delta(text, token_ids, thoughts):
                if answer.first_token_ms is None:
                    answer.first_token_ms = self._elapsed_ms()
                    self._writer.first_token(side, answer.first_token_ms)
                    self._note_side("first_token", side)
                answer.texts.append(text)
                answer.thoughts.append(thoughts)
                self._writer.delta(side, text, token_ids, thoughts)
            case Finished(finish_reason, usage, queue_s):
                queue_ms = None if queue_s is None else round(1000 * queue_s, 1)
                tokens = usage.completion_tokens
                self._note_side("finished", side, reason=finish_reason, queue_ms=queue_ms, tokens=tokens)
                self._finish_side(side, answer, finish_reason, usage)

    def _sampling(self, lane: Lane) -> SamplingOptions:
        chosen = self._battle.sampling
        limit = min(self._tools.max_tokens, max(1, lane.worker.card.context_length // 2))
        return SamplingOptions(
            max_tokens=min(chosen.max_tokens or limit, limit),
            temperature=chosen.temperature,
            top_p=chosen.top_p,
            # Another service would refuse a field that it does not know, and the answer with it.
            thinking_budget=None if lane.worker.card.runs_on == "remote" else self._tools.thinking_budget,
        )

    async def _redraw(self, side: Side, answer: SideAnswer) -> bool:
        """Give a side without a token another model, once in a battle. Returns whether that was possible."""
        if not self._may_redraw:
            return False
        self._may_redraw = False
        opponent = self._answers["b" if side == "a" else "a"].stored.model
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
        self._note_side("redrawn", side)
        log_event(_logger, "side_redrawn", battle=short(self.begun.battle_id))
        return True

    def _finish_side(self, side: Side, answer: SideAnswer, finish_reason: FinishReason, usage: Usage | None) -> None:
        answer.finish_reason, answer.usage, answer.total_ms = finish_reason, usage, self._elapsed_ms()
        shown = usage if self._battle.names_are_known else None
        private = {"total_ms": answer.total_ms, "usage": None if usage is None else usage.model_dump()}
        event = FinishedEvent(side=side, finish_reason=finish_reason, usage=shown)
        self._writer.end_side(side, "finished", event, private)

    async def _fail_side(self, failure: _SideFailed) -> None:
        """The turn counts for nothing now, but the other side can still be read to its end."""
        self._note_side("failed", failure.side, reason=failure.error.code.value)
        detail = neutral(failure.error).body().error
        self._failures[failure.side] = detail
        self._writer.end_side(failure.side, "failed", FailedEvent(side=failure.side, error=detail))
        self._open()
        await self._answers[failure.side].close()

    def _finish_open_sides(self) -> None:
        """End the streams of sides that were stopped: with the text that has been shown."""
        for side, answer in self._answers.items():
            dropped = None if side in self._failures else self._writer.cut(side)
            if dropped is not None:
                text = "".join(answer.texts)
                answer.texts = [text[: len(text) - dropped]]
                answer.finish_reason = answer.usage = answer.total_ms = None
        for side in self._open_sides():
            self._finish_side(side, self._answers[side], "abort", None)

    async def _end_kept(self) -> str:
        """Keep the turn with its answers. One that has failed counts for nothing and may be answered again."""
        self._finish_open_sides()
        last = self._stored_turn()
        changes = self._changes(last)
        if self._battle.is_votable:
            changes |= self._facts_for_vote(last)
        self._writer.event("turn_finished", TurnFinishedEvent(turn=self.begun.turn, state="answered"))
        await self._writer.end("finish", changes)
        if last.has_failed:
            return "failed"
        return "stopped" if "abort" in (last.a.finish_reason, last.b.finish_reason) else "finished"

    def _facts_for_vote(self, last: StoredTurn) -> dict[str, str]:
        """What a vote on the battle will have to know."""
        earlier = self._battle.turns[: self.begun.turn - 1]
        turns = (*earlier, last)
        facts = {"votable": "1" if any(turn.is_votable for turn in turns) else "0"}
        if all(turn.has_failed for turn in earlier):
            facts["prompt"] = self._tools.prompt_key(last.content)
        said = [text for answer in (last.a, last.b) for text in (answer.text, answer.thoughts) if text]
        if self._tools.identity.is_revealed(said, [turn.content for turn in turns]):
            facts["identity"] = "1"
        return facts

    async def _end_dropped(self) -> str:
        """Nothing is lost when good answers were to be replaced and a side failed: the battle keeps them."""
        self._finish_open_sides()
        self._writer.event("turn_finished", TurnFinishedEvent(turn=self.begun.turn, state="answered", is_kept=False))
        await self._writer.end("refuse", {})
        return "failed"

    def _is_refusal(self, failure: _SideFailed) -> bool:
        """Whether the failure refuses the whole turn, which is then discarded."""
        is_refusal = neutral(failure.error).code in REFUSALS
        return is_refusal and not self._failures and not self._answers[failure.side].has_begun

    async def _end_refused(self, failure: _SideFailed) -> str:
        """Discard the turn. `admitted` raises the refusal, unless events may be read already."""
        self._admission_timer.cancel()
        self._note_side("refused", failure.side, reason=failure.error.code.value)
        shown = neutral(failure.error)
        state: BattleState = "answered" if self._battle.turns else "open"
        self._writer.event("failed", FailedEvent(side=failure.side, error=shown.body().error))
        self._writer.event("turn_finished", TurnFinishedEvent(turn=self.begun.turn, state=state, is_kept=False))
        await self._writer.end("refuse", {})
        if not self._admission.done():
            self._admission.set_exception(shown)
            self._admission.exception()  # marks it as retrieved: the client may have disconnected
        return "refused"

    async def _release(self) -> str:
        """Write what there is and give up the ownership: another controller, or the next one here, goes on."""
        try:
            await self._writer.end("release", {})
        except (OwnershipLost, ApiError) as error:
            self._log_lost(error)
            return "lost"
        return "released"

    def _changes(self, last: StoredTurn) -> dict[str, str]:
        changes = {"state": "answered", f"turn:{self.begun.turn}": last.model_dump_json()}
        for side, answer in self._answers.items():
            if answer.lane is not None:
                changes.update(side_fields(side, replace(answer.stored, worker_id=answer.lane.worker.worker_id)))
        return changes

    @property
    def _replaces_answers(self) -> bool:
        """Whether the turn had good answers before."""
        before = self._battle.turns[self.begun.turn - 1 : self.begun.turn]
        return any(not turn.has_failed for turn in before)

    def _stored_turn(self) -> StoredTurn:
        stored: dict[str, StoredAnswer] = {
            side: self._answers[side]
            .to_store(self._writer.shown_ms(side))
            .model_copy(update={"error": self._failures.get(side)})
            for side in self._answers
        }
        return self._asked.model_copy(update=stored)

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

    def _note(self, step: Step, **fields: Any) -> None:
        self._tools.trails.note(self.begun.battle_id, step, turn=self.begun.turn, **fields)

    def _note_side(self, step: Step, side: Side, **fields: Any) -> None:
        answer = self._answers[side]
        worker = None if answer.lane is None else answer.lane.worker.worker_id
        model, ms = answer.stored.model, round(self._elapsed_ms(), 1)
        self._note(step, **{"side": side, "model": model, "worker": worker, "ms": ms, **fields})

    def _log_lost(self, error: Exception) -> None:
        battle = short(self.begun.battle_id)
        log_event(_logger, "turn_lost", logging.WARNING, battle=battle, error=type(error).__name__)

    def _open(self) -> None:
        """Admit the turn: its events may be read from now on. Idempotent."""
        self._admission_timer.cancel()
        if not self._admission.done():
            self._admission.set_result(None)
            self._writer.open()

    def _elapsed_ms(self) -> float:
        return (time.monotonic() - self._started) * 1000
