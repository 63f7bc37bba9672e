"""Golden votes, read once, and shorthand to make votes."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from ratings.outcomes import PairCounts, Vote

DATA = Path(__file__).parent / "data"
OUTCOME_NAMES = {"left": "a", "model_a": "a", "right": "b", "model_b": "b", "tie": "tie", "both_bad": "both_bad"}


def read_rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="session")
def golden_votes() -> Callable[[str], list[Vote]]:
    """Votes of "food", "simple" or "ctx", the last with the covariate `len`."""

    def load(name: str) -> list[Vote]:
        return [
            Vote(
                row.get("left") or row["model_a"],
                row.get("right") or row["model_b"],
                OUTCOME_NAMES[row["winner"]],
                covariates=(float(row["len"]),) if "len" in row else (),
            )
            for row in read_rows(f"{name}.csv")
        ]

    return load


@pytest.fixture(scope="session")
def golden_scores() -> Callable[[str, str], dict[str, float]]:
    """Scores that an independent library published for "food" or "simple" under one algorithm."""

    def load(name: str, algorithm: str) -> dict[str, float]:
        rows = read_rows(f"{name}-golden.csv")
        return {row["item"]: float(row["score"]) for row in rows if row["algorithm"] == algorithm}

    return load


@pytest.fixture(scope="session")
def count_results() -> Callable[..., PairCounts]:
    """Counts from (model, other, wins, losses) or (model, other, wins, losses, ties)."""

    def count(*results: tuple[str, str, int, int] | tuple[str, str, int, int, int]) -> PairCounts:
        counts = PairCounts()
        for model, other, *numbers in results:
            for outcome, number in zip(("a", "b", "tie"), numbers, strict=False):
                if number:
                    counts.add(model, other, outcome, number)
        return counts

    return count
