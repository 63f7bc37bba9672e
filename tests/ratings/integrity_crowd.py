"""Simulated voters, honest and not, for the tests of integrity rules. Every draw comes from the generator passed in."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ratings.voters import Ballots, Crowd, blocks_of

NUM_MODELS = 12
TIE = 1.8  #: threshold of Rao and Kupper: 29 % of even matches are ties

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Cast:
    """Votes of one voter: models, and the outcome 1 (a), -1 (b) or 0 (tie)."""

    a: IntArray
    b: IntArray
    outcome: IntArray


def strengths(rng: np.random.Generator) -> np.ndarray:
    """True log strengths, 140 points of standard deviation, the weakest first."""
    return np.sort(rng.normal(0, 0.8, NUM_MODELS))


def honest(rng: np.random.Generator, true: np.ndarray, num_votes: int, tie: float = TIE) -> Cast:
    """Votes as Bradley-Terry with Rao and Kupper's ties has them."""
    a, b = _pairs(rng, num_votes)
    odds = np.exp(true[a] - true[b])
    for_a, for_b = odds / (odds + tie), 1 / (1 + tie * odds)
    draw = rng.random(num_votes)
    return Cast(a, b, np.where(draw < for_a, 1, np.where(draw < for_a + for_b, -1, 0)))


def careless(rng: np.random.Generator, num_votes: int) -> Cast:
    """Votes that ignore the answers."""
    a, b = _pairs(rng, num_votes)
    return Cast(a, b, rng.choice([1, -1, 0], p=[0.35, 0.35, 0.3], size=num_votes))


def target_only(rng: np.random.Generator, num_votes: int, target: int) -> Cast:
    """Votes for `target` in its battles, none in others."""
    a, b = _pairs(rng, num_votes * 4 * NUM_MODELS)
    has = np.flatnonzero((a == target) | (b == target))[:num_votes]
    return Cast(a[has], b[has], np.where(a[has] == target, 1, -1))


def omnipresent(rng: np.random.Generator, true: np.ndarray, num_votes: int, target: int) -> Cast:
    """Votes for `target`, and elsewhere against the stronger model (arXiv 2501.17858)."""
    a, b = _pairs(rng, num_votes)
    outcome = np.where(true[a] > true[b], -1, 1)
    return Cast(a, b, np.where(a == target, 1, np.where(b == target, -1, outcome)))


def crowd_of(rng: np.random.Generator, casts: list[Cast]) -> tuple[Crowd, Ballots, IntArray]:
    """All votes in random order, without ties: the crowd, its votes, and who cast each."""
    a, b, outcome = (np.concatenate([getattr(cast, name) for cast in casts]) for name in ("a", "b", "outcome"))
    voters = np.repeat(np.arange(len(casts)), [len(cast.a) for cast in casts])
    order = rng.permutation(len(a))
    order = order[outcome[order] != 0]
    ballots = Ballots(
        a[order], b[order], outcome[order] > 0, blocks_of(np.zeros(len(order), dtype=np.int64), NUM_MODELS)
    )
    return Crowd(ballots, NUM_MODELS), ballots, voters[order]


def _pairs(rng: np.random.Generator, number: int) -> tuple[IntArray, IntArray]:
    a = rng.integers(NUM_MODELS, size=number)
    return a, (a + rng.integers(1, NUM_MODELS, size=number)) % NUM_MODELS
