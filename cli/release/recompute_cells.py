# %% [markdown]
# # The leaderboard, recomputed from the released votes
#
# Needs Python 3.11 or newer with numpy; with pyarrow the Parquet file is read, without it the JSON lines, which hold
# the same. The folder `code/ratings` is the code that fitted the board when the votes were released, so that every
# digit can be compared, also when newer versions fit in another way.

# %%
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, "code")

import numpy as np

from ratings.bradley_terry import POINTS
from ratings.options import FitOptions, needs_columns
from ratings.outcomes import OUTCOMES, Outcome, PairCounts
from ratings.ranking import Leaderboard, rank_board
from ratings.style import STYLE_FEATURES, AnswerStyle, VoteColumns, style_differences

# %% [markdown]
# One row is one vote. `flags` are the reasons why a vote is not rated, `boards` the names of the released boards that
# count it. `voter` and the ids are made for this release only.


# %%
STYLES = [f"{feature}_{side}" for side in "ab" for feature in STYLE_FEATURES]
NAMES = ["model_a", "model_b", "outcome", "boards", "voter", "probability", *STYLES]


def read_votes() -> dict[str, list[Any]]:
    """The columns of the released votes that the fits need."""
    columns: dict[str, list[Any]] = {name: [] for name in NAMES}
    known: dict[Any, Any] = {}  # equal values of two votes are kept once
    for row in read_rows():
        for name, column in columns.items():
            value = tuple(row[name]) if name == "boards" else row[name]
            column.append(known.setdefault(value, value))
    return columns


def read_rows() -> Iterator[dict[str, Any]]:
    """The released votes, one after the other."""
    try:
        from pyarrow import parquet
    except ImportError:
        with open("votes.jsonl", encoding="utf-8") as lines:
            yield from map(json.loads, lines)
        return
    for batch in parquet.ParquetFile("votes.parquet").iter_batches(10_000, columns=NAMES):
        yield from batch.to_pylist()


votes = read_votes()
claims = json.loads(Path("boards.json").read_text(encoding="utf-8"))
print(f"{len(votes['outcome'])} votes")

# %% [markdown]
# A board is a fit of the votes that it counts: Bradley-Terry (or Rao-Kupper) by maximum likelihood, with sandwich
# intervals. With style control or weights the fit reads every vote, otherwise the counts of each pair are enough.


# %%
def columns_of(board: str, models: list[str]) -> VoteColumns:
    """The votes of one board as the fits take them."""
    rows = [row for row, boards in enumerate(votes["boards"]) if board in boards]
    place = {model: position for position, model in enumerate(models)}

    def style(row: int, side: str) -> AnswerStyle:
        return AnswerStyle(*(votes[f"{feature}_{side}"][row] for feature in STYLE_FEATURES))

    known = [any(votes[name][row] for name in STYLES) for row in rows]
    chances = [votes["probability"][row] for row in rows]
    covariates = np.empty((len(rows), len(STYLE_FEATURES)))
    for position, row in enumerate(rows):
        covariates[position] = style_differences(style(row, "a"), style(row, "b"))
    return VoteColumns(
        models=tuple(models),
        features=STYLE_FEATURES,
        model_a=np.array([place[votes["model_a"][row]] for row in rows], dtype=np.int64),
        model_b=np.array([place[votes["model_b"][row]] for row in rows], dtype=np.int64),
        outcome=np.array([OUTCOMES.index(Outcome(votes["outcome"][row])) for row in rows], dtype=np.int64),
        weight=np.ones(len(rows)),
        covariates=covariates,
        probability=np.array([np.nan if chance is None else chance for chance in chances]),
        has_style=np.array(known, dtype=bool),
        voter=np.array([votes["voter"][row] for row in rows], dtype=np.int64),
    )


def recompute(claim: dict[str, Any]) -> Leaderboard:
    """The board that `claim` describes."""
    models = sorted(row["model"] for row in claim["view"]["rows"])
    options = FitOptions(**{**claim["options"], "anchor": tuple(claim["options"]["anchor"])})
    columns = columns_of(claim["board"], models)
    counts = PairCounts.from_arrays(models, columns.model_a, columns.model_b, columns.outcome)
    return rank_board(counts, columns if needs_columns(options) else None, options, models=models)


# %% [markdown]
# Every number of the published board against the one computed here. Equal means equal: no tolerance.


# %%
def plain(value: Any) -> Any:
    """Tuples as the lists that JSON has."""
    return [plain(part) for part in value] if isinstance(value, tuple | list) else value


def points(bound: float) -> float | None:
    """A bound of a coefficient in points of the board; None where the votes support none."""
    return float(POINTS * bound) if np.isfinite(bound) else None


def differences(claim: dict[str, Any], board: Leaderboard) -> list[str]:
    """What differs between the published board and `board`."""
    view = claim["view"]
    found = [] if len(board.rows) == len(view["rows"]) else ["the number of rows"]
    for published, row in zip(view["rows"], board.rows, strict=False):
        for name in ("model", "rating", "lower", "upper", "rank", "worst_rank", "votes", "wins", "losses", "ties"):
            if published[name] != getattr(row, name):
                found.append(f"{published['model']}: {name} is {published[name]}, computed {getattr(row, name)}")
        for name in ("both_bad", "win_rate", "votes_to_flip", "flags"):
            if published[name] != plain(getattr(row, name)):
                found.append(f"{published['model']}: {name} is {published[name]}, computed {getattr(row, name)}")
    for name in ("num_votes", "win_rate", "battle_count", "predicted", "anchor", "tie_points"):
        if view[name] != plain(getattr(board, name)):
            found.append(name)
    bias = board.position_bias
    if view["position_bias"] != (bias and {"points": bias.points, "lower": bias.lower, "upper": bias.upper}):
        found.append("position_bias")
    for published, effect in zip(view["coefficients"], board.coefficients, strict=True):
        bounds = (effect.feature, effect.points, points(effect.lower), points(effect.upper))
        if bounds != (published["feature"], published["points"], published["lower"], published["upper"]):
            found.append(f"the coefficient of {published['feature']}")
    return found


wrong: list[str] = []
for claim in claims:
    board = recompute(claim)
    print(f"\n{claim['board']}: {board.num_votes} votes, {claim['options']}")
    for row in board.rows:
        bounds = "" if row.lower is None else f"  {row.lower:7.1f} .. {row.upper:7.1f}"
        print(f"{row.rank:4d}  {row.model:40s} {row.rating:7.1f}{bounds}  {row.votes} votes")
    wrong += [f"{claim['board']}: {difference}" for difference in differences(claim, board)]
print("\n".join(["", *wrong]) if wrong else "\nEvery board is equal to the published one, to the last digit.")

# %%
assert not wrong, "the released votes do not give the published boards"
