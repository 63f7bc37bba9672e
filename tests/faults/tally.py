"""What one scenario counts: promises that were broken, each with the round to replay, and times."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

#: Every promise, in the order of the table. Each must be 0 at the end of a scenario.
PROMISES = (
    "votes_lost",
    "votes_doubled",
    "votes_wrong",
    "votes_on_broken_battles",
    "silent_cuts",
    "wrong_tokens",
    "server_errors",
    "hangs",
    "unexpected_deaths",
    "unexpected_refusals",
    "battles_aborted",
    "leaks",
    "boards_differ",
    "never_recovered",
)
_MAX_LINES = 60


@dataclass
class Tally:
    """Owned by one run of a scenario; visitors and audit add to it."""

    not_promised: frozenset[str] = frozenset()  #: what the scenario makes impossible
    round: int = 0  #: the round that runs now
    counts: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)
    recovery_s: list[float] = field(default_factory=list)
    own_recovery_s: list[float] = field(default_factory=list)
    battle_s: list[float] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)  #: measured by one scenario only

    def count(self, name: str, by: int = 1) -> None:
        """Count something that is no failure."""
        self.counts[name] += by

    def break_promise(self, promise: str, what: str, by: int = 1) -> None:
        """Record that a promise was broken. `what` says how, for the replay."""
        assert promise in PROMISES, promise
        if promise in self.not_promised:
            self.count(f"allowed_{promise}", by)
            return
        self.broken[promise] += by
        if len(self.lines) < _MAX_LINES:
            self.lines.append(f"round {self.round}: {promise}: {what}")

    @property
    def is_clean(self) -> bool:
        """True if no promise was broken."""
        return not any(self.broken.values())


def percentiles(values: Sequence[float]) -> dict[str, float | None]:
    """p50, p99 and maximum, rounded to milliseconds; None without values."""
    if not values:
        return {"p50": None, "p99": None, "max": None}
    ordered = sorted(values)

    def rank(share: float) -> float:
        return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 3)

    return {"p50": rank(0.5), "p99": rank(0.99), "max": round(ordered[-1], 3)}


def as_json(tally: Tally) -> dict[str, Any]:
    """The tally as part of a scenario's JSON line."""
    return {
        "clean": tally.is_clean,
        "broken": {promise: tally.broken[promise] for promise in PROMISES},
        "counts": dict(sorted(tally.counts.items())),
        "recovery_s": percentiles(tally.recovery_s),
        "own_recovery_s": percentiles(tally.own_recovery_s),
        "battle_s": percentiles(tally.battle_s),
        "figures": tally.figures,
        "lines": tally.lines,
    }
