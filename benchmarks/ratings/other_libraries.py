"""Ratings by evalica, choix, arena-rank and statsmodels. Runs in their own environment and imports nothing of Agon.

Standard input: a JSON list of sets of votes {"models", "model_a", "model_b", "score", "covariate", "libraries"}, the
covariate perhaps null. Standard output: for each set {library: {"ratings", "half_widths" or null, "seconds", ...}} on
the scale of 400 points per factor ten, the mean being 1000.
"""

import json
import math
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np

POINTS = 400 / math.log(10)
NORMAL_975 = 1.959963984540054

Votes = dict[str, object]


def main() -> None:
    warnings.simplefilter("ignore")
    answers = []
    for votes in json.load(sys.stdin):
        given = {key: np.array(votes[key]) for key in ("model_a", "model_b", "score")}
        arrays = (given["model_a"], given["model_b"], given["score"], len(votes["models"]))
        answer = {}
        for library in votes["libraries"]:
            if library == "statsmodels_style":
                answer[library] = statsmodels_style(*arrays, np.array(votes["covariate"]))
            else:
                answer[library] = LIBRARIES[library](*arrays)
        answers.append(answer)
    json.dump(answers, sys.stdout)


def by_evalica(a: np.ndarray, b: np.ndarray, score: np.ndarray, size: int) -> dict:
    import evalica

    names, winners = [f"m{index:03}" for index in range(size)], {1.0: evalica.Winner.X, 0.0: evalica.Winner.Y}
    xs, ys = [names[index] for index in a], [names[index] for index in b]
    won = [winners.get(points, evalica.Winner.Draw) for points in score.tolist()]
    start = time.perf_counter()
    evalica.bradley_terry(xs, ys, won)
    seconds = time.perf_counter() - start
    scores = evalica.bradley_terry(xs, ys, won, tolerance=1e-12, limit=1_000_000).scores
    return answer_of(np.log(scores.loc[names].to_numpy()), None, seconds)


def by_choix(a: np.ndarray, b: np.ndarray, score: np.ndarray, size: int) -> dict:
    import choix

    # It knows no ties: each vote twice, a tie once for either side.
    wins = [
        pair
        for i, j, points in zip(a.tolist(), b.tolist(), score.tolist(), strict=True)
        for pair in doubled(i, j, points)
    ]
    start = time.perf_counter()
    strengths = choix.ilsr_pairwise(size, wins, alpha=0.0, max_iter=10_000, tol=1e-10)
    return answer_of(strengths, None, time.perf_counter() - start)


def doubled(i: int, j: int, points: float) -> list[tuple[int, int]]:
    return [(i, j)] * round(2 * points) + [(j, i)] * round(2 - 2 * points)


def by_arena_rank(a: np.ndarray, b: np.ndarray, score: np.ndarray, size: int) -> dict:
    import pandas as pd
    from arena_rank.models.bradley_terry import BradleyTerry
    from arena_rank.utils.data_utils import PairDataset

    names = np.array([f"m{index:03}" for index in range(size)])
    winner = np.where(score == 1.0, "model_a", np.where(score == 0.0, "model_b", "tie"))
    frame = pd.DataFrame({"model_a": names[a], "model_b": names[b], "winner": winner})
    start = time.perf_counter()
    data = PairDataset.from_pandas(frame)
    result = BradleyTerry(size).compute_ratings_and_cis(data)
    seconds = time.perf_counter() - start
    ratings = np.asarray(result["ratings"])
    half = (np.asarray(result["rating_upper"]) - np.asarray(result["rating_lower"])) / 2
    return {"ratings": (ratings - ratings.mean() + 1000).tolist(), "half_widths": half.tolist(), "seconds": seconds}


def by_statsmodels(a: np.ndarray, b: np.ndarray, score: np.ndarray, size: int) -> dict:
    """A generalised linear model with a robust covariance; a tie is a response of one half."""
    import statsmodels.api as sm

    start = time.perf_counter()
    fit = sm.GLM(score, design_of(a, b, size), family=sm.families.Binomial()).fit(cov_type="HC0", tol=1e-12)
    seconds = time.perf_counter() - start
    return answer_of(*centred(fit.params, fit.cov_params(), size), seconds)


def statsmodels_style(a: np.ndarray, b: np.ndarray, score: np.ndarray, size: int, covariate: np.ndarray) -> dict:
    import statsmodels.api as sm

    z = (covariate - covariate.mean()) / covariate.std()
    design = np.column_stack([design_of(a, b, size), z])
    start = time.perf_counter()
    fit = sm.GLM(score, design, family=sm.families.Binomial()).fit(cov_type="HC0", tol=1e-12)
    seconds = time.perf_counter() - start
    strengths, covariance = centred(fit.params[: size - 1], fit.cov_params()[: size - 1, : size - 1], size)
    answer = answer_of(strengths, covariance, seconds)
    return {**answer, "coefficient": float(fit.params[-1]), "error": float(fit.bse[-1])}


def ordered_logit(a: np.ndarray, b: np.ndarray, score: np.ndarray, size: int) -> dict:
    """The Rao-Kupper model is an ordered logit whose two thresholds are opposite: each vote with its mirror image."""
    from statsmodels.miscmodels.ordinal_model import OrderedModel

    design = design_of(a, b, size)
    both, outcome = np.concatenate([design, -design]), np.concatenate([2 * score, 2 - 2 * score])
    start = time.perf_counter()
    model = OrderedModel(outcome, both, distr="logit")
    fit = model.fit(method="newton", disp=False, maxiter=200, tol=1e-12)
    seconds = time.perf_counter() - start
    thresholds = model.transform_threshold_params(fit.params)[1:-1]
    strengths, _ = centred(fit.params[: size - 1], np.zeros((size - 1, size - 1)), size)
    return {**answer_of(strengths, None, seconds), "tie_width": float(thresholds[1])}


def design_of(a: np.ndarray, b: np.ndarray, size: int) -> np.ndarray:
    """One column per model but the last, whose strength is zero."""
    design = np.zeros((len(a), size))
    design[np.arange(len(a)), a] = 1.0
    design[np.arange(len(a)), b] = -1.0
    return design[:, :-1]


def centred(strengths: np.ndarray, covariance: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    full, wide = np.append(strengths, 0.0), np.zeros((size, size))
    wide[:-1, :-1] = covariance
    contrast = np.eye(size) - 1.0 / size
    return contrast @ full, contrast @ wide @ contrast.T


def answer_of(strengths: np.ndarray, covariance: np.ndarray | None, seconds: float) -> dict:
    half = None if covariance is None else (NORMAL_975 * POINTS * np.sqrt(np.diag(covariance))).tolist()
    return {
        "ratings": (1000 + POINTS * (strengths - strengths.mean())).tolist(),
        "half_widths": half,
        "seconds": seconds,
    }


LIBRARIES: dict[str, Callable[..., dict]] = {
    "evalica": by_evalica,
    "choix": by_choix,
    "arena_rank": by_arena_rank,
    "statsmodels": by_statsmodels,
    "ordered_logit": ordered_logit,
}


if __name__ == "__main__":
    main()
