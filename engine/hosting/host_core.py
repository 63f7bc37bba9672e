"""Steps several engine cores, whose page caches share one pool, in turn: one launch or one collection at a time.

Decides which model plans the next step (turns.py) and which one gives pages to another. Each core goes on deciding
everything within its model. For one thread; knows no asyncio, no torch and not how models are loaded.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from engine.core import EngineCore
from engine.hosting.step_bound import StepBound
from engine.hosting.turns import Turns
from engine.memory.large_pool import LargePool
from engine.memory.spec import NUM_NULL_LARGE_PAGES
from engine.request import RequestDelta
from engine.scheduling.placement import Reclaim


@dataclass(frozen=True, slots=True)
class Bounds:
    """Memory of one model in the shared pool, in large pages with a used small page."""

    floor: int = 0  #: it gets this many back from models that use more than their share
    ceiling: int | None = None  #: it never uses more


@dataclass(slots=True)
class _Member:
    core: EngineCore
    bounds: Bounds
    is_awake: bool = True
    bound: StepBound = field(default_factory=StepBound)


class HostCore:
    """The cores of one pool. A core that fails is taken out by its name, `remove`; the others go on."""

    def __init__(self, on_turn: Callable[[str], None] = lambda name: None) -> None:
        """on_turn: called with the name of a model before it launches steps."""
        self._num_usable = 0
        self._large_pool: LargePool | None = None
        self._on_turn = on_turn
        self._members: dict[str, _Member] = {}
        self._turns = Turns()
        self._in_flight: deque[str] = deque()  # whose steps are in flight, oldest first
        self._debtor: str | None = None  # the model for which others must give way, once their steps have ended
        self._gained: dict[str, list[RequestDelta]] = {}
        self.stepping = ""  #: the model that was stepped last: an exception is its error

    # Models come and go

    def reclaim_for(self, name: str) -> Reclaim:
        """What the scheduler of this model asks for pages of the others."""
        return partial(self._reclaim, name)

    def add(self, name: str, core: EngineCore, bounds: Bounds) -> None:
        """A new model, awake."""
        self._members[name] = _Member(core, bounds)

    def remove(self, name: str) -> None:
        """A model that has ended or failed; none of its steps is collected any more."""
        del self._members[name]
        self._gained.pop(name, None)
        self._in_flight = deque(other for other in self._in_flight if other != name)
        if self._debtor == name:
            self._debtor = None

    def note_awake(self, name: str, is_awake: bool) -> None:
        """Whether the model has a runner: only then it is stepped."""
        self._members[name].is_awake = is_awake

    def use_pool(self, large_pool: LargePool) -> None:
        """The pool of all models from now on."""
        assert not self._in_flight or large_pool is self._large_pool
        self._large_pool = large_pool
        self._num_usable = large_pool.num_large_pages - NUM_NULL_LARGE_PAGES

    def set_bounds(self, name: str, bounds: Bounds) -> None:
        """The memory of a model, counted in large pages of another size."""
        self._members[name].bounds = bounds

    # Steps

    @property
    def has_work(self) -> bool:
        """Whether `step` has anything to do: requests of models that are awake, deltas to fetch, steps in flight."""
        return bool(self._in_flight) or any(
            not member.core.is_idle if member.is_awake else member.core.has_deltas for member in self._members.values()
        )

    def step(self) -> None:
        """Launch a step of the model whose turn it is, and collect one if enough are in flight."""
        for name, member in self._members.items():
            if member.core.has_deltas:
                self._gained.setdefault(name, []).extend(member.core.take_ready())
        if self._debtor is not None:
            self._drain_others(self._debtor)
        launched = self._launch()
        if launched is None:
            if self._in_flight:
                self._collect()
            elif self._active():
                self._break_deadlock()
            return
        self._gained.setdefault(launched, [])
        while self._in_flight and (len(self._in_flight) >= 2 or self._members[launched].core.is_full):
            self._collect()

    def charge(self, name: str, seconds: float) -> None:
        """The thread has worked so long for this model outside of steps: commands, streams."""
        self._turns.charge(name, seconds)

    def note_rest(self, seconds: float) -> None:
        """For so long there was no work."""
        self._turns.note_rest(seconds)

    def take_gained(self) -> dict[str, list[RequestDelta]]:
        """What sequences have gained since the last call, by model; an entry for every model that had a step."""
        gained, self._gained = self._gained, {}
        return gained

    def collect_all(self, name: str) -> None:
        """Collect steps until none of this model is in flight."""
        while name in self._in_flight:
            self._collect()

    def _launch(self) -> str | None:
        """The model that has launched a step; None: no model can plan one now."""
        active = self._active()
        order = self._turns.order(active)
        if self._debtor in active:
            order.sort(key=lambda name: name != self._debtor)
        self._debtor = None
        for name in order:
            self.stepping = name
            self._on_turn(name)
            member = self._members[name]
            if not member.core.is_full and member.core.launch_next(self._max_tokens(member, len(active))):
                self._turns.note_step(name)
                self._in_flight.append(name)
                return name
        return None

    def _max_tokens(self, member: _Member, num_active: int) -> int | None:
        is_alone = sum(each.is_awake for each in self._members.values()) == 1
        return None if is_alone else member.bound.max_tokens(has_other_work=num_active > 1)

    def _collect(self) -> None:
        name = self.stepping = self._in_flight.popleft()
        core = self._members[name].core
        self._gained.setdefault(name, []).extend(core.collect_oldest())
        cost = core.costs.last
        self._members[name].bound.note_step(cost.num_sequences, cost.num_more_tokens, cost.seconds)
        self._turns.charge(name, cost.seconds)

    def _active(self) -> list[str]:
        return [name for name, member in self._members.items() if member.is_awake and member.core.has_work]

    # Memory

    def share_of(self, name: str) -> int:
        """Large pages that are this model's by right while it has work: an equal part for every model with work, at
        least its floor, at most its ceiling."""
        bounds = self._members[name].bounds
        equal = self._num_usable // max(1, len({name, *self._active()}))
        share = max(bounds.floor, equal)
        return share if bounds.ceiling is None else min(share, bounds.ceiling)

    def _reclaim(self, name: str, num_missing: int, num_wanted: int) -> bool:
        """See Reclaim: preempt the latest requests of models that use more than their share, for one that stays within
        its own. Cached pages need no reclaim, since allocation evicts them."""
        taker = self._members.get(name)
        if taker is None or taker.core.num_used_large_pages + num_wanted > self.share_of(name):
            return False
        excess = {other: self._excess(other) for other in self._members if other != name}
        if sum(pages for pages in excess.values() if pages > 0) < num_missing:
            return False
        assert self._large_pool is not None
        target = self._large_pool.num_available + num_missing
        while self._large_pool.num_available < target:
            donor = max(excess, key=lambda other: excess[other])
            if excess[donor] <= 0:
                return False
            core = self._members[donor].core
            if core.num_in_flight:
                self._debtor = name
                return False
            stepping, self.stepping = self.stepping, donor
            core.give_way()
            self.stepping = stepping
            excess[donor] = self._excess(donor)
        return True

    def _excess(self, name: str) -> int:
        """Large pages that a model uses beyond its share; 0 where no request could give any back."""
        core = self._members[name].core
        return max(0, core.num_used_large_pages - self.share_of(name)) if core.num_running_requests else 0

    def _drain_others(self, name: str) -> None:
        """Collect the steps of models that will have to give way to this one."""
        while any(other != name and self._excess(other) for other in self._in_flight):
            self._collect()

    def _break_deadlock(self) -> None:
        """No model can go on, because each waits for pages of the others: the latest request of all gives way, except
        where its model has the oldest one, which goes on."""
        running = {
            name: since
            for name, member in self._members.items()
            if (since := member.core.running_since_s) is not None and member.is_awake
        }
        assert running, "the first waiting request fits into an unused pool"
        keeper = min(running, key=lambda name: running[name])
        others = {name: since for name, since in running.items() if name != keeper}
        assert others, "a model that has the pool to itself goes on"
        self.stepping = max(others, key=lambda name: others[name])
        self._members[self.stepping].core.give_way()


def check_floors(bounds: Iterable[Bounds], num_usable: int) -> None:
    """Raise ValueError where the floors of all models are more than the pool."""
    total = sum(each.floor for each in bounds)
    if total > num_usable:
        raise ValueError(f"the floors of all models are {total} large pages, the pool has {num_usable}")
