"""How many votes tell all neighbours of a board apart, by the way of drawing: python -m benchmarks.ratings.separation

Writes benchmarks/results/ratings-separation.json: medians over simulated arenas of the votes until all neighbours are
in order and apart, by 95 % intervals of the difference (one look) and by statements that hold at any time; how well
`votes_needed` foretold the latter; whether intervals still cover under adaptive drawing; what two copies of a model
take of the draws; and what weighing, drawing and stating cost.
"""

import argparse
import json
import math
import random
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ratings.arenas import EVEN_TIES, UNEVEN_GAPS, Arena, Mode, one_look, strengths_of
from cli.bench.record import commit, machine
from ratings.bradley_terry import NORMAL_975
from ratings.outcomes import PairCounts
from ratings.pairing import PairTable, misordering
from ratings.sequential import decided_pairs, neighbour_statements

RESULT = Path("benchmarks/results/ratings-separation.json")
BATCH = 200  #: votes between two weighings and looks
MOST_VOTES = 400_000
FORECAST_AT = 5000
QUANTILES = {"p10": 0.1, "p25": 0.25, "median": 0.5, "p75": 0.75, "p90": 0.9}

Figures = dict[str, float | None]


def separate(seed: int, *, gaps: tuple[float, ...], ties: float, mode: Mode, batch: int) -> Figures:
    """Votes until each method tells all neighbours of one arena apart. Other entries: `votes_needed` of each two that
    were neighbours at FORECAST_AT votes, over the votes that it took."""
    arena = Arena(strengths_of(gaps), np.random.default_rng(seed), ties, mode)
    waiting: list[tuple[int, int, int]] = []
    found: Figures = {"one_look": None, "statements": None, "largest_share": 0.0}
    while arena.num_votes < MOST_VOTES and None in (found["one_look"], found["statements"]):
        arena.vote(batch)
        fit = arena.fit()
        found["largest_share"] = max(found["largest_share"] or 0.0, float(arena.shares.max()))
        if not fit.groups.core.all():
            continue
        is_ordered = bool((np.diff(fit.strengths) < 0).all())
        decided = decided_pairs(fit.strengths, fit.covariance)
        if found["one_look"] is None and is_ordered and np.diag(one_look(fit), 1).all():
            found["one_look"] = arena.num_votes
        if found["statements"] is None and is_ordered and np.diag(decided, 1).all():
            found["statements"] = arena.num_votes
        for first, second, needed in [pair for pair in waiting if decided[pair[:2]]]:
            waiting.remove((first, second, needed))
            found[f"{len(waiting)} left"] = needed / (arena.num_votes - FORECAST_AT)
        if arena.num_votes == FORECAST_AT:
            order = np.argsort(-fit.strengths)
            names = [arena.names[i] for i in order]
            said = neighbour_statements(names, arena.names, fit.strengths, fit.covariance, FORECAST_AT)
            waiting = [
                (first, second, statement.votes_needed)
                for first, second, statement in zip(order[:-1].tolist(), order[1:].tolist(), said, strict=True)
                if statement.votes_needed is not None
            ]
    return found


def cover(seed: int, *, mode: Mode, num_votes: int) -> Figures:
    """The share of differences between two of ten models that their 95 % intervals cover. Voters never tie: ties
    counted as half a win change the scale, and with it what there is to cover."""
    arena = Arena(strengths_of(UNEVEN_GAPS), np.random.default_rng(seed), 0.0, mode)
    while arena.num_votes < num_votes:
        arena.vote(BATCH)
    fit = arena.fit()
    variances = np.diag(fit.covariance)
    errors = np.sqrt(np.maximum(variances[:, None] + variances[None, :] - 2.0 * fit.covariance, 1e-12))
    missed = fit.strengths[:, None] - fit.strengths[None, :] - (arena.strengths[:, None] - arena.strengths[None, :])
    return {"covered": float((np.abs(missed) < NORMAL_975 * errors)[arena.pairs].mean())}


def copies(seed: int, *, num_votes: int) -> Figures:
    """Two of ten models are the same: the share of all votes between them."""
    arena = Arena(strengths_of((*UNEVEN_GAPS[:-1], 0)), np.random.default_rng(seed))
    while arena.num_votes < num_votes:
        arena.vote(BATCH)
    return {"share": float(arena.tally.battles[-1, -2] / num_votes)}


def costs(num_models: int, num_votes: int = 2_000_000) -> dict[str, float]:
    """What the controller pays: weighing and a table in milliseconds, a draw in microseconds, statements in
    milliseconds."""
    rng = np.random.default_rng(0)
    strengths = rng.normal(0.0, 0.8, num_models)
    a = rng.integers(num_models, size=num_votes)
    b = (a + rng.integers(1, num_models, size=num_votes)) % num_models
    outcome = (rng.random(num_votes) > 1 / (1 + np.exp(strengths[b] - strengths[a]))).astype(np.int64)
    counts = PairCounts.from_arrays([f"{index:03}" for index in range(num_models)], a, b, outcome)
    arena = Arena(strengths, rng, 0.0, "uniform")
    arena.vote(num_votes)
    fit = arena.fit()
    order = [fit.models[i] for i in np.argsort(-fit.strengths)]
    system = random.SystemRandom()

    def milliseconds(action: Callable[[], object], repeats: int) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(repeats):
                action()
            times.append(1000 * (time.perf_counter() - start) / repeats)
        return min(times)

    weights = misordering(counts.tally())
    table = PairTable(counts.models, weights)
    return {
        "weighing_ms": round(milliseconds(lambda: misordering(counts.tally()), 1), 1),
        "table_ms": round(milliseconds(lambda: PairTable(counts.models, weights), 3), 2),
        "draw_us": round(1000 * milliseconds(lambda: table.draw(system), 2000), 1),
        "statements_ms": round(
            milliseconds(lambda: neighbour_statements(order, fit.models, fit.strengths, fit.covariance, num_votes), 1),
            1,
        ),
    }


def _summary(rows: list[Figures]) -> dict[str, Any]:
    """Quantiles; a method that never got there counts as infinitely late (null)."""

    def spread(values: list[float]) -> dict[str, float | None]:
        ordered = sorted(values)
        at = {name: ordered[int(share * (len(ordered) - 1))] for name, share in QUANTILES.items()}
        return {name: round(value, 3) if math.isfinite(value) else None for name, value in at.items()}

    late = {
        name: [math.inf if (votes := row[name]) is None else votes for row in rows]
        for name in ("one_look", "statements")
    }
    forecasts = [ratio for row in rows for name, ratio in row.items() if name.endswith(" left") and ratio is not None]
    return {
        **{name: spread(values) for name, values in late.items()},
        "largest_share_of_a_pair": round(max(row["largest_share"] or 0.0 for row in rows), 3),
        f"votes_needed_at_{FORECAST_AT}_over_votes_it_took": spread(forecasts) if forecasts else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arenas", type=int, default=160)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    boards = {
        "10 uneven models": (UNEVEN_GAPS, 0.0, BATCH),
        "10 uneven models, 30 % ties": (UNEVEN_GAPS, EVEN_TIES, BATCH),
        "3 models": ((60, 45), EVEN_TIES, 20),
        "30 models, 20 points apart": ((20,) * 29, EVEN_TIES, 1000),
    }
    modes: tuple[Mode, ...] = ("uniform", "win_rate_error", "active")
    with ProcessPoolExecutor(options.processes) as pool:

        def gather(task: Callable[[int], Figures], num_arenas: int) -> list[Figures]:
            return list(pool.map(task, range(num_arenas), chunksize=2))

        separation = {
            name: {
                mode: _summary(
                    gather(
                        partial(separate, gaps=gaps, ties=ties, mode=mode, batch=batch),
                        options.arenas if len(gaps) < 20 else max(4, options.arenas // 8),
                    )
                )
                for mode in modes
            }
            for name, (gaps, ties, batch) in boards.items()
        }
        coverage = {
            mode: round(
                float(np.mean([row["covered"] for row in gather(partial(cover, mode=mode, num_votes=n), 200)])), 4
            )
            for mode, n in (("uniform", 5000), ("active", 5000))
        }
        clones = {
            str(n): round(float(np.mean([row["share"] for row in gather(partial(copies, num_votes=n), 20)])), 3)
            for n in (5000, 50_000)
        }
    report = {
        "benchmark": "ratings.separation",
        "commit": commit(),
        "machine": {**machine(), "numpy": np.__version__},
        "arenas": options.arenas,
        "votes_until_all_neighbours_are_apart": separation,
        "coverage_of_differences_at_5000_votes": coverage,
        "share_of_votes_between_two_copies": clones,
        "costs_by_number_of_models": {str(size): costs(size) for size in (10, 60, 200)},
    }
    RESULT.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
