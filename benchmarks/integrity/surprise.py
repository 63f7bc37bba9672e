"""Whom the test of voters finds, and how many honest voters it accuses: python -m benchmarks.integrity.surprise.

Each arena has 20 models, 140 points of standard deviation, honest voters with 20 votes each (Bradley-Terry with Rao and
Kupper's ties), and a few voters of every kind below, who all cast as many votes. Prints a table; --output writes JSON.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ratings.voters import SURPRISE_LIMIT, Ballots, Crowd, blocks_of

NUM_MODELS = 20
SPREAD = 0.8  #: standard deviation of true log strengths
TIE = 1.8  #: 29 % of even matches are ties
PER_ARENA = {"honest": 10, "riggers": 3}

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Cast = tuple[IntArray, IntArray, IntArray]  #: models a and b, and the outcome: 1 (a), -1 (b), 0 (tie)
Voter = Callable[[np.random.Generator, FloatArray, int, int], Cast]


def pairs(rng: np.random.Generator, number: int) -> tuple[IntArray, IntArray]:
    """Uniform pairs."""
    a = rng.integers(NUM_MODELS, size=number)
    return a, (a + rng.integers(1, NUM_MODELS, size=number)) % NUM_MODELS


def judged(rng: np.random.Generator, true: FloatArray, a: IntArray, b: IntArray, tie: float = TIE) -> IntArray:
    """Honest outcomes."""
    odds = np.exp(true[a] - true[b])
    for_a, for_b = odds / (odds + tie), 1 / (1 + tie * odds)
    draw = rng.random(len(a))
    return np.where(draw < for_a, 1, np.where(draw < for_a + for_b, -1, 0))


def coin(rng: np.random.Generator, number: int) -> IntArray:
    """Outcomes without a look, with as many ties."""
    return rng.choice(np.array([1, -1, 0]), p=[0.355, 0.355, 0.29], size=number)


def honest(*, tie: float = TIE, sharpness: float = 1.0, taste: float = 0.0) -> Voter:
    """A voter with ties, care and taste of his own; `taste` is the standard deviation of own strengths."""

    def cast(rng: np.random.Generator, true: FloatArray, number: int, target: int) -> Cast:
        a, b = pairs(rng, number)
        own = sharpness * (true + rng.normal(0, taste, NUM_MODELS) if taste else true)
        return a, b, judged(rng, own, a, b, tie)

    return cast


def careless(rng: np.random.Generator, true: FloatArray, number: int, target: int) -> Cast:
    """A coin."""
    return *pairs(rng, number), coin(rng, number)


def first_side(rng: np.random.Generator, true: FloatArray, number: int, target: int) -> Cast:
    """Always the left answer."""
    return *pairs(rng, number), np.ones(number, dtype=np.int64)


def target_abstaining(rng: np.random.Generator, true: FloatArray, number: int, target: int) -> Cast:
    """Votes only where the target plays."""
    a, b = pairs(rng, number * NUM_MODELS * 3)
    rows = np.flatnonzero((a == target) | (b == target))[:number]
    return a[rows], b[rows], np.where(a[rows] == target, 1, -1)


def target_and(elsewhere: str) -> Voter:
    """Votes for the target, and elsewhere honestly, by a coin, or ties."""

    def cast(rng: np.random.Generator, true: FloatArray, number: int, target: int) -> Cast:
        a, b = pairs(rng, number)
        others = {"honest": judged(rng, true, a, b), "coin": coin(rng, number), "ties": np.zeros(number, np.int64)}
        outcome = np.where(a == target, 1, np.where(b == target, -1, others[elsewhere]))
        return a, b, outcome

    return cast


def omnipresent(rng: np.random.Generator, true: FloatArray, number: int, target: int) -> Cast:
    """Votes for the target, elsewhere against the stronger model (arXiv 2501.17858)."""
    a, b = pairs(rng, number)
    outcome = np.where(true[a] > true[b], -1, 1)
    return a, b, np.where(a == target, 1, np.where(b == target, -1, outcome))


KINDS: dict[str, Voter] = {
    "honest": honest(),
    "honest, never ties": honest(tie=1.001),
    "honest, own taste (70 points)": honest(taste=0.4),
    "honest, less careful": honest(sharpness=0.7),
    "careless": careless,
    "always the left side": first_side,
    "target only, abstains elsewhere": target_abstaining,
    "target only, ties elsewhere": target_and("ties"),
    "target only, a coin elsewhere": target_and("coin"),
    "target only, honest elsewhere": target_and("honest"),
    "omnipresent": omnipresent,
}


def simulate(base: int, number: int, reps: int, seed: int) -> dict[str, list[float]]:
    """Surprises by kind, of voters with `number` votes beside `base` honest votes."""
    rng = np.random.default_rng(seed)
    peaks: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(reps):
        true = rng.normal(0, SPREAD, NUM_MODELS)
        order = np.argsort(true)
        casts = [honest()(rng, true, 20, 0) for _ in range(base // 20)]
        tested: list[tuple[str, int]] = []
        for kind, cast in KINDS.items():
            for _ in range(PER_ARENA["honest" if kind.startswith("honest") else "riggers"]):
                tested.append((kind, len(casts)))
                casts.append(cast(rng, true, number, int(order[rng.integers(2, 15)])))
        a, b, outcome = (np.concatenate(columns) for columns in zip(*casts, strict=True))
        voters = np.repeat(np.arange(len(casts)), [len(cast[0]) for cast in casts])
        kept = rng.permutation(len(a))
        kept = kept[outcome[kept] != 0]
        blocks = blocks_of(np.zeros(len(kept), dtype=np.int64), NUM_MODELS)
        ballots = Ballots(a[kept], b[kept], outcome[kept] > 0, blocks)
        crowd = Crowd(ballots, NUM_MODELS)
        for kind, voter in tested:
            peaks[kind].append(crowd.surprise(ballots.taken(voters[kept] == voter)).peak)
    return peaks


def main() -> None:
    """Simulate, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=30, help="arenas for each row")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path)
    flags = parser.parse_args()
    results = []
    for base, number in ((1000, 100), (5000, 100), (5000, 300), (50_000, 100)):
        print(f"{base} honest votes, {number} votes each")
        for kind, peaks in simulate(base, number, flags.reps, flags.seed).items():
            share = float(np.mean(np.array(peaks) > SURPRISE_LIMIT))
            results.append({"base": base, "votes": number, "kind": kind, "voters": len(peaks), "flagged": share})
            print(f"  {kind:34} {len(peaks):4d} voters  {100 * share:5.1f} % flagged", flush=True)
    if flags.output is not None:
        settings = {"limit": SURPRISE_LIMIT, "models": NUM_MODELS, "reps": flags.reps, "seed": flags.seed}
        flags.output.write_text(json.dumps({**settings, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
