"""The vote log as columns, from which every board is computed: some 130 bytes a vote, appended in pieces.

One owner appends, in one thread at a time; fits work on snapshots, which later entries do not change.
Knows no store, no file and no fit. Judgements and labels are applied in the order of the log (wire/judgements.py,
wire/labels.py); feedback is passed over.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, get_args

import numpy as np
import numpy.typing as npt

from controller.votes.boards.verdicts import UNKNOWN, Verdict, Verdicts
from controller.votes.boards.vote_flags import SAME_MODEL, flag_bits
from ratings.outcomes import OUTCOMES, Outcome
from ratings.style import STYLE_FEATURES, AnswerStyle, style_differences
from wire.entry_ids import EntryId, entry_order
from wire.judgements import Judgement
from wire.labels import LabelRecord
from wire.log_records import LogRecord, id_of
from wire.votes import IdentityKind, StyleCounts, VotedSide, VoteRecord

Column = npt.NDArray[Any]

#: Columns by name; `covariates` has one more axis.
DTYPES: Final[dict[str, np.dtype[Any]]] = {
    name: np.dtype(kind)
    for name, kind in {
        "battle": "i8",  # `number_of` the battle
        "time": "f8",  # Unix time
        "a": "i4",  # position in `contestants`
        "b": "i4",
        "outcome": "i1",  # position in OUTCOMES
        "turns": "i4",
        "flags": "u2",  # bits of vote_flags.py, known when the vote was cast
        "judged": "u2",  # the same, of judgements in force
        "categories": "u4",  # bits of `categories`
        "language": "i4",  # position in `languages`
        "cohort": "i4",  # position in `cohorts`
        "voter": "i8",  # `number_of` the pseudonym, or UNKNOWN
        "network": "i8",  # the same of the network
        "prompt": "i8",  # the same of the first prompt
        "identity": "i1",  # position in IDENTITIES, or UNKNOWN
        "entry_ms": "i8",  # the vote's id in the log: milliseconds, and number; 0 where it has none
        "entry_number": "i8",
        "probability": "f8",  # of drawing the pair; NaN: not known
        "has_style": "?",
        "covariates": "f8",
    }.items()
}
MAX_CATEGORIES: Final = 32
IDENTITIES: Final[tuple[str, ...]] = get_args(IdentityKind)

_FIRST_CAPACITY: Final = 1024


@dataclass(frozen=True, eq=False)
class TableSnapshot:
    """The votes of a log up to one entry. `columns` are as in DTYPES, all of the same length and read-only."""

    columns: dict[str, Column]
    contestants: tuple[tuple[str, str], ...]  #: model and revision, in the order in which the log names them
    first_votes: tuple[float, ...]  #: Unix time of the earliest vote of each contestant
    languages: tuple[str, ...]
    categories: tuple[str, ...]
    cohorts: tuple[str, ...]
    verdicts: tuple[Verdict, ...]  #: every judgement so far, in the order of the log
    early_labels: tuple[tuple[int, int], ...]  #: battles whose label came before their vote, with its categories' bits
    num_seen: int  #: entries of the log of every kind, damaged ones too
    last_vote_id: str | None

    @property
    def num_votes(self) -> int:
        """Readable votes, rated or not."""
        return len(self.columns["battle"])


class VoteTable:
    """Owns the columns. `add`, `judge` and `label` take entries in the order of the log."""

    def __init__(self) -> None:
        self._columns = {name: _empty(name, _FIRST_CAPACITY) for name in DTYPES}
        self._num_votes = 0
        self._contestants: dict[tuple[str, str], int] = {}
        self._first_votes: list[float] = []
        self._languages: dict[str, int] = {}
        self._categories: dict[str, int] = {}
        self._cohorts: dict[str, int] = {}
        self._verdicts = Verdicts()
        self._early_labels: dict[int, int] = {}
        self.num_seen = 0
        self.last_vote_id: str | None = None

    @classmethod
    def restored(cls, snapshot: TableSnapshot) -> "VoteTable":
        """A table that goes on after `snapshot`. Its columns are not changed: there is no room behind them, and judging
        and labelling copy what they change."""
        table = cls()
        table._num_votes = snapshot.num_votes
        table._columns = dict(snapshot.columns)
        table._contestants = _positions(snapshot.contestants)
        table._first_votes = list(snapshot.first_votes)
        table._languages = _positions(snapshot.languages)
        table._categories = _positions(snapshot.categories)
        table._cohorts = _positions(snapshot.cohorts)
        table._verdicts = Verdicts(snapshot.verdicts)
        table._early_labels = dict(snapshot.early_labels)
        table.num_seen, table.last_vote_id = snapshot.num_seen, snapshot.last_vote_id
        return table

    def snapshot(self) -> TableSnapshot:
        """The votes so far. Costs the same at any number of votes."""
        return TableSnapshot(
            columns={name: column[: self._num_votes] for name, column in self._columns.items()},
            contestants=tuple(self._contestants),
            first_votes=tuple(self._first_votes),
            languages=tuple(self._languages),
            categories=tuple(self._categories),
            cohorts=tuple(self._cohorts),
            verdicts=self._verdicts.all,
            early_labels=tuple(self._early_labels.items()),
            num_seen=self.num_seen,
            last_vote_id=self.last_vote_id,
        )

    def skip(self, entry_id: str) -> None:
        """Pass over an entry of the log that no board counts: feedback, or one that cannot be read."""
        self.last_vote_id = entry_id
        self.num_seen += 1

    def extend(self, entries: Iterable[LogRecord]) -> None:
        """Append entries of the log; a thousand at once cost less than one by one."""
        for kind, run in groupby(entries, type):
            if kind is VoteRecord:
                self.add([entry for entry in run if isinstance(entry, VoteRecord)])
            elif kind is Judgement:
                self.judge([entry for entry in run if isinstance(entry, Judgement)])
            elif kind is LabelRecord:
                self.label([entry for entry in run if isinstance(entry, LabelRecord)])
            else:
                for entry in run:
                    self.skip(id_of(entry))

    def add(self, votes: Sequence[VoteRecord]) -> None:
        """Append votes. One of a model against itself is flagged: a bad line of an import must not stop the boards."""
        if not votes:
            return
        rows = [self._row(vote) for vote in votes]
        end = self._num_votes + len(rows)
        self._reserve(end)
        for (name, column), values in zip(self._columns.items(), zip(*rows, strict=True), strict=True):
            column[self._num_votes : end] = np.array(values, DTYPES[name])
        self._num_votes = end
        self.num_seen += len(rows)
        self.last_vote_id = votes[-1].vote_id

    def judge(self, judgements: Sequence[Judgement]) -> None:
        """Apply judgements to the votes before them, and to later ones of their voters and cohorts."""
        if not judgements:
            return
        verdicts = [
            Verdict(
                time=judgement.time,
                is_flag=judgement.action == "flag",
                by_admin=judgement.by == "admin",
                bits=flag_bits((judgement.flag,)),
                voter=UNKNOWN if judgement.voter is None else number_of(judgement.voter),
                cohort=judgement.cohort,
                battles=tuple(number_of(battle_id) for battle_id in judgement.battle_ids),
            )
            for judgement in judgements
        ]
        self._columns["judged"] = self._columns["judged"].copy()  # snapshots keep the old one
        self._verdicts.add(verdicts)
        columns = {name: column[: self._num_votes] for name, column in self._columns.items()}
        self._verdicts.write(verdicts, columns, self._cohorts)
        self.num_seen += len(judgements)
        self.last_vote_id = judgements[-1].judgement_id

    def label(self, labels: Sequence[LabelRecord]) -> None:
        """Give the votes that the labels are about their categories. A label may come before its vote, where a damaged
        vote was restored."""
        if not labels:
            return
        bits = {number_of(label.battle_id): self._category_bits(label.categories) for label in labels}
        battles = self._columns["battle"][: self._num_votes]
        rows = np.flatnonzero(np.isin(battles, list(bits)))
        labelled = battles[rows].tolist()
        self._columns["categories"] = self._columns["categories"].copy()  # snapshots keep the old one
        self._columns["categories"][rows] = [bits[battle] for battle in labelled]
        self._early_labels |= {battle: bits[battle] for battle in bits.keys() - set(labelled)}
        self.num_seen += len(labels)
        self.last_vote_id = labels[-1].label_id

    def _row(self, vote: VoteRecord) -> tuple[Any, ...]:
        """The values of one vote, in the order of DTYPES."""
        a, b = (self._contestant(side, vote.time) for side in (vote.a, vote.b))
        voter = _number_or_unknown(vote.voter)
        battle = number_of(vote.battle_id)
        label = self._early_labels.pop(battle, None)
        flags = flag_bits(vote.flags)
        has_style = vote.a.style != _NO_STYLE or vote.b.style != _NO_STYLE
        return (
            battle,
            vote.time,
            a,
            b,
            OUTCOMES.index(Outcome(vote.outcome)),
            min(vote.turns, 2**31 - 1),
            flags | SAME_MODEL if vote.a.model == vote.b.model else flags,
            self._verdicts.of_vote(voter, vote.cohort, battle),
            self._category_bits(vote.categories) if label is None else label,
            _interned(self._languages, vote.language),
            _interned(self._cohorts, vote.cohort),
            voter,
            _number_or_unknown(vote.network),
            _number_or_unknown(vote.prompt),
            UNKNOWN if vote.identity is None else IDENTITIES.index(vote.identity),
            *_entry_order(vote.vote_id),
            np.nan if vote.probability is None else vote.probability,
            has_style,
            style_differences(_style(vote.a.style), _style(vote.b.style)) if has_style else _EQUAL_STYLE,
        )

    def _contestant(self, side: VotedSide, time: float) -> int:
        position = self._contestants.setdefault((side.model, side.revision), len(self._contestants))
        if position == len(self._first_votes):
            self._first_votes.append(time)
        elif time < self._first_votes[position]:
            self._first_votes[position] = time
        return position

    def _category_bits(self, categories: Iterable[str]) -> int:
        """Bits of a vote's categories. Names beyond the first 32 of a log can only come from odd imports; no bits."""
        bits = 0
        for category in categories:
            if category in self._categories or len(self._categories) < MAX_CATEGORIES:
                bits |= 1 << self._categories.setdefault(category, len(self._categories))
        return bits

    def _reserve(self, num_votes: int) -> None:
        capacity = len(self._columns["battle"])
        if num_votes <= capacity:
            return
        capacity = max(2 * capacity, num_votes)
        for name, column in self._columns.items():
            grown = _empty(name, capacity)
            grown[: self._num_votes] = column[: self._num_votes]
            self._columns[name] = grown


def number_of(text: str) -> int:
    """63 bits of a hash of a battle's id or a voter's pseudonym, the same in every process. Two of two million battles
    share a number with chance 2e-7."""
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()) >> 1


def _number_or_unknown(text: str | None) -> int:
    return UNKNOWN if text is None else number_of(text)


def _entry_order(vote_id: str) -> tuple[int, int]:
    try:
        return entry_order(EntryId(vote_id))
    except ValueError:
        return 0, 0  # a vote that is in no log yet


def _empty(name: str, capacity: int) -> Column:
    shape = (capacity, len(STYLE_FEATURES)) if name == "covariates" else (capacity,)
    return np.zeros(shape, DTYPES[name])


def _positions(names: Iterable[Any]) -> dict[Any, int]:
    return {name: position for position, name in enumerate(names)}


def _interned(names: dict[str, int], name: str | None) -> int:
    return UNKNOWN if name is None else names.setdefault(name, len(names))


def _style(counts: StyleCounts) -> AnswerStyle:
    return AnswerStyle(counts.tokens, counts.headers, counts.lists, counts.bold)


_NO_STYLE: Final = StyleCounts()
_EQUAL_STYLE: Final = (0.0,) * len(STYLE_FEATURES)
