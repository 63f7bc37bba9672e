"""A vote log in memory that is judged as a running arena's is: by the judge's own rules, on the boards' own table."""

from dataclasses import dataclass

import numpy as np

from benchmarks.integrity.voters import Voter
from controller.votes.boards.vote_table import Column, TableSnapshot, VoteTable
from controller.votes.integrity.findings import Rules, as_judgement, judge_votes
from ratings.bradley_terry import fit_bradley_terry
from ratings.outcomes import FloatArray, PairCounts
from wire.votes import IdentityKind, VotedSide, VoteRecord

DAY_S = 86_400
_FIRST_DAY = 20_000 * DAY_S
_PASSES = 4


@dataclass(frozen=True)
class Identity:
    """As whom a voter is known."""

    name: str
    network: str
    kind: IdentityKind = "cookie"


class ArenaLog:
    """Owns a table of votes between `num_models` models, drawn evenly, and what the judge has said of them."""

    def __init__(self, num_models: int, rng: np.random.Generator) -> None:
        self.rng = rng
        self._num_models = num_models
        self._table = VoteTable()
        self._battles: list[str] = []
        self._voters: list[str] = []
        self._pending: list[VoteRecord] = []
        self._num_judged = 0
        self.num_opened = 0  #: battles, with and without a vote

    def copy(self, seed: int) -> "ArenaLog":
        """The same votes and judgements, to go on with other votes."""
        self.flush()
        copy = ArenaLog(self._num_models, np.random.default_rng(seed))
        copy._table = VoteTable.restored(self._table.snapshot())
        copy._battles, copy._voters, copy._num_judged = list(self._battles), list(self._voters), self._num_judged
        return copy

    def vote(self, identity: Identity, voter: Voter, *, day: float) -> None:
        """Draw battles until this voter votes in one. `day` counts from the first day of the log."""
        while True:
            a = int(self.rng.integers(self._num_models))
            b = (a + int(self.rng.integers(1, self._num_models))) % self._num_models
            self.num_opened += 1
            outcome = voter(self.rng, a, b)
            if outcome is not None:
                break
        number = len(self._battles)
        self._battles.append(f"battle-{number}")
        self._voters.append(identity.name)
        self._pending.append(
            VoteRecord(
                vote_id=f"{number + 1}-0",
                battle_id=self._battles[-1],
                time=_FIRST_DAY + day * DAY_S,
                mode="anonymous",
                outcome=outcome.value,
                a=VotedSide(model=f"model-{a:02}", revision="1"),
                b=VotedSide(model=f"model-{b:02}", revision="1"),
                voter=identity.name,
                prompt=f"prompt-{number}",
                identity=identity.kind,
                network=f"{identity.network}-{int(day)}",
            )
        )

    def flush(self) -> None:
        """Take the votes since the last flush into the table."""
        self._table.add(self._pending)
        self._pending = []

    def judge(self, rules: Rules) -> None:
        """Rounds of the judge on the votes since the last call, until it finds nothing more."""
        self.flush()
        for _ in range(_PASSES):
            found = judge_votes(self._table.snapshot(), rules, since=self._num_judged).findings
            self._table.judge(
                [
                    as_judgement(
                        finding,
                        battle_ids=()
                        if finding.is_about_voter
                        else tuple(self._battles[row] for row in finding.rows.tolist()),
                        voter=self._voters[int(finding.rows[0])] if finding.is_about_voter else None,
                    )
                    for finding in found
                ]
            )
            if not found:
                break
        self._num_judged = len(self._battles)

    @property
    def votes(self) -> TableSnapshot:
        """All votes that were flushed."""
        return self._table.snapshot()

    def is_by(self, prefix: str) -> Column:
        """Mask over the votes: whether the voter's name begins so."""
        return np.array([name.startswith(prefix) for name in self._voters], dtype=np.bool_)

    def strengths(self, kept: Column) -> FloatArray:
        """Of all models by the votes of the mask, in their order."""
        columns = self.votes.columns
        names = tuple(model for model, _ in self.votes.contestants)
        counts = PairCounts.from_arrays(names, *(columns[name][kept] for name in ("a", "b", "outcome")))
        models = [f"model-{index:02}" for index in range(self._num_models)]
        return fit_bradley_terry(counts.tally(models)).strengths

    def rank(self, model: int, kept: Column) -> int:
        """Of the model by the votes of the mask; 1 is the best."""
        strengths = self.strengths(kept)
        return 1 + int((strengths > strengths[model]).sum())
