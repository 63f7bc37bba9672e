"""Our ratings and intervals against evalica, choix, arena-rank and statsmodels, on golden and on random votes.

`python -m benchmarks.peers setup ratings` makes their environment.
"""

import csv
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.environments import python_of
from benchmarks.ratings.speed import make_votes
from ratings.bradley_terry import fit_bradley_terry
from ratings.errors import RatingsError
from ratings.outcomes import OUTCOMES, Outcome
from ratings.rao_kupper import fit_rao_kupper
from ratings.style import VoteColumns, fit_votes

DATA = Path(__file__).parents[2] / "tests" / "ratings" / "data"
_OUTCOMES = {"left": "a", "model_a": "a", "right": "b", "model_b": "b", "tie": "tie", "both_bad": "both_bad"}
_EXACT = ("evalica", "choix", "statsmodels")


def measure_agreement(num_random: int = 200, num_large: int = 200_000) -> dict[str, Any]:
    """Largest differences in rating points, by set of votes and library, and what each took for the large set."""
    golden = {name: golden_votes(name) for name in ("food", "simple", "ctx")}
    drawn = random_sets(num_random)
    large = make_votes(num_large, 60)
    asked = [
        *(_asked(votes, (*_EXACT, "arena_rank")) for votes in golden.values()),
        _asked(golden["ctx"], ("statsmodels_style", "ordered_logit")),
        *(_asked(votes, (*_EXACT, "arena_rank") if index < 10 else _EXACT) for index, votes in enumerate(drawn)),
        _asked(large, (*_EXACT, "arena_rank")),
    ]
    answers = _ask(asked)
    names = [*golden, "ctx", *["random"] * len(drawn), "large"]
    figures: dict[str, Any] = {"num_random_sets": len(drawn), "num_large": num_large, "largest_difference_points": {}}
    for name, votes, answer in zip(names, [*golden.values(), golden["ctx"], *drawn, large], answers, strict=True):
        by_library = figures["largest_difference_points"].setdefault(name, {})
        for library, theirs in answer.items():
            ratings, half_widths = _ours(votes, library)
            seen = by_library.setdefault(library, {"rating": 0.0})
            seen["rating"] = max(seen["rating"], _difference(ratings, theirs["ratings"]))
            if theirs["half_widths"] is not None:
                seen["half_width"] = max(seen.get("half_width", 0.0), _difference(half_widths, theirs["half_widths"]))
    figures["style"] = _style_difference(golden["ctx"], answers[len(golden)]["statsmodels_style"])
    width = fit_rao_kupper(golden["ctx"].counts()).tie_width
    figures["tie_width_difference"] = abs(width - answers[len(golden)]["ordered_logit"]["tie_width"])
    figures["seconds_for_the_large_set"] = {name: round(theirs["seconds"], 3) for name, theirs in answers[-1].items()}
    return figures


def golden_votes(name: str) -> VoteColumns:
    """The votes of tests/ratings/data/NAME.csv, with the covariate `len` where there is one."""
    with (DATA / f"{name}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    sides = [(row.get("left") or row["model_a"], row.get("right") or row["model_b"]) for row in rows]
    models = tuple(sorted({model for pair in sides for model in pair}))
    a, b = (np.array([models.index(pair[side]) for pair in sides]) for side in (0, 1))
    outcome = np.array([OUTCOMES.index(Outcome(_OUTCOMES[row["winner"]])) for row in rows])
    covariates = np.array([[float(row["len"])] if "len" in row else [] for row in rows])
    return VoteColumns(models, ("len",) if covariates.shape[1] else (), a, b, outcome, np.ones(len(a)), covariates)


def random_sets(number: int, seed: int = 9) -> list[VoteColumns]:
    """Sets of 20 to 400 votes of 3 to 12 models in which every model can be compared with every other."""
    rng, sets = np.random.default_rng(seed), []
    while len(sets) < number:
        size, num_votes = int(rng.integers(3, 13)), int(rng.integers(20, 401))
        truth = rng.normal(0.0, 0.8, size)
        a = rng.integers(size, size=num_votes)
        b = (a + rng.integers(1, size, size=num_votes)) % size
        a_wins = rng.random(num_votes) < 1 / (1 + np.exp(truth[b] - truth[a]))
        outcome = np.where(rng.random(num_votes) < 0.25, 2, np.where(a_wins, 0, 1))
        names = tuple(f"m{index:03}" for index in range(size))
        votes = VoteColumns(names, (), a, b, outcome, np.ones(num_votes), np.zeros((num_votes, 0)))
        if len(votes.counts().models) == size and fit_bradley_terry(votes.counts()).groups.core.all():
            sets.append(votes)
    return sets


def _ours(votes: VoteColumns, library: str) -> tuple[Any, Any]:
    if library == "ordered_logit":
        fit = fit_rao_kupper(votes.counts().tally(votes.models))
    elif library == "statsmodels_style":
        fit = fit_votes(votes, penalty=0.0).fit
    else:
        fit = fit_bradley_terry(votes.counts().tally(votes.models))
    return fit.ratings, fit.half_widths


def _style_difference(votes: VoteColumns, theirs: dict[str, Any]) -> dict[str, float]:
    ours = fit_votes(votes, penalty=0.0).coefficients[0]
    error = (ours.upper - ours.lower) / 2 / 1.959963984540054
    return {
        "coefficient": abs(ours.value - theirs["coefficient"]),
        "relative_error_of_its_error": abs(error / theirs["error"] - 1.0),
    }


def _asked(votes: VoteColumns, libraries: tuple[str, ...]) -> dict[str, Any]:
    return {
        "models": list(votes.models),
        "model_a": votes.model_a.tolist(),
        "model_b": votes.model_b.tolist(),
        "score": votes.score.tolist(),
        "covariate": votes.covariates[:, 0].tolist() if votes.features == ("len",) else None,
        "libraries": list(libraries),
    }


def _ask(asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Raises FileNotFoundError without the environment, RatingsError if a library fails."""
    script = Path(__file__).parent / "other_libraries.py"
    quiet = {**os.environ, "JAX_PLATFORMS": "cpu"}
    answer = subprocess.run(
        [str(python_of("ratings")), str(script)], input=json.dumps(asked), capture_output=True, text=True, env=quiet
    )
    if answer.returncode:
        raise RatingsError(answer.stderr[-2000:])
    found: list[dict[str, Any]] = json.loads(answer.stdout)
    return found


def _difference(ours: Any, theirs: list[float]) -> float:
    return float(np.abs(np.asarray(ours) - np.asarray(theirs)).max())
