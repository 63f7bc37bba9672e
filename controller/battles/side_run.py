"""One side of a running turn: asks a worker for its answer, and writes what comes.

Knows nothing of the other side. TurnRun decides when it begins, and what its failure means.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable
from contextlib import aclosing

from controller.battles.battle_record import Battle, StoredTurn
from controller.battles.battle_store import BegunTurn
from controller.battles.side_answer import SideAnswer
from controller.battles.turn_notes import TurnNotes
from controller.battles.turn_tools import TurnTools
from controller.battles.turn_writer import TurnWriter
from controller.workers.dispatch import Lane, Wish
from controller.workers.routing_table import Worker
from controller.workers.upstream import AnswerEvent, Opened, Trouble
from wire.answers import Delta, Finished
from wire.battles import FinishedEvent, Side
from wire.chat import ChatMessage, FinishReason, SamplingOptions, Usage
from wire.errors import ApiError, ErrorCode
from wire.workers import GenerateRequest

LANE_RETRY_S = 0.2  #: pause between two requests for a place at a worker, after a take-over
#: A place may become free, a worker may start again, or the routing table is not read yet.
_PASSING = frozenset({ErrorCode.QUEUE_FULL, ErrorCode.NO_WORKER, ErrorCode.STORE_UNAVAILABLE})


class SideRun:
    """Owner of the answer of one side while the turn runs."""

    def __init__(
        self,
        side: Side,
        answer: SideAnswer,
        battle: Battle,
        begun: BegunTurn,
        asked: StoredTurn,
        writer: TurnWriter,
        tools: TurnTools,
        notes: TurnNotes,
        on_accepted: Callable[[Side], None],
    ) -> None:
        """on_accepted: called when a worker has accepted the request."""
        self.answer = answer
        self._side: Side = side
        self._battle = battle
        self._begun = begun
        self._asked = asked
        self._writer = writer
        self._tools = tools
        self._notes = notes
        self._on_accepted = on_accepted

    async def relay(self) -> None:
        """Write the answer of the side's model to its end. Raises ApiError."""
        answer = self.answer
        lane = answer.lane = answer.lane or await self._reserve_again()
        if answer.has_begun and not (answer.is_resumable and lane.worker.card.can_resume):
            raise ApiError(ErrorCode.WORKER_FAILED, "This model cannot continue an answer.")
        request = self._request(lane)

        def on_trouble(worker: Worker, trouble: Trouble, num_tokens: int) -> None:
            fields = {"worker": worker.worker_id, "reason": trouble.reason, "tokens": num_tokens}
            self._notes.side("trouble", self._side, answer, **fields)

        relayed = self._tools.relay.answer(
            lane, request, caller=self._battle.owner.address, emitted=answer.emitted, on_trouble=on_trouble
        )
        async with aclosing(relayed) as events:
            async for event in events:
                self._take(event)
        await lane.close()  # the other side may take much longer

    def finish(self, finish_reason: FinishReason, usage: Usage | None) -> None:
        """End the side's stream with the text that it has."""
        answer = self.answer
        answer.finish_reason, answer.usage, answer.total_ms = finish_reason, usage, self._notes.elapsed_ms()
        shown = usage if self._battle.names_are_known else None
        private = {"total_ms": answer.total_ms, "usage": None if usage is None else usage.model_dump()}
        event = FinishedEvent(side=self._side, finish_reason=finish_reason, usage=shown)
        self._writer.end_side(self._side, "finished", event, private)

    def cut_unshown(self) -> None:
        """Drop what readers have not been shown yet, with the end of the answer if it lies behind that."""
        dropped, answer = self._writer.cut(self._side), self.answer
        if dropped is not None:
            text = "".join(answer.texts)
            answer.texts = [text[: len(text) - dropped]]
            answer.finish_reason = answer.usage = answer.total_ms = None

    async def _reserve_again(self) -> Lane:
        """A place for a side of a turn that was taken over. The leases of a dead controller last some time, and its
        worker may be starting again, so this waits."""
        give_up_at = time.monotonic() + self._tools.replay_wait_s
        stored = self.answer.stored
        wish = Wish(stored.model, stored.worker_id)
        while True:
            try:
                [lane] = await self._tools.dispatcher.reserve([wish], self._tools.kind)
                return lane
            except ApiError as error:
                if error.code not in _PASSING or time.monotonic() > give_up_at:
                    raise
            await asyncio.sleep(LANE_RETRY_S)

    def _request(self, lane: Lane) -> GenerateRequest:
        history = self._battle.history(self._side, self._begun.turn - 1)
        return GenerateRequest(
            request_id=self._request_id(),
            messages=(*history, ChatMessage(role="user", content=self._asked.content)),
            sampling=self._sampling(lane),
            cache_salt=self._tools.cache_salt(self._battle.battle_id, self._battle.owner.voter),
        )

    def _request_id(self) -> str:
        """Equal after a take-over: workers derive the seed of their draws from it, so the answer goes on unchanged."""
        name = f"{self._begun.battle_id} {self._begun.run} {self._side} {self.answer.stored.model}"
        return hashlib.sha256(name.encode()).hexdigest()[:24]

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

    def _take(self, event: AnswerEvent) -> None:
        """Handle one event of a worker. Called for every token."""
        side, answer = self._side, self.answer
        match event:
            case Opened():
                self._notes.side("accepted", side, answer, request_id=self._request_id())
                self._on_accepted(side)
            case Delta(text, token_ids, thoughts):
                if answer.first_token_ms is None:
                    answer.first_token_ms = self._notes.elapsed_ms()
                    self._writer.first_token(side, answer.first_token_ms)
                    self._notes.side("first_token", side, answer)
                answer.texts.append(text)
                answer.thoughts.append(thoughts)
                self._writer.delta(side, text, token_ids, thoughts)
            case Finished(finish_reason, usage, queue_s):
                queue_ms = None if queue_s is None else round(1000 * queue_s, 1)
                tokens = usage.completion_tokens
                self._notes.side("finished", side, answer, reason=finish_reason, queue_ms=queue_ms, tokens=tokens)
                self.finish(finish_reason, usage)
