"""Which tokens the next step verifies: asks the proposer, and decides how many of its tokens pay. The one owner of that
decision.

The scheduler calls it between two steps: `propose` before a step is planned, `note_step` when one has been collected.
Knows neither pages nor plans under construction.
"""

import time
from collections.abc import Callable
from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass

from engine.batch import StepOutput, StepPlan, num_accepted
from engine.drafts.acceptance import Acceptance
from engine.drafts.costs import StepCosts
from engine.drafts.pace import LEAST_GAIN, Candidate, choose_lengths
from engine.drafts.payoff import Payoff
from engine.drafts.proposer import Proposal, Proposer, Wanted
from engine.request import Request, Sequence

#: With steps in flight, what a verification must gain at least: until it is collected its sequences cannot go on.
LEAST_GAIN_IN_FLIGHT = 1.3

#: With many rows a gain must be larger than what is expected wrongly: a row more costs nearly its share of the step.
_LEAST_GAIN_PER_ROW = 0.005

#: Least number of steps between two trials of a proposer that is not free and does not pay.
_STEPS_TO_TRIAL = 256

#: After so many rounds without a token that is worth verifying there are rounds now and then only: a round costs some
#: microseconds for each sequence. The pause is bounded, in steps, by the number of rows.
_MOST_FRUITLESS = 16
_PAUSE_PER_ROW = 2

#: A step may count as at most so many times what as many tokens take in steps without proposals, which is the most that
#: they can cost: other processes interrupt.
_MOST = 1.5

#: While no larger step has been seen, a step may have so many proposed tokens, or as many as the largest had tokens:
#: what tokens beyond cost is a guess.
_FIRST_DRAFTS = 4

#: Shortens proposed tokens of a sequence to those that its grammar allows.
AllowedDrafts = Callable[[int, tuple[int, ...]], tuple[int, ...]]


@dataclass(slots=True)
class DraftCounters:
    """Counts since the engine was made."""

    num_drafts: int = 0  #: verifications: proposals of which at least one token was verified
    num_draft_tokens: int = 0  #: tokens verified
    num_accepted_tokens: int = 0  #: of these, tokens that were right
    num_saved_steps: int = 0  #: steps that sequences did not need: accepted tokens, without those behind an end


@dataclass(slots=True)
class _Open:
    """A proposal whose tokens have not come yet."""

    position: int
    proposal: Proposal


class Speculation:
    """Owner of acceptance rates, step costs and the outcome of verification in one engine."""

    def __init__(
        self,
        proposer: Proposer,
        max_tokens: int,
        allowed: AllowedDrafts,
        *,
        has_steps_in_flight: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """max_tokens: most proposed tokens of one sequence in a step. allowed: see AllowedDrafts."""
        self.counters = DraftCounters()
        self._proposer = proposer
        self._max_tokens = max_tokens
        self._allowed = allowed
        self._least_gain = LEAST_GAIN_IN_FLIGHT if has_steps_in_flight else LEAST_GAIN
        self._acceptance = Acceptance(proposer.num_sources)
        self._costs = StepCosts()
        self._payoff = Payoff()
        self._clock = clock
        self._round_s = 0.0  # spent on proposals of the next step
        self._open: dict[int, _Open] = {}
        self._steps_to_trial = 0
        self._fruitless = 0  # rounds without a token that was worth verifying, one after the other
        self._pause = 0  # steps without a round

    def may_propose(self, num_rows: int) -> bool:
        """Whether a step of so many sequences can have proposals at all: asked first, in every step."""
        most = self._proposer.max_rows
        return not self._payoff.is_used_up and (most is None or num_rows <= most)

    def propose(
        self, decodes: ReadOnly[tuple[Request, Sequence]], num_rows: int, room: int
    ) -> dict[int, tuple[int, ...]]:
        """The tokens to verify, by sequence id; for sequences with none there is no entry.

        decodes: sequences that compute their newest token in the step and nothing more. num_rows: all sequences that
        compute one token. room: most proposed tokens of the step.
        """
        if self._pause or self._payoff.is_paused(num_rows):
            self._pause = max(0, self._pause - 1)
            return {}
        wanted = self._wanted(decodes, num_rows, room)
        if not wanted:
            return {}
        started = self._clock()
        drafts = self._propose(wanted, num_rows, room)
        self._note_round(num_rows, self._clock() - started, has_drafts=bool(drafts))
        return drafts

    def _propose(self, wanted: list[Wanted], num_rows: int, room: int) -> dict[int, tuple[int, ...]]:
        if not self._proposer.is_free:
            wanted = self._worth_asking(wanted, num_rows, room)
        proposals = self._proposer.propose(wanted)
        chosen = [self._note_proposal(each, proposal) for each, proposal in zip(wanted, proposals, strict=True)]
        lengths = [each.max_tokens for each in wanted]
        if self._proposer.is_free:
            candidates = [self._candidate(each, proposal) for each, proposal in zip(wanted, chosen, strict=True)]
            lengths = self._lengths(candidates, num_rows, room)
        return {
            each.sequence.sequence_id: proposal.token_ids[:length]
            for each, proposal, length in zip(wanted, chosen, lengths, strict=True)
            if proposal is not None and length
        }

    def waiting(self, pending: ReadOnly[tuple[Request, Sequence]], num_rows: int, room: int) -> set[int]:
        """Ids of the sequences that shall wait until the tokens of the step in flight are known, because verifying what
        follows these is expected to gain more than going on at once. pending: sequences that could go on."""
        if self._pause or self._payoff.is_paused(num_rows):
            self._pause = max(0, self._pause - 1)
            return set()
        wanted = self._wanted(pending, num_rows, room)
        started = self._clock()
        if self._proposer.is_free:
            proposals = self._proposer.propose(wanted)
            chosen = [self._note_proposal(each, proposal) for each, proposal in zip(wanted, proposals, strict=True)]
            candidates = [self._candidate(each, proposal) for each, proposal in zip(wanted, chosen, strict=True)]
        else:
            candidates = [self._unasked(each) for each in wanted]
        lengths = self._lengths(candidates, num_rows, room)
        self._note_round(num_rows, self._clock() - started, has_drafts=any(lengths))
        return {each.sequence.sequence_id for each, length in zip(wanted, lengths, strict=True) if length}

    def note_step(self, plan: StepPlan, output: StepOutput) -> None:
        """Learn from a collected step what it cost. Where it computed prompts beside, their cost is unknown: then the
        others count by what as many tokens usually cost, if any cost is known yet. Steps too large for proposals tell
        nothing."""
        most = self._proposer.max_rows
        if most is not None and len(plan.sequences) > most:
            return
        decodes = [
            (each, samples)
            for each, samples in zip(plan.sequences, output.samples, strict=True)
            if len(each.token_ids) == each.num_drafts + 1
        ]
        num_rows = len(decodes)
        num_tokens = num_rows + sum([each.num_drafts for each, _ in decodes])
        seconds = output.compute_s
        if num_rows == len(plan.sequences):
            self._costs.note(num_tokens, seconds)
            if num_tokens == num_rows:
                self._payoff.note_plain(num_rows, seconds)
                return
        elif num_tokens > num_rows and self._costs.largest:
            seconds = self._costs.seconds(num_tokens)
        else:
            return
        plain_s = self._costs.seconds(num_rows)
        seconds = min(seconds, _MOST * plain_s * num_tokens / num_rows) + self._round_s
        num_gained = num_rows + sum([num_accepted(each.drafts, samples) for each, samples in decodes])
        self._payoff.note_drafted(num_rows, num_gained, seconds, plain_s)
        self._round_s = 0.0

    def note_verified(self, num_drafts: int, num_accepted: int) -> None:
        """A verification has been committed."""
        self.counters.num_drafts += 1
        self.counters.num_draft_tokens += num_drafts
        self.counters.num_accepted_tokens += num_accepted

    def note_saved_step(self) -> None:
        """A sequence has got one token more than by a step without proposals."""
        self.counters.num_saved_steps += 1

    def free_pages(self) -> bool:
        """Give up the pages that proposals use; false where they use none."""
        return self._proposer.free_pages()

    def forget(self, sequence_id: int) -> None:
        """The sequence has ended."""
        self._open.pop(sequence_id, None)
        self._acceptance.forget(sequence_id)
        self._proposer.forget(sequence_id)

    def close(self) -> None:
        """Free what the proposer holds."""
        self._proposer.close()

    def _note_round(self, num_rows: int, seconds: float, *, has_drafts: bool) -> None:
        if has_drafts:
            self._round_s += seconds
        elif self._costs.largest:
            self._payoff.note_fruitless(seconds, self._costs.seconds(num_rows))
        self._fruitless = 0 if has_drafts else self._fruitless + 1
        if self._fruitless > _MOST_FRUITLESS:
            self._pause = min(_PAUSE_PER_ROW * num_rows, self._fruitless)

    def _worth_asking(self, wanted: list[Wanted], num_rows: int, room: int) -> list[Wanted]:
        """The sequences for which proposals are expected to pay, with as many tokens as do. Where they never do, one
        sequence is asked now and then, since its text may have become easier: seldom, and the more seldom the longer it
        is, because the proposer must compute it first."""
        lengths = self._lengths([self._unasked(each) for each in wanted], num_rows, room)
        if any(lengths):
            self._steps_to_trial = _STEPS_TO_TRIAL
            return [each._replace(max_tokens=length) for each, length in zip(wanted, lengths, strict=True) if length]
        self._steps_to_trial -= 1
        if self._steps_to_trial > 0 or not self._costs.is_known(num_rows):
            return []
        shortest = min(wanted, key=lambda each: len(each.sequence.token_ids))
        self._steps_to_trial = max(_STEPS_TO_TRIAL, 4 * len(shortest.sequence.token_ids))
        return [shortest._replace(max_tokens=min(2, shortest.max_tokens))]

    def _unasked(self, wanted: Wanted) -> Candidate:
        """A sequence whose proposal is not made yet."""
        return Candidate(self._acceptance.probability(wanted.sequence.sequence_id, 0), wanted.max_tokens)

    def _candidate(self, wanted: Wanted, proposal: Proposal | None) -> Candidate:
        if proposal is None:
            return Candidate(0.0, 0)
        probability = self._acceptance.probability(wanted.sequence.sequence_id, proposal.source)
        return Candidate(probability, len(proposal.token_ids))

    def _lengths(self, candidates: ReadOnly[Candidate], num_rows: int, room: int) -> list[int]:
        if not self._costs.is_known(num_rows):  # a step without proposals comes first, now and then
            return [0] * len(candidates)
        seconds_per_draft = self._proposer.seconds_per_token()
        if seconds_per_draft is None:  # not measured yet: a trial will tell
            return [0] * len(candidates)
        room = min(room, max(_FIRST_DRAFTS, self._costs.largest))
        least_gain = max(self._least_gain, 1.0 + _LEAST_GAIN_PER_ROW * num_rows)
        return choose_lengths(candidates, num_rows, room, self._costs.seconds, seconds_per_draft, least_gain)

    def _wanted(self, decodes: ReadOnly[tuple[Request, Sequence]], num_rows: int, room: int) -> list[Wanted]:
        wanted: list[Wanted] = []
        if self._proposer.max_rows is not None and num_rows > self._proposer.max_rows:
            return wanted
        for request, sequence in decodes:
            # The token sampled after the last proposed one is the sequence's, too.
            num_left = request.max_length - len(sequence.token_ids) - 1
            if num_left > 0 and room > 0:
                wanted.append(Wanted(request, sequence, min(self._max_tokens, num_left, room)))
        return wanted

    def _note_proposal(self, wanted: Wanted, proposal: Proposal | None) -> Proposal | None:
        """See how the last proposal did, and remember this one, as far as its tokens can come at all."""
        tokens, sequence_id = wanted.sequence.token_ids, wanted.sequence.sequence_id
        last = self._open.pop(sequence_id, None)
        if last is not None and len(tokens) > last.position:
            self._acceptance.note(sequence_id, last.proposal.source, last.proposal.token_ids, tokens[last.position :])
        if proposal is None:
            return None
        token_ids = proposal.token_ids
        stop_ids = wanted.request.stop_ids
        for place, token_id in enumerate(token_ids):
            if token_id in stop_ids:  # nothing follows it
                token_ids = token_ids[:place]
                break
        token_ids = self._allowed(sequence_id, token_ids)
        if not token_ids:
            return None
        proposal = Proposal(token_ids, proposal.source)
        self._open[sequence_id] = _Open(len(tokens), proposal)
        return proposal
