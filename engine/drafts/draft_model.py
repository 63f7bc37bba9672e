"""Proposals of a smaller model with the same tokenizer, whose pages lie in the same pool as those of the model itself.

The smaller model samples with the parameters, the seed and the counters of the request, so it draws the same random
numbers as the model will: where their distributions are alike, so are the tokens. Its sequences follow those of the
model: they compute what these have gained, go back behind tokens that were wrong, find their prompts in the prefix
cache and give their pages up when the model needs room.
"""

import time
from collections.abc import Callable
from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass, field
from typing import Protocol

from engine.batch import NO_TOKEN, PageCopy, PageTableUpdate, ScheduledSequence, StepOutput, StepPlan
from engine.config import ModelLimits
from engine.drafts.costs import RoundCosts
from engine.drafts.proposer import Proposal, Wanted
from engine.memory.growth import NOTHING_CHANGED, Extension
from engine.memory.kv_cache import KVCache
from engine.request import Request, Sequence
from engine.sampling_params import SamplingParams

#: Steps without proposals after the model needed the pages.
_PAUSE = 64
#: A sequence that is so many tokens behind computes a prompt.
_PROMPT = 32
#: Most rows of a step beside which the smaller model runs; beyond, its steps cost more than they save.
MOST_ROWS = 8


class DraftRunner(Protocol):
    """What is needed of the smaller model's runner, whose steps are collected as soon as they are launched."""

    @property
    def limits(self) -> ModelLimits:
        """Context length and vocabulary size."""
        ...

    def launch(self, plan: StepPlan) -> None:
        """Start a step."""
        ...

    def collect(self) -> StepOutput:
        """Its output."""
        ...

    def close(self) -> None:
        """Free the memory."""
        ...


@dataclass(slots=True)
class _Follower:
    """A sequence of the smaller model."""

    slot: int
    params: SamplingParams
    num_computed: int = 0  #: tokens of the sequence that are in pages
    guessed: tuple[int, ...] = ()  #: proposed tokens after them that are in pages, too
    has_pages: bool = False
    is_table_sent: bool = False


@dataclass(slots=True)
class _Round:
    """A sequence that proposes now, and its tokens so far."""

    wanted: Wanted
    follower: _Follower
    drafts: list[int] = field(default_factory=list)


class DraftModel:
    """Owner of the smaller model's runner, its page cache and its sequences."""

    num_sources = 1
    is_free = False

    def __init__(
        self,
        name: str,
        runner: DraftRunner,
        cache: KVCache,
        *,
        max_running: int,
        max_step_tokens: int,
        vocab_size: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """max_running: slots of the runner. max_step_tokens: most tokens of one of its steps. vocab_size: of the model
        that proposals are for."""
        self.name = name
        self._runner = runner
        self._cache = cache
        self._type_names = [layer_type.name for layer_type in cache.plan.types]
        self._max_step_tokens = max_step_tokens
        self._vocab_size = vocab_size
        self._clock = clock
        self._free_slots = list(range(max_running - 1, -1, -1))
        self._followers: dict[int, _Follower] = {}
        self._step = 0
        self._pause = 0
        self._costs = RoundCosts()

    @property
    def max_rows(self) -> int:
        """See MOST_ROWS."""
        return MOST_ROWS

    def propose(self, wanted: ReadOnly[Wanted]) -> list[Proposal | None]:
        """See Proposer. A sequence whose tokens take more than one step to compute has no proposal yet."""
        if self._pause:
            self._pause -= 1
            return [None] * len(wanted)
        started = self._clock()
        rounds: dict[int, _Round] = {}
        room = self._max_step_tokens
        for each in wanted:
            follower = self._follow(each)
            if follower is not None and room > 0:
                rounds[each.sequence.sequence_id] = _Round(each, follower)
                room -= min(room, len(each.sequence.token_ids) - follower.num_computed)
        behind = [len(each.wanted.sequence.token_ids) - each.follower.num_computed for each in rounds.values()]
        self._catch_up(list(rounds.values()))
        num_prompts, num_first = sum(count > _PROMPT for count in behind), 0
        if num_prompts:
            self._costs.note_prompts(num_prompts, self._clock() - started)
            started, num_first = self._clock(), sum(len(each.drafts) for each in rounds.values())
        depth = 1
        while going_on := [each for each in rounds.values() if depth <= len(each.drafts) < each.wanted.max_tokens]:
            self._compute([(each, len(each.wanted.sequence.token_ids) + depth) for each in going_on])
            depth += 1
        num_tokens = sum(len(each.drafts) for each in rounds.values()) - num_first
        if num_tokens:
            self._costs.note(num_tokens, self._clock() - started)
        return [self._proposal(rounds.get(each.sequence.sequence_id)) for each in wanted]

    def seconds_per_token(self) -> float | None:
        """See Proposer."""
        return self._costs.seconds_per_token

    def free_pages(self) -> bool:
        """See Proposer."""
        had_pages = False
        for sequence_id, follower in self._followers.items():
            if follower.has_pages:
                had_pages = True
                self._give_up(sequence_id, follower)
        if had_pages:
            self._pause = _PAUSE
        return had_pages

    def forget(self, sequence_id: int) -> None:
        """See Proposer."""
        follower = self._followers.pop(sequence_id, None)
        if follower is not None:
            self._free_slots.append(follower.slot)
            self._cache.close(sequence_id)

    def close(self) -> None:
        """See Proposer."""
        self._runner.close()

    # One round

    def _follow(self, wanted: Wanted) -> _Follower | None:
        """The follower of a sequence, which knows how many of its tokens are in pages; None: there is no room."""
        request, sequence = wanted.request, wanted.sequence
        tokens, sequence_id = sequence.token_ids, sequence.sequence_id
        longest = len(tokens) + wanted.max_tokens
        if longest > self._runner.limits.max_model_len:
            return None
        follower = self._followers.get(sequence_id)
        if follower is None:
            if not self._free_slots:
                return None
            self._cache.open(sequence_id, request.arrival, request.cache_salt)
            follower = self._followers[sequence_id] = _Follower(self._free_slots.pop(), _params_of(request))
        if not follower.has_pages:
            self._begin_step()
            num_hit = self._cache.admit(
                sequence_id, tokens, len(tokens) - 1, [longest], num_spare_pages=len(self._followers)
            )
            if num_hit is None:
                return None
            follower.num_computed, follower.has_pages = num_hit, True
        for guess, token in zip(follower.guessed, tokens[follower.num_computed :], strict=False):
            if guess != token:
                break
            follower.num_computed += 1
        # The newest token is computed again, because what follows it is sampled.
        follower.num_computed = min(follower.num_computed, len(tokens) - 1)
        follower.guessed = ()
        if max(tokens[follower.num_computed :]) >= self._runner.limits.vocab_size:
            return None
        return follower

    def _catch_up(self, rounds: list[_Round]) -> None:
        """Compute what the sequences have gained, as far as one step can; those that are complete sample."""
        room = self._max_step_tokens
        parts: list[tuple[_Round, int]] = []
        for each in rounds:
            start, target = each.follower.num_computed, len(each.wanted.sequence.token_ids)
            end = min(target, start + room)
            if end > start:
                parts.append((each, end))
                room -= end - start
        self._compute(parts)

    def _compute(self, parts: list[tuple[_Round, int]]) -> None:
        """One step: the tokens of each sequence up to a position, drafts included, and a sample behind all of them."""
        self._begin_step()
        updates: list[PageTableUpdate] = []
        copies: list[PageCopy] = []
        planned: list[tuple[_Round, ScheduledSequence]] = []
        for each, end in parts:
            scheduled = self._plan(each, end, updates, copies)
            if scheduled is not None:
                planned.append((each, scheduled))
        if not planned:
            return
        planned.sort(key=lambda pair: len(pair[1].token_ids) > 1)
        plan = StepPlan(self._step, tuple(updates), tuple(copies), tuple(scheduled for _, scheduled in planned))
        self._runner.launch(plan)
        self._cache.note_launch(self._step)
        output = self._runner.collect()
        self._cache.note_end(self._step)
        for (each, scheduled), samples in zip(planned, output.samples, strict=True):
            self._commit(each, scheduled)
            each.drafts += [sampled.token_id for sampled in samples if sampled.token_id != NO_TOKEN]

    def _plan(
        self, each: _Round, end: int, updates: list[PageTableUpdate], copies: list[PageCopy]
    ) -> ScheduledSequence | None:
        """None where there is no room."""
        follower, sequence = each.follower, each.wanted.sequence
        known = len(sequence.token_ids)
        start = follower.num_computed + len(follower.guessed)
        extension = self._cache.extend(sequence.sequence_id, start, end)
        if extension is None:
            return None
        self._send_table(sequence, follower, extension, updates)
        for copy in extension.copies:
            copies.append(PageCopy(self._type_names[copy.layer_type], copy.src, copy.dst))
        token_ids = tuple(sequence.token_ids[start:end]) if end <= known else (each.drafts[-1],)
        is_complete = end >= known
        return ScheduledSequence(
            sequence.sequence_id,
            follower.slot,
            token_ids,
            start,
            int(is_complete),
            follower.params,
            (sequence.seed,) if is_complete else (),
            end - sequence.num_prompt_tokens,
            num_prompt_tokens=sequence.num_prompt_tokens,
        )

    def _send_table(
        self, sequence: Sequence, follower: _Follower, extension: Extension, updates: list[PageTableUpdate]
    ) -> None:
        if not follower.is_table_sent:
            tables = self._cache.page_table(sequence.sequence_id)
            named = zip(self._type_names, tables, strict=True)
            updates += [PageTableUpdate(follower.slot, name, 0, pages) for name, pages in named]
            follower.is_table_sent = True
        elif extension is not NOTHING_CHANGED:
            for change in extension.changes:
                name = self._type_names[change.layer_type]
                updates.append(PageTableUpdate(follower.slot, name, change.start, change.pages))

    def _commit(self, each: _Round, scheduled: ScheduledSequence) -> None:
        follower, sequence = each.follower, each.wanted.sequence
        end = scheduled.start + len(scheduled.token_ids)
        if end <= len(sequence.token_ids):
            follower.num_computed = end
            self._cache.advance(sequence.sequence_id, sequence.token_ids, end)
        else:
            follower.guessed += scheduled.token_ids

    def _proposal(self, each: _Round | None) -> Proposal | None:
        if each is None:
            return None
        drafts = each.drafts[: each.wanted.max_tokens]
        for place, token_id in enumerate(drafts):
            if token_id >= self._vocab_size:  # a head with padding rows
                drafts = drafts[:place]
                break
        return Proposal(tuple(drafts), 0) if drafts else None

    def _begin_step(self) -> None:
        self._step += 1
        self._cache.begin_step(self._step)

    def _give_up(self, sequence_id: int, follower: _Follower) -> None:
        self._cache.free(sequence_id)
        follower.num_computed, follower.guessed = 0, ()
        follower.has_pages = follower.is_table_sent = False


def _params_of(request: Request) -> SamplingParams:
    """The request's distribution as far as it depends on logits alone: penalties and constraints are the model's."""
    params = request.params
    return SamplingParams(
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        max_tokens=params.max_tokens,
        ignore_eos=True,
    )
