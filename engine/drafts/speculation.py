"""Which tokens the next step verifies: asks the proposer, and decides how many of its tokens pay. The one owner of that
decision.

The scheduler calls it between two steps: `propose` before a step is planned, `note_step` when one has been collected.
Knows neither pages nor plans under construction.
"""

import math
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

#: Least number of steps between two trials of a proposer that is not free and does not pay, and the most that such
#: trials may take of the time of the steps between them.
_STEPS_TO_TRIAL = 256
_SHARE_OF_TRIALS = 0.0025

#: After so many rounds without a token that is worth verifying one step passes between two rounds, after as many again
#: two steps, and so on, until rounds take no more than this share of the time or are this many steps apart.
_MOST_FRUITLESS = 16
_SHARE_OF_ROUNDS = 0.0025
_MOST_STEPS_TO_ROUND = 64

#: A step may count as at most so many times what as many tokens usually take, and what they take in steps without
#: proposals, which is the most that they can cost: other processes interrupt.
_MOST = 1.5

#: The kernels of a step find less in the caches of the processor after a round of this thread. With raven that cost as
#: much as the round again at one sequence (30 us), and hardly more at eight: so it counts as one sequence's part of it.
_COST_IN_CACHES = 1.0

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
        clock: Callable[[], float] | None = None,
    ) -> None:
        """max_tokens: most proposed tokens of one sequence in a step. allowed: see AllowedDrafts. clock: measures
        rounds; None: the time of this thread, in which other processes do not count, or, where the proposer computes
        in other threads too, that of the machine."""
        self.counters = DraftCounters()
        self._proposer = proposer
        self._max_tokens = max_tokens
        self._allowed = allowed
        self._least_gain = LEAST_GAIN_IN_FLIGHT if has_steps_in_flight else LEAST_GAIN
        self._acceptance = Acceptance(proposer.num_sources)
        self._costs = StepCosts()
        self._payoff = Payoff()
        self._clock = clock or (time.thread_time if proposer.is_free else time.perf_counter)
        self._cost_in_caches = _COST_IN_CACHES if proposer.is_free else 0.0  # else most time is the draft model's
        self._most_rows: float = math.inf if proposer.max_rows is None else proposer.max_rows
        self._num_in_flight = 2 if has_steps_in_flight else 1
        self._step = 0  # number of the step that is planned
        self._next_round = 0  # the first step that may have proposals
        self._last_round = 0  # the last one that might have had some
        self._next_trial = 0  # the first step that may try a proposer that does not pay
        self._is_trial = False
        self._num_to_note = 0  # steps that were planned and shall be learnt from
        self._round_started = 0.0
        self._spent_s = 0.0  # on proposals of steps that have not been noted yet
        self._fruitless = 0  # rounds without a token that was worth verifying, one after the other
        self._open: dict[int, _Open] = {}

    def may_propose(self, num_rows: int) -> bool:
        """Whether a step of so many sequences can have proposals; asked once for each step. Where it cannot, `propose`
        and `waiting` are not called for it. One comparison while nothing is to be proposed."""
        self._step += 1
        if self._step < self._next_round:
            return False
        if num_rows > self._most_rows or self._payoff.is_paused(num_rows, self._step):
            return False
        self._begin_round(num_rows)
        return True

    def propose(
        self, decodes: ReadOnly[tuple[Request, Sequence]], num_rows: int, room: int
    ) -> dict[int, tuple[int, ...]]:
        """The tokens to verify, by sequence id; for sequences with none there is no entry.

        decodes: sequences that compute their newest token in the step and nothing more. num_rows: all sequences that
        compute one token. room: most proposed tokens of the step.
        """
        wanted = self._wanted(decodes, room)
        drafts = self._propose(wanted, num_rows, room) if wanted else {}
        self._end_round(num_rows, has_drafts=bool(drafts))
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
        wanted = self._wanted(pending, room)
        if self._proposer.is_free:
            proposals = self._proposer.propose(wanted)
            chosen = [self._note_proposal(each, proposal) for each, proposal in zip(wanted, proposals, strict=True)]
            candidates = [self._candidate(each, proposal) for each, proposal in zip(wanted, chosen, strict=True)]
        else:
            candidates = [self._unasked(each) for each in wanted]
        lengths = self._lengths(candidates, num_rows, room)
        self._end_round(num_rows, has_drafts=any(lengths))
        return {each.sequence.sequence_id for each, length in zip(wanted, lengths, strict=True) if length}

    def note_step(self, plan: StepPlan, output: StepOutput) -> None:
        """Learn from a collected step what it cost. Where it computed prompts beside, their cost is unknown: then the
        others count by what as many tokens usually cost, if any cost is known yet. One comparison while nothing is to
        be proposed."""
        if not self._num_to_note:
            return
        self._num_to_note -= 1
        started = self._clock()
        decodes = [
            (each, samples)
            for each, samples in zip(plan.sequences, output.samples, strict=True)
            if len(each.token_ids) == each.num_drafts + 1
        ]
        num_rows = len(decodes)
        num_tokens = num_rows + sum([each.num_drafts for each, _ in decodes])
        seconds = output.compute_s
        if num_rows == len(plan.sequences):
            seconds = min(seconds, _MOST * self._costs.note(num_tokens, seconds))
        elif num_tokens > num_rows and self._costs.largest:
            seconds = self._costs.seconds(num_tokens)
        else:
            return
        plain_s = self._costs.seconds(num_rows)
        spent_s = (1.0 + self._cost_in_caches / max(1, num_rows)) * (self._spent_s + self._clock() - started)
        if num_tokens == num_rows:
            self._payoff.note_plain(plain_s, spent_s)
        else:
            seconds = min(seconds, _MOST * plain_s * num_tokens / num_rows) + spent_s
            num_gained = num_rows + sum([num_accepted(each.drafts, samples) for each, samples in decodes])
            self._payoff.note_drafted(num_rows, num_gained, seconds, plain_s, self._step)
        self._spent_s = 0.0
        num_closed = self._payoff.num_closed_steps(plain_s)
        if num_closed:
            self._next_round = self._step + 1 + num_closed

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

    def _begin_round(self, num_rows: int) -> None:
        """Steps in between are not noted one by one: they count with the expected cost."""
        self._round_started = self._clock()
        num_between = self._step - self._last_round - 1
        self._last_round = self._step
        self._num_to_note = self._num_in_flight
        if num_between and self._costs.largest:
            self._payoff.note_plain(self._costs.seconds(num_rows), num_steps=num_between)
            self._costs.note_others(num_between)

    def _end_round(self, num_rows: int, *, has_drafts: bool) -> None:
        now = self._clock()
        seconds, self._round_started = now - self._round_started, now
        self._spent_s += seconds
        if self._is_trial:
            num_steps = seconds / (_SHARE_OF_TRIALS * self._costs.seconds(num_rows))
            self._next_trial = self._step + int(max(_STEPS_TO_TRIAL, num_steps))
            self._is_trial = False
        if has_drafts:
            self._fruitless = 0
        elif self._costs.is_known(num_rows):  # else nothing could be found
            self._fruitless += 1
            num_steps = seconds / (_SHARE_OF_ROUNDS * self._costs.seconds(num_rows))
            num_steps = min(num_steps, self._fruitless // _MOST_FRUITLESS, _MOST_STEPS_TO_ROUND)
            self._next_round = self._step + 1 + int(num_steps)

    def _worth_asking(self, wanted: list[Wanted], num_rows: int, room: int) -> list[Wanted]:
        """The sequences for which proposals are expected to pay, with as many tokens as do. Where they never do, one
        sequence is asked now and then, since its text may have become easier: seldom, and the more seldom the longer it
        is, because the proposer must compute it first."""
        lengths = self._lengths([self._unasked(each) for each in wanted], num_rows, room)
        if any(lengths):
            self._next_trial = self._step + _STEPS_TO_TRIAL
            return [each._replace(max_tokens=length) for each, length in zip(wanted, lengths, strict=True) if length]
        if self._step < self._next_trial or not self._costs.is_known(num_rows):
            return []
        shortest = min(wanted, key=lambda each: len(each.sequence.token_ids))
        self._is_trial = True
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

    def _wanted(self, decodes: ReadOnly[tuple[Request, Sequence]], room: int) -> list[Wanted]:
        wanted: list[Wanted] = []
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
            position, expected = last.position, last.proposal.token_ids
            came = tokens[position : position + len(expected)]
            self._acceptance.note(sequence_id, last.proposal.source, expected, came)
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
