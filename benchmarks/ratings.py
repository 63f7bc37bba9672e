"""How long a leaderboard takes from raw votes: python -m benchmarks.ratings [--votes N] [--models K]

Prints one JSON object with the commit and the machine. The aim is 200,000 votes of 60 models, intervals included, in
under half a second on two cores.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np

from cli.bench.record import commit, machine
from ratings.bootstrap import bootstrap_intervals
from ratings.bradley_terry import fit_bradley_terry
from ratings.outcomes import OUTCOMES, PairCounts
from ratings.ranking import rank_models, rank_with_style
from ratings.style import STYLE_FEATURES, VoteColumns


def make_votes(num_votes: int, num_models: int, seed: int = 0) -> VoteColumns:
    """Votes between models of normally spread strength, 30 % of them ties."""
    rng = np.random.default_rng(seed)
    strengths = rng.normal(0.0, 0.8, num_models)
    a = rng.integers(num_models, size=num_votes)
    b = (a + rng.integers(1, num_models, size=num_votes)) % num_models
    a_wins = rng.random(num_votes) < 1 / (1 + np.exp(strengths[b] - strengths[a]))
    outcome = np.where(rng.random(num_votes) < 0.3, 2, np.where(a_wins, 0, 1))
    names = tuple(f"model-{index:02}" for index in range(num_models))
    covariates = rng.uniform(-1, 1, (num_votes, len(STYLE_FEATURES)))
    return VoteColumns(names, STYLE_FEATURES, a, b, outcome, np.ones(num_votes), covariates)


def seconds(action: Callable[[], object], repeats: int) -> float:
    """Median over `repeats` runs, after one that is not counted."""
    action()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return round(statistics.median(times), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--votes", type=int, default=200_000)
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()

    votes = make_votes(options.votes, options.models)
    columns = (votes.model_a, votes.model_b, votes.outcome)
    counts = PairCounts.from_arrays(votes.models, *columns)
    rows = [
        (votes.models[a], votes.models[b], OUTCOMES[o])
        for a, b, o in zip(*map(np.ndarray.tolist, columns), strict=True)
    ]

    def fold_one_by_one() -> None:
        folded = PairCounts()
        for model_a, model_b, outcome in rows:
            folded.add(model_a, model_b, outcome)

    def board_from_arrays() -> object:
        return rank_models(PairCounts.from_arrays(votes.models, *columns))

    actions: dict[str, Callable[[], object]] = {
        "leaderboard_from_arrays_s": board_from_arrays,
        "fold_arrays_s": lambda: PairCounts.from_arrays(votes.models, *columns),
        "fold_vote_by_vote_s": fold_one_by_one,
        "fit_with_intervals_s": lambda: fit_bradley_terry(counts),
        "leaderboard_from_counts_s": lambda: rank_models(counts),
        "leaderboard_reweighted_s": lambda: rank_models(counts, reweighted=True),
        "leaderboard_at_equal_style_s": lambda: rank_with_style(votes),
        "bootstrap_200_rounds_s": lambda: bootstrap_intervals(counts, np.random.default_rng(0), rounds=200),
    }
    report = {
        "benchmark": "ratings",
        "commit": commit(),
        "machine": {**machine(), "numpy": np.__version__},
        "num_votes": options.votes,
        "num_models": options.models,
        **{name: seconds(action, options.repeats) for name, action in actions.items()},
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
