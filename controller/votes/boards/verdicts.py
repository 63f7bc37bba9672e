"""Judgements in the numbers of a vote table, and which flags are in force for a voter or a cohort.

The last judgement of a flag about a subject decides. Subjects are apart: that a voter is flagged is not taken back by
an unflag about one of his votes, nor by one about his cohort.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

UNKNOWN: Final = -1  #: voter, language or cohort of a vote that names none


@dataclass(frozen=True, slots=True)
class Verdict:
    """One judgement. `bits` is one flag of vote_flags.py, `voter` and `battles` are numbers as in
    the columns of these names."""

    time: float
    is_flag: bool
    by_admin: bool
    bits: int
    voter: int
    cohort: str | None
    battles: tuple[int, ...]


class Verdicts:
    """Owns the judgements so far, and the flags in force for each subject."""

    def __init__(self, verdicts: Iterable[Verdict] = ()) -> None:
        self._all: list[Verdict] = []
        self._voters: dict[int, int] = {}
        self._cohorts: dict[str, int] = {}
        self._battles: dict[int, int] = {}
        self.add(verdicts)

    @property
    def all(self) -> tuple[Verdict, ...]:
        """Every judgement, in the order of the log."""
        return tuple(self._all)

    def add(self, verdicts: Iterable[Verdict]) -> None:
        """Take the next judgements of the log."""
        for verdict in verdicts:
            self._all.append(verdict)
            if verdict.voter != UNKNOWN:
                self._voters[verdict.voter] = _changed(self._voters.get(verdict.voter, 0), verdict)
            if verdict.cohort is not None:
                self._cohorts[verdict.cohort] = _changed(self._cohorts.get(verdict.cohort, 0), verdict)
            for battle in verdict.battles:
                self._battles[battle] = _changed(self._battles.get(battle, 0), verdict)

    def of_vote(self, voter: int, cohort: str | None, battle: int) -> int:
        """Flags in force for a vote, by any of its subjects."""
        of_cohort = 0 if cohort is None else self._cohorts.get(cohort, 0)
        return self._voters.get(voter, 0) | of_cohort | self._battles.get(battle, 0)

    def write(
        self, verdicts: Sequence[Verdict], columns: Mapping[str, npt.NDArray[Any]], cohorts: Mapping[str, int]
    ) -> None:
        """Write the column `judged` anew for the votes that these judgements, which were added last, are about.

        `cohorts`: position by name, as in the column `cohort`.
        """
        is_judged = np.isin(columns["voter"], [verdict.voter for verdict in verdicts if verdict.voter != UNKNOWN])
        is_judged |= np.isin(columns["battle"], [battle for verdict in verdicts for battle in verdict.battles])
        positions = [cohorts[name] for verdict in verdicts if (name := verdict.cohort) in cohorts and name is not None]
        is_judged |= np.isin(columns["cohort"], positions)
        rows = np.flatnonzero(is_judged)
        # The last entry is for votes without a cohort, whose position is -1.
        of_cohort = np.array([*(self._cohorts.get(name, 0) for name in cohorts), 0], np.uint16)
        columns["judged"][rows] = (
            _looked_up(self._voters, columns["voter"][rows])
            | _looked_up(self._battles, columns["battle"][rows])
            | of_cohort[columns["cohort"][rows]]
        )


def _changed(bits: int, verdict: Verdict) -> int:
    return bits | verdict.bits if verdict.is_flag else bits & ~verdict.bits


def _looked_up(bits: Mapping[int, int], numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint16]:
    known, positions = np.unique(numbers, return_inverse=True)
    return np.array([bits.get(number, 0) for number in known.tolist()], np.uint16)[positions]
