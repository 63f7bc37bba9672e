"""What a collected step means for its sequences: tokens computed, samples received, prompts forked, beams advanced.

The scheduler calls this when a step has been collected. Knows neither slots nor queues.
"""

from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

from engine.batch import NO_TOKEN, SampledToken, ScheduledSequence, SequenceId, StepOutput, StepPlan, num_accepted
from engine.drafts.speculation import Speculation
from engine.memory.kv_cache import KVCache
from engine.request import Request, Sequence
from engine.scheduling.beam_search import BeamSearchState
from engine.scheduling.beams import Beams


class NewToken(NamedTuple):
    """A sequence has got a token in this step; the core appends it. A sequence whose proposed tokens were right has got
    several, in their order."""

    request: Request
    sequence: Sequence
    sampled: SampledToken


@dataclass(slots=True)
class CommittedStep:
    """What requests have gained by a step."""

    new_tokens: list[NewToken] = field(default_factory=list)
    advanced: list[tuple[Request, BeamSearchState]] = field(default_factory=list)  #: beam searches
    prompts_done: list[Request] = field(default_factory=list)  #: requests without output whose prompt is complete
    not_finite: list[Request] = field(default_factory=list)  #: requests that fail, after their new tokens

    def take(self, token: NewToken) -> None:
        """A sequence has got this token, or none: then its request fails."""
        if token.sampled.token_id == NO_TOKEN:
            self.not_finite.append(token.request)
        else:
            self.new_tokens.append(token)


class StepCommit:
    """Owner of which unfinished sequence a step's output belongs to."""

    def __init__(self, cache: KVCache, beams: Beams, speculation: Speculation | None) -> None:
        self._cache = cache
        self._beams = beams
        self._speculation = speculation
        self._by_id: dict[SequenceId, tuple[Request, Sequence]] = {}

    def open(self, request: Request, sequence: Sequence) -> None:
        """Steps may compute tokens of this sequence from now on."""
        self._by_id[sequence.sequence_id] = (request, sequence)

    def close(self, sequence: Sequence) -> None:
        """The sequence has ended: what steps in flight compute for it is dropped."""
        del self._by_id[sequence.sequence_id]

    def commit(self, plan: StepPlan, output: StepOutput) -> CommittedStep:
        """Advance all sequences of the step, publish full pages, fork completed prompts, advance beam searches."""
        assert output.step == plan.step
        committed = CommittedStep()
        advance = self._cache.advance
        read_of = zip(plan.sequences, output.samples, output.read or repeat(None), strict=bool(output.read))
        for scheduled, samples, read in read_of:
            assert len(samples) == scheduled.num_samples
            known = self._by_id.get(scheduled.sequence_id)
            if known is None:
                continue
            request, sequence = known
            if scheduled.num_drafts:
                for token in self._take_verified(request, sequence, scheduled, samples):
                    committed.take(token)
                continue
            num_computed = scheduled.start + len(scheduled.token_ids)
            advance(scheduled.sequence_id, sequence.token_ids, num_computed)
            if read is not None:
                assert request.reading is not None
                if read.has_nan:
                    committed.not_finite.append(request)
                    continue
                request.reading.take(read)
            if samples and request.params.beam is not None:
                sequence.num_pending -= 1
                if samples[0].token_id == NO_TOKEN:
                    committed.not_finite.append(request)
                    continue
                search = self._beams.take(request, sequence, samples[0])
                if search is not None:
                    committed.advanced.append((request, search))
                continue
            if not request.is_forked and num_computed >= request.num_prompt_tokens:
                self._fork(request, sequence)
            if not request.params.max_tokens and num_computed >= request.num_prompt_tokens:
                committed.prompts_done.append(request)
            if samples:
                receivers = (sequence,) if len(samples) == 1 else request.sequences
                for receiver, sampled in zip(receivers, samples, strict=True):
                    receiver.num_pending -= 1
                    committed.take(NewToken(request, receiver, sampled))
        return committed

    def _take_verified(
        self,
        request: Request,
        sequence: Sequence,
        scheduled: ScheduledSequence,
        samples: tuple[SampledToken, ...],
    ) -> list[NewToken]:
        """The tokens of a sequence whose proposed tokens were verified: those that were right, and one more. What was
        written of the others is not committed; later tokens overwrite it."""
        assert self._speculation is not None
        drafts = scheduled.drafts
        count = num_accepted(drafts, samples)
        self._speculation.note_verified(len(drafts), count)
        sequence.num_computed += count
        sequence.num_pending -= 1
        sequence.is_verifying = False
        self._cache.advance(scheduled.sequence_id, [*sequence.token_ids, *drafts[:count]], scheduled.start + 1 + count)
        return [NewToken(request, sequence, sampled) for sampled in samples[: count + 1]]

    def _fork(self, request: Request, leader: Sequence) -> None:
        """Start the other samples of a completed prompt: they share its pages."""
        for sequence in request.unfinished:
            if sequence is not leader:
                self._cache.fork(leader.sequence_id, sequence.sequence_id)
                sequence.num_computed = leader.num_computed
        request.is_forked = True
