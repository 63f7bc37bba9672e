"""Which votes a board counts, as masks over the columns of a vote table, and under which names their models stand."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from controller.votes.boards.verdicts import UNKNOWN
from controller.votes.boards.vote_flags import NAMED, count_flags
from controller.votes.boards.vote_table import TableSnapshot
from ratings.outcomes import OUTCOMES, Outcome, PairCounts
from ratings.style import STYLE_FEATURES, VoteColumns

Mask = npt.NDArray[np.bool_]

LANGUAGE_PREFIX: Final = "lang_"
COHORT_PREFIX: Final = "cohort:"
_DIGEST_CHARS: Final = 8  #: of a revision in the name of a contestant

_DECISIVE: Final = (OUTCOMES.index(Outcome.A), OUTCOMES.index(Outcome.B))

#: Which votes a board is about. It counts those that are rated; the board of named battles those without another flag.
_SCOPES: Final[dict[str, Callable[[TableSnapshot], Mask]]] = {
    "overall": lambda votes: np.ones(votes.num_votes, np.bool_),
    "decisive": lambda votes: np.isin(votes.columns["outcome"], _DECISIVE),
    "multi_turn": lambda votes: votes.columns["turns"] > 1,
    "named": lambda votes: (votes.columns["flags"] & NAMED) != 0,
}
BOARDS: Final[tuple[str, ...]] = tuple(_SCOPES)  #: the boards of every arena
_LANGUAGE_SCOPES: Final[dict[str, Callable[[TableSnapshot], Mask]]] = {
    "english": lambda votes: _is_in(votes, "en"),
    "non_english": lambda votes: (votes.columns["language"] != UNKNOWN) & ~_is_in(votes, "en"),
}

_LEAST_OF_GROUP: Final = 100  #: votes in a language, or of a cohort, from which on its board is offered


@dataclass(frozen=True, eq=False)
class BoardVotes:
    """The rated votes of one board. `columns` [votes] are those of a vote table, `a` and `b` positions in `models`."""

    models: tuple[str, ...]  #: contestants that have a vote here, and the models that were asked for
    revisions: dict[str, str]  #: of the contestants
    columns: dict[str, npt.NDArray[Any]]
    unrated: dict[str, int]  #: votes that the board is about and leaves out, by flag; a vote may have several
    num_unrated: int

    @property
    def num_votes(self) -> int:
        """Votes that count."""
        return len(self.columns["a"])

    def counts(self) -> PairCounts:
        """The votes as pair counts."""
        return PairCounts.from_arrays(self.models, *(self.columns[name] for name in ("a", "b", "outcome")))

    def vote_columns(self) -> VoteColumns:
        """The votes as the fits of single votes take them, with the columns that were read."""
        a, b, outcome = (self.columns[name].astype(np.int64) for name in ("a", "b", "outcome"))
        covariates = self.columns.get("covariates")
        known = {name: self.columns[name] for name in ("probability", "has_style", "voter") if name in self.columns}
        return VoteColumns(
            self.models,
            STYLE_FEATURES,
            a,
            b,
            outcome,
            np.ones(self.num_votes),
            np.zeros((self.num_votes, len(STYLE_FEATURES))) if covariates is None else covariates,
            **known,
        )


def offered_boards(votes: TableSnapshot) -> tuple[str, ...]:
    """Names of the boards: those of every arena, of the categories, languages and cohorts that its votes have."""
    spoken = _frequent(votes.languages, votes.columns["language"])
    cohorts = _frequent(votes.cohorts, votes.columns["cohort"])
    kinds = sorted({*votes.categories, *(_LANGUAGE_SCOPES if spoken else ())} - set(BOARDS))
    groups = (*(LANGUAGE_PREFIX + name for name in spoken), *(COHORT_PREFIX + name for name in cohorts))
    return (*BOARDS, *kinds, *groups)


def _frequent(names: Sequence[str], positions: npt.NDArray[np.int32]) -> list[str]:
    """The names that enough votes have, sorted. `positions` [votes] are those in `names`."""
    counts = np.bincount(positions[positions != UNKNOWN], minlength=len(names))
    return sorted(name for name, count in zip(names, counts, strict=True) if count >= _LEAST_OF_GROUP)


def scope_of(board: str, votes: TableSnapshot) -> Mask | None:
    """The votes that a board is about, rated or not; None if there is no such board."""
    if scope := {**_SCOPES, **_LANGUAGE_SCOPES}.get(board):
        return scope(votes)
    if board in votes.categories:
        return np.asarray(votes.columns["categories"] & np.uint32(1 << votes.categories.index(board)) != 0)
    if (language := board.removeprefix(LANGUAGE_PREFIX)) != board and language in votes.languages:
        return _is_in(votes, language)
    if (cohort := board.removeprefix(COHORT_PREFIX)) != board and cohort in votes.cohorts:
        return np.asarray(votes.columns["cohort"] == votes.cohorts.index(cohort))
    return None


def reasons_against(board: str, votes: TableSnapshot) -> npt.NDArray[np.uint16]:
    """Flags for which the board leaves each vote out; 0 where it is rated."""
    reasons: npt.NDArray[np.uint16] = (votes.columns["flags"] & ~ignored_flags(board)) | votes.columns["judged"]
    return reasons


def ignored_flags(board: str) -> np.uint16:
    """Flags of a vote when it was cast that do not keep it off the board."""
    return np.uint16(NAMED if board == "named" else 0)


def rated_votes(
    board: str, votes: TableSnapshot, *, names: Sequence[str] = (), reads: Sequence[str] = ()
) -> BoardVotes:
    """The votes of `board`, which must exist. `names` adds models without a vote, `reads` columns that a fit needs
    besides the models and the outcome."""
    scope = scope_of(board, votes)
    assert scope is not None, board
    reasons = reasons_against(board, votes)
    rows = np.flatnonzero(scope & (reasons == 0))
    columns = {name: votes.columns[name][rows] for name in ("a", "b", "outcome", *reads)}
    contestants = contestant_names(votes)
    is_here = np.zeros(len(contestants), np.bool_)
    for side in ("a", "b"):
        is_here[columns[side]] = True
    here = [(name, position) for position, name in enumerate(contestants) if is_here[position]]
    models = tuple(sorted({*names, *(name for name, _ in here)}))
    place = {name: position for position, name in enumerate(models)}
    moved = np.zeros(len(contestants), np.int32)
    for name, position in here:
        moved[position] = place[name]
    for side in ("a", "b"):
        columns[side] = moved[columns[side]]
    revisions = {name: votes.contestants[position][1] for name, position in here}
    num_unrated = int(np.count_nonzero(scope)) - len(rows)
    return BoardVotes(models, revisions, columns, count_flags(reasons[scope]), num_unrated)


def _is_in(votes: TableSnapshot, language: str) -> Mask:
    if language not in votes.languages:
        return np.zeros(votes.num_votes, np.bool_)
    return np.asarray(votes.columns["language"] == votes.languages.index(language))


def contestant_names(votes: TableSnapshot) -> tuple[str, ...]:
    """One name for each contestant: the model for its newest revision, by the time of a revision's first vote, and
    "model@12345678" for an older one."""
    newest: dict[str, tuple[float, int]] = {}
    for position, ((model, _), first) in enumerate(zip(votes.contestants, votes.first_votes, strict=True)):
        newest[model] = max(newest.get(model, (first, position)), (first, position))
    taken: set[str] = {model for model, _ in votes.contestants}
    names = []
    for position, (model, revision) in enumerate(votes.contestants):
        name = model
        if newest[model][1] != position:
            lengths = range(_DIGEST_CHARS, max(len(revision), _DIGEST_CHARS) + 1)
            tries = (f"{model}@{(revision or 'unknown')[:length]}" for length in lengths)
            name = next((tried for tried in tries if tried not in taken), f"{model}@{revision}#{position}")
            taken.add(name)
        names.append(name)
    return tuple(names)
