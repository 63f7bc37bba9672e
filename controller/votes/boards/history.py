"""Rating over time: the board at the end of each day (UTC), with the votes and the judgements of then.

The counts of each day are taken from the vote table in one pass. A finished day is fitted once: its points are kept
under a hash of its counts, on disk too, so that only a late import or another anchor makes it fitted again.
"""

import hashlib
import itertools
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from controller.votes.boards.board_votes import ignored_flags, scope_of
from controller.votes.boards.verdicts import Verdicts
from controller.votes.boards.vote_table import TableSnapshot
from ratings.options import FitOptions
from ratings.outcomes import OUTCOMES, PairCounts
from ratings.ranking import rank_board
from service_kit.logs import log_event
from wire.leaderboard import HistoryDay, HistoryPoint

DAY_S: Final = 86_400.0
MAX_DAYS: Final = 366
_KEPT_DAYS: Final = 5_000  #: fitted days, of all boards together, some 10 kB each

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class DayCounts:
    """All votes up to the end of one day, as counts: `cells[n]` votes had the flat position `places[n]` in (contestant
    a, contestant b, outcome)."""

    day: str
    num_votes: int  #: of this day
    places: npt.NDArray[np.int64]
    cells: npt.NDArray[np.int64]

    def counts(self, contestants: Sequence[str]) -> PairCounts:
        """The votes as pair counts."""
        counts = PairCounts()
        for place, count in zip(self.places.tolist(), self.cells.tolist(), strict=True):
            pair, outcome = divmod(place, len(OUTCOMES))
            a, b = divmod(pair, len(contestants))
            counts.add(contestants[a], contestants[b], OUTCOMES[outcome], count)
        return counts


def daily_counts(board: str, votes: TableSnapshot, *, num_days: int, now: float) -> list[DayCounts]:
    """The last `num_days` days up to `now` (Unix time), from the first one that has a vote. `board` must exist."""
    scope = scope_of(board, votes)
    assert scope is not None, board
    columns = dict(votes.columns)
    days = np.floor(columns["time"] / DAY_S).astype(np.int64)
    if not scope.any():
        return []
    last = int(now // DAY_S)
    first = max(int(days[scope].min()), last - num_days + 1)
    own = columns["flags"] & ~ignored_flags(board)
    size = len(votes.contestants)
    place = (columns["a"].astype(np.int64) * size + columns["b"]) * len(OUTCOMES) + columns["outcome"]
    num_places = size * size * len(OUTCOMES)
    by_day = np.argsort(days, kind="stable")
    bounds = np.searchsorted(days[by_day], np.arange(first, last + 2))
    cohorts = {name: position for position, name in enumerate(votes.cohorts)}
    verdicts, pending = Verdicts(), sorted(votes.verdicts, key=lambda verdict: verdict.time)
    columns["judged"] = np.zeros_like(columns["judged"])
    rated, total = np.zeros(0, np.bool_), np.zeros(0, np.int64)
    found: list[DayCounts] = []
    for number, day in enumerate(range(first, last + 1)):
        new = list(itertools.takewhile(lambda verdict: verdict.time < (day + 1) * DAY_S, pending))  # noqa: B023
        del pending[: len(new)]
        today = by_day[bounds[number] : bounds[number + 1]]
        if new or not len(rated):
            verdicts.add(new)
            verdicts.write(new, columns, cohorts)
            rated = scope & (own == 0) & (columns["judged"] == 0)
            total = np.bincount(place[rated & (days <= day)], minlength=num_places)
        else:
            total = total + np.bincount(place[today[rated[today]]], minlength=num_places)
        places = np.flatnonzero(total)
        found.append(DayCounts(_day_name(day), int(np.count_nonzero(rated[today])), places, total[places]))
    return found


def fit_day(day: DayCounts, contestants: Sequence[str], anchor: Sequence[str]) -> HistoryDay:
    """The board at the end of a day."""
    counts = day.counts(contestants)
    known = tuple(model for model in anchor if model in counts.models)
    ranked = rank_board(counts, None, FitOptions(anchor=known))
    points = tuple(
        HistoryPoint(model=row.model, rating=row.rating, lower=row.lower, upper=row.upper, votes=row.votes)
        for row in ranked.rows
    )
    return HistoryDay(day=day.day, num_votes=day.num_votes, rows=points)


class FittedDays:
    """Owns the fitted days: in memory, and in the file `history.json` of `folder`, if there is one."""

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / "history.json"
        self._days: dict[str, dict[str, Any]] | None = None

    def fit(
        self, days: Sequence[DayCounts], contestants: Sequence[str], anchor: Sequence[str]
    ) -> tuple[HistoryDay, ...]:
        """The boards of the days; those that were fitted before are looked up. Blocks for 0.05 s a new day."""
        if self._days is None:
            self._days = self._load()
        known, answers, is_new = self._days, [], False
        for day in days:
            key = _key(day, contestants, anchor)
            if key in known:
                answers.append(HistoryDay.model_validate(known[key]))
            else:
                answers.append(fit_day(day, contestants, anchor))
                known[key] = answers[-1].model_dump(mode="json")
                is_new = True
        if is_new:
            for key in list(known)[: max(0, len(known) - _KEPT_DAYS)]:
                del known[key]
            self._store()
        return tuple(answers)

    def _load(self) -> dict[str, dict[str, Any]]:
        try:
            return dict(json.loads(self._path.read_text())) if self._path is not None else {}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError) as error:
            log_event(_logger, "history_unreadable", logging.WARNING, file=str(self._path), error=str(error))
            return {}

    def _store(self) -> None:
        if self._path is None:
            return
        partial = self._path.with_suffix(".part")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps(self._days))
            partial.replace(self._path)
        except OSError as error:
            log_event(_logger, "history_not_written", logging.WARNING, file=str(self._path), error=str(error))


def _day_name(day: int) -> str:
    return (_EPOCH + timedelta(days=day)).date().isoformat()


def _key(day: DayCounts, contestants: Sequence[str], anchor: Sequence[str]) -> str:
    """A hash of all that the answer depends on."""
    digest = hashlib.blake2b(json.dumps([day.day, day.num_votes, contestants, anchor]).encode(), digest_size=16)
    digest.update(day.places.tobytes())
    digest.update(day.cells.tobytes())
    return digest.hexdigest()
