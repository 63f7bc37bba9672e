"""What the rules find in a vote table: judgements that the log lacks. Pure; runs in a thread of the judge.

The rules are those of ratings/voters.py, cohorts.py and caps.py, and probation. An administrator's judgement stands:
what one has flagged or taken back is not judged again.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from controller.votes.boards.board_votes import contestant_names
from controller.votes.boards.verdicts import UNKNOWN, Verdict
from controller.votes.boards.vote_flags import BitArray, count_flags, flag_bits
from controller.votes.boards.vote_table import IDENTITIES, TableSnapshot
from ratings.caps import beyond_cap
from ratings.cohorts import MIN_VOTERS, judge_group
from ratings.outcomes import OUTCOMES, Outcome
from ratings.voters import Ballots, Crowd, Surprise, blocks_of
from wire.judgements import MAX_BATTLES, IntegrityView, Judgement
from wire.votes import JUDGEMENT_PREFIX, VoteFlag

Rows = npt.NDArray[np.int64]
Subject = tuple[Literal["voter", "cohort", "battle"], int | str]

DAY_S: Final = 86_400
UNFLAG_SHARE: Final = 0.1  #: a flag is taken back when the surprise is below this share of the limit: no flickering
MAX_SHOWN: Final = 1e12  #: surprise in the evidence of a judgement
MIN_VOTES: Final = 5  #: a voter with fewer votes cannot be told from an honest one

_A, _B = OUTCOMES.index(Outcome.A), OUTCOMES.index(Outcome.B)
_ON_PROBATION = tuple(IDENTITIES.index(kind) for kind in ("invite", "header"))
_CAPS: Final[tuple[tuple[VoteFlag, str], ...]] = (
    ("voter_cap", "voter"),
    ("address_cap", "network"),
    ("prompt_cap", "prompt"),
)


@dataclass(frozen=True)
class Rules:
    """The limits, as the settings have them; a cap or probation of 0 is none."""

    surprise_limit: float
    voter_cap: int
    address_cap: int
    prompt_cap: int
    probation_votes: int

    def as_numbers(self) -> dict[str, float]:
        """By name, for IntegrityView."""
        return {name: float(value) for name, value in asdict(self).items()}


@dataclass(frozen=True, eq=False)
class Finding:
    """A judgement that the log lacks. `rows` are votes of the table: those that it names, or one of the voter, in which
    the voter's pseudonym can be read. `number` counts the judgements of this flag about this subject before it."""

    action: Literal["flag", "unflag"]
    flag: VoteFlag
    rows: Rows
    cohort: str | None
    is_about_voter: bool
    number: int
    evidence: dict[str, float]
    note: str | None = None


@dataclass(frozen=True, eq=False)
class Round:
    """The result of one round."""

    findings: tuple[Finding, ...]
    num_voters: int  #: voters in the whole log


@dataclass(frozen=True)
class _State:
    """The last judgement of a flag about a subject, and how many there were. Initially: none."""

    is_flag: bool = False
    by_admin: bool = False
    number: int = 0


def judge_votes(
    votes: TableSnapshot, rules: Rules, *, since: int, is_stopped: Callable[[], bool] = lambda: False
) -> Round:
    """Apply all rules to the votes from row `since` on, and to the voters and groups that they belong to: some 5 ms for
    each voter of a large log. It is asked between two voters whether the round `is_stopped`; then the rest is left."""
    return Round(tuple(_Judging(votes, rules, since, is_stopped).findings()), _num_voters(votes))


def integrity_view(votes: TableSnapshot, rules: Rules, *, num_voters: int, judged_at: float) -> IntegrityView:
    """What clients may know after a round on `votes`. `judged_at` is Unix time of the store."""
    reasons: BitArray = np.bitwise_or(votes.columns["flags"], votes.columns["judged"])
    states = _states(votes.verdicts)
    bits = flag_bits(("anomalous_voter",))
    flagged = [subject for (flag, subject), state in states.items() if flag == bits and state.is_flag]
    return IntegrityView(
        num_votes=votes.num_votes,
        num_rated=int(np.count_nonzero(reasons == 0)),
        unrated=count_flags(reasons),
        voters_judged=num_voters,
        voters_flagged=sum(kind == "voter" for kind, _ in flagged),
        judged_at=judged_at,
        judged_up_to=votes.last_vote_id,
        rules=rules.as_numbers(),
    )


def judgement_key(finding: Finding, battle_ids: Iterable[str], voter: str | None) -> str:
    """The key of a finding: two controllers that find the same append it once."""
    subject = "\n".join([voter or "", finding.cohort or "", *battle_ids])
    text = f"{finding.action}\n{finding.flag}\n{finding.number}\n{subject}"
    return JUDGEMENT_PREFIX + hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


class _Judging:
    """One round over one table."""

    def __init__(self, votes: TableSnapshot, rules: Rules, since: int, is_stopped: Callable[[], bool]) -> None:
        self._is_stopped = is_stopped
        self._rules = rules
        self._since = since
        self._names = contestant_names(votes)
        self._cohorts = votes.cohorts
        self._columns = votes.columns
        self._states = _states(votes.verdicts)
        columns = votes.columns
        outcome = columns["outcome"]
        self._is_clean = columns["flags"] == 0
        self._rows = np.flatnonzero(self._is_clean & ((outcome == _A) | (outcome == _B)))  # of the ballots
        self._days = (columns["time"] // DAY_S).astype(np.int64)
        self._ballots = Ballots(
            a=columns["a"][self._rows].astype(np.int64),
            b=columns["b"][self._rows].astype(np.int64),
            a_won=outcome[self._rows] == _A,
            block=blocks_of(self._days[self._rows], len(self._names)),
        )
        self._ballot_of = np.full(votes.num_votes, -1)  #: position among the ballots of each vote, -1: none
        self._ballot_of[self._rows] = np.arange(len(self._rows))
        self._is_believed = columns["judged"][self._rows] == 0
        num_blocks = int(self._ballots.block.max(initial=-1)) + 1
        self._crowd = Crowd(self._ballots.taken(self._is_believed), len(self._names), num_blocks)
        self._anomalous: set[int] = set()  #: voters, after their test

    def findings(self) -> Iterator[Finding]:
        """Voters first: a group is judged without the voters that are found by themselves."""
        yield from self._caps()
        yield from self._voters()
        yield from self._groups("cohort")
        yield from self._groups("network")

    def _state(self, flag: VoteFlag, subject: Subject) -> _State:
        return self._states.get((flag_bits((flag,)), subject), _State())

    def _caps(self) -> Iterator[Finding]:
        clean = np.flatnonzero(self._is_clean)
        is_new = clean >= self._since
        days = np.unique(self._days[clean[is_new]])
        of_days = clean[np.isin(self._days[clean], days)]
        for flag, name in _CAPS:
            beyond = of_days[beyond_cap(self._columns[name][of_days], self._days[of_days], getattr(self._rules, flag))]
            lacks = (self._columns["judged"][beyond] & flag_bits((flag,))) == 0
            rows = [
                row
                for row in beyond[lacks & (beyond >= self._since)].tolist()
                if not self._state(flag, ("battle", int(self._columns["battle"][row]))).by_admin
            ]
            evidence = {"cap": float(getattr(self._rules, flag))}
            for start in range(0, len(rows), MAX_BATTLES):
                piece = np.array(rows[start : start + MAX_BATTLES], dtype=np.int64)
                yield Finding("flag", flag, piece, None, is_about_voter=False, number=0, evidence=evidence)

    def _voters(self) -> Iterator[Finding]:
        voters = self._columns["voter"]
        concerned = np.unique(voters[self._since :])
        in_doubt = [
            int(subject[1])
            for (bits, subject), state in self._states.items()
            if subject[0] == "voter"
            and state.is_flag
            and not state.by_admin
            and bits == flag_bits(("anomalous_voter",))
        ]
        concerned = np.union1d(concerned[concerned != UNKNOWN], np.array(in_doubt, dtype=np.int64))
        for voter, rows in _grouped(voters, concerned):
            if self._is_stopped():
                return
            yield from self._voter(voter, rows)

    def _voter(self, voter: int, rows: Rows) -> Iterator[Finding]:
        """`rows`: all votes of the voter."""
        state = self._state("anomalous_voter", ("voter", voter))
        own = self._ballot_of[rows]
        own = own[own >= 0]
        surprise = self._surprise(own) if len(own) >= MIN_VOTES else None
        peak = 1.0 if surprise is None else surprise.peak
        is_anomalous = peak > self._rules.surprise_limit
        row = rows[:1]
        if is_anomalous and not state.is_flag and not state.by_admin:
            assert surprise is not None
            yield self._about_voter("flag", "anomalous_voter", row, state, surprise, self._reason(surprise))
        elif state.is_flag and not state.by_admin and peak < UNFLAG_SHARE * self._rules.surprise_limit:
            yield self._about_voter("unflag", "anomalous_voter", row, state, surprise, None)
        if is_anomalous or (state.is_flag and peak >= UNFLAG_SHARE * self._rules.surprise_limit):
            self._anomalous.add(voter)
        yield from self._probation(voter, rows, surprise, is_anomalous=voter in self._anomalous)

    def _probation(self, voter: int, rows: Rows, surprise: Surprise | None, *, is_anomalous: bool) -> Iterator[Finding]:
        """Probation ends for ever: later votes of an identity that has passed it count at once."""
        state = self._state("probation", ("voter", voter))
        if state.by_admin or self._columns["identity"][rows[0]] not in _ON_PROBATION:
            return
        is_short = np.count_nonzero(self._is_clean[rows]) < self._rules.probation_votes
        if is_short and state.number == 0:
            yield self._about_voter("flag", "probation", rows[:1], state, surprise, None)
        elif state.is_flag and not is_short and not is_anomalous:
            yield self._about_voter("unflag", "probation", rows[:1], state, surprise, None)

    def _groups(self, kind: Literal["cohort", "network"]) -> Iterator[Finding]:
        groups = self._columns[kind]
        concerned = np.unique(groups[self._since :])
        voters = self._columns["voter"][self._rows]
        trusted = ~np.isin(voters, np.array(sorted(self._anomalous), dtype=np.int64))
        trusted &= (self._columns["judged"][self._rows] & flag_bits(("anomalous_voter", "withdrawn"))) == 0
        candidates = np.where(trusted, groups[self._rows], UNKNOWN)
        for group, own in _grouped(candidates, concerned[concerned != UNKNOWN]):
            if self._is_stopped():
                return
            if len(np.unique(voters[own])) < MIN_VOTERS:
                continue
            yield from self._cohort(group, own) if kind == "cohort" else self._network(own)

    def _cohort(self, group: int, own: Rows) -> Iterator[Finding]:
        name = self._cohorts[group]
        state = self._state("anomalous_cohort", ("cohort", name))
        if state.by_admin:
            return
        verdict = self._group_verdict(own)
        if verdict is not None and not state.is_flag:
            evidence = _evidence(verdict)
            reason = self._reason(verdict)
            yield Finding("flag", "anomalous_cohort", self._rows[:0], name, False, state.number, evidence, reason)
        elif verdict is None and state.is_flag:
            yield Finding("unflag", "anomalous_cohort", self._rows[:0], name, False, state.number, {})

    def _network(self, own: Rows) -> Iterator[Finding]:
        """Votes of one network on one day: the pseudonym of a network lasts no longer."""
        verdict = self._group_verdict(own)
        if verdict is None:
            return
        rows = self._rows[own]
        bits = flag_bits(("anomalous_cohort",))
        rows = rows[(self._columns["judged"][rows] & bits) == 0]
        battles = self._columns["battle"]
        free = [
            row for row in rows.tolist() if not self._state("anomalous_cohort", ("battle", int(battles[row]))).by_admin
        ]
        evidence = _evidence(verdict)
        for start in range(0, len(free), MAX_BATTLES):
            piece = np.array(free[start : start + MAX_BATTLES], dtype=np.int64)
            yield Finding("flag", "anomalous_cohort", piece, None, False, 0, evidence, self._reason(verdict))

    def _group_verdict(self, own: Rows) -> Surprise | None:
        """The surprise of a group's votes if it is anomalous."""
        verdict = judge_group(
            self._crowd,
            self._ballots.taken(own),
            self._columns["voter"][self._rows[own]],
            is_inside=self._is_believed[own],
            limit=self._rules.surprise_limit,
        )
        return verdict.pooled if verdict.is_anomalous(self._rules.surprise_limit) else None

    def _surprise(self, own: Rows) -> Surprise:
        inside = self._ballots.taken(own[self._is_believed[own]])
        return self._crowd.surprise(self._ballots.taken(own), inside=inside)

    def _about_voter(
        self,
        action: Literal["flag", "unflag"],
        flag: VoteFlag,
        row: Rows,
        state: _State,
        surprise: Surprise | None,
        note: str | None,
    ) -> Finding:
        evidence = {} if surprise is None else _evidence(surprise)
        return Finding(action, flag, row, None, True, state.number, evidence, note)

    def _reason(self, surprise: Surprise) -> str:
        """The alternative that explains the votes, in the words of docs/integrity.md."""
        if surprise.target is None:
            return surprise.alternative
        return f"{surprise.alternative} {self._names[surprise.target]}"


def _evidence(surprise: Surprise) -> dict[str, float]:
    return {"surprise": min(surprise.peak, MAX_SHOWN), "votes": float(surprise.num_votes)}


def _states(verdicts: Iterable[Verdict]) -> dict[tuple[int, Subject], _State]:
    """The last judgement of each flag about each subject."""
    states: dict[tuple[int, Subject], _State] = {}
    for verdict in verdicts:
        subjects: list[Subject] = [("battle", battle) for battle in verdict.battles]
        if verdict.voter != UNKNOWN:
            subjects.append(("voter", verdict.voter))
        if verdict.cohort is not None:
            subjects.append(("cohort", verdict.cohort))
        for subject in subjects:
            before = states.get((verdict.bits, subject), _State())
            states[verdict.bits, subject] = _State(verdict.is_flag, verdict.by_admin, before.number + 1)
    return states


def _grouped(keys: Rows, wanted: Rows) -> Iterator[tuple[int, Rows]]:
    """Each wanted key with the positions at which it stands, in their order."""
    positions = np.flatnonzero(np.isin(keys, wanted))
    order = positions[np.argsort(keys[positions], kind="stable")]
    found, starts = np.unique(keys[order], return_index=True)
    if len(found):
        yield from zip(found.tolist(), np.split(order, starts[1:]), strict=True)


def _num_voters(votes: TableSnapshot) -> int:
    voters = np.unique(votes.columns["voter"])
    return int(np.count_nonzero(voters != UNKNOWN))


def as_judgement(finding: Finding, *, battle_ids: tuple[str, ...], voter: str | None) -> Judgement:
    """The entry for the log; the log gives it its id and time."""
    return Judgement(
        judgement_id="",
        key=judgement_key(finding, battle_ids, voter),
        time=0.0,
        action=finding.action,
        flag=finding.flag,
        voter=voter,
        cohort=finding.cohort,
        battle_ids=battle_ids,
        by="judge",
        evidence=finding.evidence,
        note=finding.note,
    )
