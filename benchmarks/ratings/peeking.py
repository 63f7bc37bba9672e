"""How often looking at a board again and again finds a false "A is above B": python -m benchmarks.ratings.peeking

Writes benchmarks/results/ratings-peeking.json: for arenas of equal models (every statement is false) the share in which
any pair is told apart at any look, by 95 % intervals of the difference and by statements; and what the caution costs:
the share of true gaps that each of them tells apart after 5,000 votes.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.ratings.arenas import EVEN_TIES, UNEVEN_GAPS, Arena, Mode, one_look, strengths_of
from cli.bench.record import commit, machine
from ratings.outcomes import FloatArray
from ratings.ranking import MIN_VOTES
from ratings.sequential import decided_pairs

RESULT = Path("benchmarks/results/ratings-peeking.json")
PEEK_VOTES = 100


def peek(seed: int, *, gaps: tuple[float, ...], ties: float, mode: Mode, num_votes: int) -> dict[str, bool]:
    """Whether each method makes any false statement at any look in one arena."""
    arena = Arena(strengths_of(gaps), np.random.default_rng(seed), ties, mode)
    truth = arena.strengths[:, None] > arena.strengths[None, :]
    found = {"one_look": False, "statements": False}
    while arena.num_votes < num_votes:
        arena.vote(PEEK_VOTES)
        for method, above in _above(arena).items():
            found[method] |= bool((above & ~truth).any())
    return found


def resolve(seed: int, *, gaps: tuple[float, ...], ties: float, mode: Mode, num_votes: int) -> dict[str, float]:
    """The share of true gaps that each method tells apart in the end: of those between neighbours, and of all."""
    arena = Arena(strengths_of(gaps), np.random.default_rng(seed), ties, mode)
    while arena.num_votes < num_votes:
        arena.vote(PEEK_VOTES)
    shares = {}
    for method, above in _above(arena).items():
        shares[f"{method}, neighbours"] = float(np.diag(above, 1).mean())
        shares[f"{method}, all pairs"] = float(above[arena.pairs].mean())
    return shares


def _above(arena: Arena) -> dict[str, FloatArray]:
    """By method: whether it has the row above the column, where both have the votes that a board asks for."""
    fit = arena.fit()
    listed = fit.groups.core & (fit.tally.battles.sum(axis=1) >= MIN_VOTES)
    higher = fit.strengths[:, None] > fit.strengths[None, :]
    return {
        "one_look": one_look(fit) & np.outer(listed, listed),
        "statements": decided_pairs(fit.strengths, fit.covariance, listed) & higher,
    }


def _mean(pool: ProcessPoolExecutor, task: Callable[[int], dict[str, float]], num_arenas: int) -> dict[str, float]:
    sums: Counter[str] = Counter()
    for found in pool.map(task, range(num_arenas), chunksize=4):
        sums.update({method: float(value) for method, value in found.items()})
    return {method: round(total / num_arenas, 4) for method, total in sums.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arenas", type=int, default=1000)
    parser.add_argument("--votes", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    equal = {
        "10 equal models": ((0.0,) * 9, 0.0, "uniform"),
        "10 equal models, active pairing": ((0.0,) * 9, 0.0, "active"),
        "10 equal models, 30 % ties, active pairing": ((0.0,) * 9, EVEN_TIES, "active"),
        "10 equal models, 70 % ties, active pairing": ((0.0,) * 9, 0.7, "active"),
        "2 equal models, 30 % ties": ((0.0,), EVEN_TIES, "active"),
        "5 pairs of copies, 30 % ties, active pairing": ((0.0, 60.0) * 4 + (0.0,), EVEN_TIES, "active"),
    }
    with ProcessPoolExecutor(options.processes) as pool:
        false = {
            name: _mean(pool, partial(peek, gaps=gaps, ties=ties, mode=mode, num_votes=options.votes), options.arenas)
            for name, (gaps, ties, mode) in equal.items()
        }
        resolved = {
            mode: _mean(
                pool,
                partial(resolve, gaps=UNEVEN_GAPS, ties=EVEN_TIES, mode=mode, num_votes=5000),
                min(options.arenas, 200),
            )
            for mode in ("uniform", "active")
        }
    report = {
        "benchmark": "ratings.peeking",
        "commit": commit(),
        "machine": {**machine(), "numpy": np.__version__},
        "arenas": options.arenas,
        "votes": options.votes,
        "looks": options.votes // PEEK_VOTES,
        "false_statement_at_any_look": false,
        "true_gaps_resolved_at_5000_votes": resolved,
    }
    RESULT.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
