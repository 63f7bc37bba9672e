"""How long a leaderboard takes, from raw votes and from counts, with every option.

The aim is 200,000 votes of 60 models, intervals included, in under half a second on two cores.
"""

import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ratings.bradley_terry import fit_bradley_terry
from ratings.options import FitOptions
from ratings.outcomes import OUTCOMES, PairCounts
from ratings.ranking import rank_board, rank_models
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
    return VoteColumns(
        names,
        STYLE_FEATURES,
        a,
        b,
        outcome,
        np.ones(num_votes),
        rng.uniform(-1, 1, (num_votes, len(STYLE_FEATURES))),
        probability=np.full(num_votes, 2.0 / (num_models * (num_models - 1))),
        voter=rng.integers(max(1, num_votes // 20), size=num_votes),
    )


def seconds(action: Callable[[], object], repeats: int) -> float:
    """CPU seconds, the median over `repeats` runs after one that is not counted."""
    action()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return round(statistics.median(times), 4)


def measure_speed(num_votes: int = 200_000, num_models: int = 60, repeats: int = 5) -> dict[str, Any]:
    """Seconds of each way to the board, medians of `repeats` runs."""
    votes = make_votes(num_votes, num_models)
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

    def board(**options: Any) -> Callable[[], object]:
        return lambda: rank_board(counts, votes, FitOptions(**options))

    actions: dict[str, Callable[[], object]] = {
        "leaderboard_from_arrays_s": lambda: rank_models(PairCounts.from_arrays(votes.models, *columns)),
        "fold_arrays_s": lambda: PairCounts.from_arrays(votes.models, *columns),
        "fold_vote_by_vote_s": fold_one_by_one,
        "fit_with_intervals_s": lambda: fit_bradley_terry(counts),
        "leaderboard_from_counts_s": lambda: rank_models(counts),
        "leaderboard_rao_kupper_s": board(fit="rao_kupper"),
        "leaderboard_by_propensity_s": board(weighting="propensity"),
        "leaderboard_by_voters_s": board(weighting="voters"),
        "leaderboard_at_equal_style_s": board(style=True),
        "leaderboard_at_equal_style_rao_kupper_s": board(style=True, fit="rao_kupper"),
    }
    sizes = {"num_votes": num_votes, "num_models": num_models}
    return {**sizes, **{name: seconds(action, repeats) for name, action in actions.items()}}


#: Runs the code of any commit: prints seconds of CPU from arrays and from counts to the board, best of five.
_SCRIPT = """
import json, sys, time
import numpy as np
from ratings.outcomes import PairCounts
from ratings.ranking import rank_models
num_votes, num_models = int(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(0)
strengths = rng.normal(0.0, 0.8, num_models)
a = rng.integers(num_models, size=num_votes)
b = (a + rng.integers(1, num_models, size=num_votes)) % num_models
a_wins = rng.random(num_votes) < 1 / (1 + np.exp(strengths[b] - strengths[a]))
outcome = np.where(rng.random(num_votes) < 0.3, 2, np.where(a_wins, 0, 1))
names = tuple(f"model-{index:02}" for index in range(num_models))
counts = PairCounts.from_arrays(names, a, b, outcome)
def best(action):
    action()
    times = []
    for _ in range(5):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)
print(json.dumps({
    "from_arrays_s": best(lambda: rank_models(PairCounts.from_arrays(names, a, b, outcome))),
    "from_counts_s": best(lambda: rank_models(counts)),
}))
"""


def compare_speed(commit: str, num_votes: int = 200_000, num_models: int = 60, rounds: int = 7) -> dict[str, Any]:
    """CPU seconds to the board, intervals included, of this tree and of `commit`, in turns: medians of the rounds.
    Raises CalledProcessError if there is no such commit."""
    root = Path(__file__).parents[2]
    found: dict[str, list[dict[str, float]]] = {"now": [], commit: []}
    with tempfile.TemporaryDirectory(prefix="agon-ratings-") as folder:
        archive = subprocess.run(["git", "archive", commit, "ratings"], cwd=root, capture_output=True, check=True)
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        for _ in range(rounds):
            for name, place in (("now", str(root)), (commit, folder)):
                # One thread: a second one only spins beside matrices of this size.
                settings = {**os.environ, "PYTHONPATH": place, "OPENBLAS_NUM_THREADS": "1"}
                command = [sys.executable, "-P", "-c", _SCRIPT, str(num_votes), str(num_models)]
                answer = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=True)
                found[name].append(json.loads(answer.stdout))
    return {
        name: {key: round(statistics.median(run[key] for run in runs), 4) for key in runs[0]}
        for name, runs in found.items()
    }
