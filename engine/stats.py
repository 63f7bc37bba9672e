"""An engine's counters, and the snapshot of them that other threads may read.

The core counts steps and requests here; scheduler and page cache are asked when a snapshot is taken. The counters are
for one thread; the snapshot is frozen and for any.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from engine.drafts.speculation import DraftCounters
from engine.memory.kv_cache import KVCache
from engine.memory.ledger import PagesByState, pages_by_state
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.swapper import Swapper

RATE_WINDOW_S = 5.0  #: seconds over which tokens_per_s is averaged


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot. Names ending in _total only grow, except the sizes pages_, kv_bytes_ and mirror_bytes_total.

    pages_ count small pages. With several layer types an empty large page counts as small pages of each, so only
    bytes add up then.
    """

    running: int = 0  #: requests
    running_sequences: int = 0
    waiting: int = 0  #: requests, preempted ones included
    swapped: int = 0  #: waiting requests whose pages are in the mirror
    queued_tokens: int = 0  #: prompt tokens of requests before their first step
    pages_used: int = 0
    pages_evictable: int = 0
    pages_empty: int = 0
    pages_total: int = 0  #: without the null page
    kv_bytes_used: int = 0
    kv_bytes_saved: int = 0  #: more bytes that would be used if no two sequences shared a page
    kv_bytes_evictable: int = 0
    kv_bytes_total: int = 0  #: the whole pool
    types: tuple[PagesByState, ...] = ()
    mirror_bytes_used: int = 0
    mirror_bytes_total: int = 0  #: the whole mirror; 0: preempted requests are always recomputed
    prompt_tokens_total: int = 0
    generation_tokens_total: int = 0
    prefix_query_tokens_total: int = 0
    prefix_hit_tokens_total: int = 0
    preemptions_total: int = 0
    swap_preemptions_total: int = 0  #: preemptions that moved pages to the mirror; the others are recomputed
    swapped_bytes_total: int = 0  #: out and in together
    page_copies_total: int = 0
    steps_total: int = 0
    finished_total: int = 0  #: requests that ended by themselves
    aborted_total: int = 0
    draft_proposals_total: int = 0  #: verifications of proposed tokens
    draft_tokens_total: int = 0  #: proposed tokens that were verified
    accepted_draft_tokens_total: int = 0  #: of these, tokens that were right
    saved_steps_total: int = 0  #: steps that sequences did not need, because proposed tokens were right
    tokens_per_s: float = 0.0  #: output tokens over the last few seconds


class Tally:
    """Owner of the core's own counters."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.num_prompt_tokens = 0
        self.num_finished = 0
        self.num_aborted = 0
        self._clock = clock
        self._num_steps = 0
        self._num_generated = 0
        self._recent: deque[tuple[float, int]] = deque()  # (time, output tokens) per step, for tokens_per_s
        self._num_recent = 0  # tokens in it

    def note_step(self, num_new_tokens: int) -> None:
        """Count a collected step and its output tokens."""
        self._num_steps += 1
        self._num_generated += num_new_tokens
        if num_new_tokens:
            self._recent.append((self._clock(), num_new_tokens))
            self._num_recent += num_new_tokens
        self._forget_old()

    def snapshot(
        self,
        scheduler: Scheduler,
        cache: KVCache,
        swapper: Swapper | None,
        num_queued_tokens: int,
        drafts: DraftCounters | None = None,
    ) -> EngineStats:
        """All counters now. drafts: None: no tokens are proposed. O(layer types)."""
        drafts = drafts or DraftCounters()
        self._forget_old()
        types = pages_by_state(cache)
        num_used = sum(entry.num_used for entry in types)
        num_evictable = sum(entry.num_evictable for entry in types)
        num_empty = sum(entry.num_empty + entry.num_in_empty_large for entry in types)
        return EngineStats(
            running=scheduler.num_running_requests,
            running_sequences=scheduler.num_running,
            waiting=scheduler.num_waiting,
            swapped=swapper.mirror.num_requests if swapper is not None else 0,
            queued_tokens=num_queued_tokens,
            pages_used=num_used,
            pages_evictable=num_evictable,
            pages_empty=num_empty,
            pages_total=num_used + num_evictable + num_empty,
            kv_bytes_used=sum(entry.num_used * entry.small_page_bytes for entry in types),
            kv_bytes_saved=sum(entry.num_saved * entry.small_page_bytes for entry in types),
            kv_bytes_evictable=sum(entry.num_evictable * entry.small_page_bytes for entry in types),
            kv_bytes_total=cache.plan.pool_bytes,
            types=types,
            mirror_bytes_used=swapper.mirror.used_bytes if swapper is not None else 0,
            mirror_bytes_total=swapper.mirror.plan.pool_bytes if swapper is not None else 0,
            prompt_tokens_total=self.num_prompt_tokens,
            generation_tokens_total=self._num_generated,
            prefix_query_tokens_total=scheduler.counters.prefix_query_tokens,
            prefix_hit_tokens_total=scheduler.counters.prefix_hit_tokens,
            preemptions_total=scheduler.counters.num_preemptions,
            swap_preemptions_total=swapper.num_swap_outs if swapper is not None else 0,
            swapped_bytes_total=swapper.swapped_bytes if swapper is not None else 0,
            page_copies_total=cache.counters.num_copies,
            steps_total=self._num_steps,
            finished_total=self.num_finished,
            aborted_total=self.num_aborted,
            draft_proposals_total=drafts.num_drafts,
            draft_tokens_total=drafts.num_draft_tokens,
            accepted_draft_tokens_total=drafts.num_accepted_tokens,
            saved_steps_total=drafts.num_saved_steps,
            tokens_per_s=self._num_recent / RATE_WINDOW_S,
        )

    def _forget_old(self) -> None:
        start = self._clock() - RATE_WINDOW_S
        while self._recent and self._recent[0][0] < start:
            self._num_recent -= self._recent.popleft()[1]
