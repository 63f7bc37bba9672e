"""Voters who do not vote like the others: a test that may be repeated after every vote.

Under the null hypothesis a voter's decisive votes follow a Bradley-Terry fit to the decisive votes of all OTHERS, and
which models they concern follows the others' votes of the same time. Each alternative below is a way to vote; its
likelihood ratio against the null is a martingale that starts at one, and so is their weighted mean, the surprise. By
Ville's inequality an honest voter's surprise ever passes L with probability 1 / L at most, whatever the number of votes
(Ville 1939; Ramdas et al., arXiv 2210.01948). Ties are left out: how often a person ties says nothing about a model.

The alternatives: `careless` (a coin), `contrary` (the weaker model wins), `first` and `last` (the shown side), and for
every model `boost` and `demote` (it wins or loses nearly always, elsewhere like everybody), `boost_only` (a coin
elsewhere), `pick_boost` and `pick_demote` (the same, and the model is in far more of the voter's votes than in other
people's: the target-only and omnipresent attacks of arXiv 2501.17858). Knows no log and no names.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ratings.outcomes import FloatArray

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

SURPRISE_LIMIT = 1000.0  #: an honest voter passes it with a probability of 0.1 % at most
PRIOR_PRECISION = 0.25  #: of strengths around their mean: a standard deviation of two, 350 points
TARGET_SHIFT = 3.0  #: of the log odds of a model that is boosted: an even match is won 95 times of 100
PICK_ODDS = 8.0  #: by which a voter of the alternative has votes with a model more often than others
SHARE_PRIOR = 20.0  #: votes of the whole log that stand beside those of a block in a model's share
MIN_SEEN = 5  #: votes of others in the same block without which a model's share says nothing
MIN_OTHERS = 100  #: decisive votes of others without which no voter is judged
MAX_SPREAD = 0.2  #: variance of a gap (78 points of standard error) beyond which a vote on it says nothing of its voter
BLOCK_PER_MODEL = (
    8  #: decisive votes of a block for each model; short, because pairing changes while models come and go
)

_STEPS = 30
_PIECE = 512  #: votes for which all alternatives are held at once
_CARELESS, _CONTRARY, _FIRST, _LAST = range(4)
_NAMES = ("careless", "contrary", "first", "last")
_TARGETED = ("boost", "demote", "boost_only", "pick_boost", "pick_demote")


@dataclass(frozen=True, eq=False)
class Ballots:
    """Decisive votes in the order of the log, as columns: positions of both models, whether side a won, and the block
    of the log that each vote lies in."""

    a: IntArray
    b: IntArray
    a_won: BoolArray
    block: IntArray

    def __len__(self) -> int:
        return len(self.a)

    def taken(self, rows: IntArray | BoolArray) -> "Ballots":
        """Some of them, in the same order."""
        return Ballots(self.a[rows], self.b[rows], self.a_won[rows], self.block[rows])

    def wins(self, num_models: int) -> FloatArray:
        """Entry [i, j]: how often i has beaten j."""
        winner = np.where(self.a_won, self.a, self.b)
        loser = np.where(self.a_won, self.b, self.a)
        counts = np.bincount(winner * num_models + loser, minlength=num_models * num_models)
        return counts.reshape(num_models, num_models).astype(np.float64)

    def appearances(self, num_models: int, num_blocks: int) -> FloatArray:
        """Entry [block, model]: votes of the block that concern the model."""
        size = num_blocks * num_models
        counts = np.bincount(self.block * num_models + self.a, minlength=size) + np.bincount(
            self.block * num_models + self.b, minlength=size
        )
        return counts.reshape(num_blocks, num_models).astype(np.float64)

    def appearances_in_all(self, num_models: int) -> FloatArray:
        """Votes that concern each model."""
        counts = np.bincount(self.a, minlength=num_models) + np.bincount(self.b, minlength=num_models)
        return counts.astype(np.float64)


@dataclass(frozen=True)
class Surprise:
    """The result for one voter: decisive votes that could be judged, the largest value of the martingale, and the
    alternative with the largest share in it; `target` is the position of its model, None if it has none."""

    num_votes: int
    peak: float
    alternative: str
    target: int | None


def blocks_of(days: IntArray, num_models: int) -> IntArray:
    """The block of each vote: votes of one day, at most BLOCK_PER_MODEL for each model. `days` in the order of the
    log."""
    if not len(days):
        return np.zeros(0, dtype=np.int64)
    starts = np.flatnonzero(np.diff(days, prepend=days[0] - 1) != 0)
    lengths = np.diff(starts, append=len(days))
    within = np.arange(len(days)) - np.repeat(starts, lengths)
    size = BLOCK_PER_MODEL * max(num_models, 2)
    return np.cumsum((within % size == 0).astype(np.int64)) - 1


class Crowd:
    """All votes of a log that may be believed, from which the votes of one voter can be taken away.

    `ballots` are theirs. `num_models` and `num_blocks` may exceed the positions that occur in them: votes that are
    tested may lie elsewhere.
    """

    def __init__(self, ballots: Ballots, num_models: int, num_blocks: int | None = None) -> None:
        self._num_models = num_models
        self._num_blocks = int(ballots.block.max(initial=-1)) + 1 if num_blocks is None else num_blocks
        self._wins = ballots.wins(num_models)
        self._appearances = ballots.appearances(num_models, self._num_blocks)
        self._block_sizes = np.bincount(ballots.block, minlength=self._num_blocks).astype(np.float64)

        self._appearances_in_all = self._appearances.sum(axis=0)

    @cached_property
    def _all_strengths(self) -> FloatArray:
        return _strengths(self._wins, np.zeros(self._num_models))

    def surprise(self, own: Ballots, *, inside: Ballots | None = None) -> Surprise:
        """The test of one voter, or of a group as if it were one. `inside`: those of the votes that the crowd has, by
        default all; they are taken away first."""
        inside = own if inside is None else inside
        num_others = self._block_sizes.sum() - len(inside)
        if not len(own) or num_others < MIN_OTHERS:
            return Surprise(len(own), 1.0, _NAMES[_CARELESS], None)
        size = self._num_models
        wins = self._wins - inside.wins(size)
        strengths = _strengths(wins, self._all_strengths)
        odds, spread = _log_odds(strengths, _curvature(wins, strengths), own)
        told = np.flatnonzero(spread <= MAX_SPREAD)
        return _peak(*self._in_few_blocks(own.taken(told), inside), odds[told])

    def _in_few_blocks(self, own: Ballots, inside: Ballots) -> tuple[Ballots, FloatArray]:
        """`own` with its blocks numbered anew, and the shares of the models among the others' votes in those."""
        size = self._num_models
        blocks = np.unique(own.block)
        place = np.full(self._num_blocks, -1)
        place[blocks] = np.arange(len(blocks))
        there = inside.taken(place[inside.block] >= 0)
        there = replace(there, block=place[there.block])
        appearances = self._appearances[blocks] - there.appearances(size, len(blocks))
        sizes = self._block_sizes[blocks] - np.bincount(there.block, minlength=len(blocks))
        overall = self._appearances_in_all - inside.appearances_in_all(size)
        num_others = self._block_sizes.sum() - len(inside)
        return replace(own, block=place[own.block]), _shares(appearances, sizes, overall / num_others)


def _strengths(wins: FloatArray, start: FloatArray) -> FloatArray:
    """Log strengths with a normal prior, by Newton's method; their mean is zero."""
    strengths = start
    for _ in range(_STEPS):
        expected = _logistic(strengths[:, None] - strengths[None, :])
        battles = wins + wins.T
        gradient = (wins - battles * expected).sum(axis=1) - PRIOR_PRECISION * strengths
        step = np.linalg.solve(_curvature(wins, strengths), gradient)
        # A long step can overshoot where one side has nearly all wins.
        strengths = strengths + step * min(1.0, 2.0 / max(np.abs(step).max(initial=0.0), 1e-12))
        if np.abs(step).max(initial=0.0) < 1e-3:  # Newton's next step would be a millionth
            break
    return strengths


def _curvature(wins: FloatArray, strengths: FloatArray) -> FloatArray:
    expected = _logistic(strengths[:, None] - strengths[None, :])
    weight = (wins + wins.T) * expected * expected.T
    curvature: FloatArray = np.diag(weight.sum(axis=1) + PRIOR_PRECISION) - weight
    return curvature


def _log_odds(strengths: FloatArray, curvature: FloatArray, own: Ballots) -> tuple[FloatArray, FloatArray]:
    """Log odds of side a winning each vote, and the variance of the gap. Uncertain gaps are drawn towards zero, so that
    a fit to few votes does not make an honest voter improbable (MacKay 1992)."""
    covariance = np.linalg.inv(curvature)
    variances = np.diag(covariance)
    gap = strengths[own.a] - strengths[own.b]
    spread = variances[own.a] + variances[own.b] - 2 * covariance[own.a, own.b]
    return gap / np.sqrt(1 + np.pi / 8 * spread), spread


def _shares(appearances: FloatArray, sizes: FloatArray, overall: FloatArray) -> FloatArray:
    """Entry [block, model]: probability that a vote of the block concerns the model; NaN where it is not known.
    `overall`: the model's share in the whole log."""
    shares = (appearances + SHARE_PRIOR * overall) / (sizes + SHARE_PRIOR)[:, None]
    return np.where(appearances >= MIN_SEEN, np.minimum(shares, 0.95), np.nan)


def _peak(own: Ballots, shares: FloatArray, odds: FloatArray) -> Surprise:
    """Largest value of the mixture over the first j votes."""
    num_models = shares.shape[1]
    weights = np.concatenate(
        [np.full(len(_NAMES), 0.25 / len(_NAMES)), np.full(len(_TARGETED) * num_models, 0.75 / (5 * num_models))]
    )
    total = np.log(weights)
    best, best_at = 0.0, total
    for start in range(0, len(own), _PIECE):
        rows = np.arange(start, min(start + _PIECE, len(own)))
        ratios = _log_ratios(own.taken(rows), odds[rows], shares)
        path = total + np.cumsum(ratios, axis=0)
        top = path.max(axis=1)
        mixture = top + np.log(np.exp(path - top[:, None]).sum(axis=1))
        position = int(mixture.argmax())
        if mixture[position] > best:
            best, best_at = float(mixture[position]), path[position]
        total = path[-1]
    leader = int(best_at.argmax())
    peak = float(np.exp(min(best, 700.0)))
    if leader < len(_NAMES):
        return Surprise(len(own), peak, _NAMES[leader], None)
    kind, target = divmod(leader - len(_NAMES), num_models)
    return Surprise(len(own), peak, _TARGETED[kind], target)


def _log_ratios(own: Ballots, odds: FloatArray, shares: FloatArray) -> FloatArray:
    """Entry [vote, alternative]: log of the alternative's probability of the vote over the null's."""
    num_models = shares.shape[1]
    signs = np.where(own.a_won, 1.0, -1.0)
    null = _log_logistic(signs * odds)
    coin = np.log(0.5) - null
    sided = np.where(own.a_won, np.log(0.9), np.log(0.1)) - null
    simple = np.stack([coin, _log_logistic(-signs * odds) - null, sided, np.log(0.1) + np.log(0.9) - sided - 2 * null])
    models = np.arange(num_models)
    # +1 where the model is side a, -1 where it is side b, 0 where it is neither
    side = (own.a[:, None] == models).astype(np.float64) - (own.b[:, None] == models)
    has = side != 0
    boost = _log_logistic(signs[:, None] * (odds[:, None] + TARGET_SHIFT * side)) - null[:, None]
    demote = _log_logistic(signs[:, None] * (odds[:, None] - TARGET_SHIFT * side)) - null[:, None]
    usual = shares[own.block]
    picked = PICK_ODDS * usual / (1 + (PICK_ODDS - 1) * usual)
    pick = np.nan_to_num(np.where(has, np.log(picked / usual), np.log((1 - picked) / (1 - usual))), nan=0.0)
    boost_only = np.where(has, boost, coin[:, None])
    return np.concatenate([simple.T, boost, demote, boost_only, pick + boost, pick + demote], axis=1)


def _logistic(odds: FloatArray) -> FloatArray:
    probability: FloatArray = 0.5 * (1.0 + np.tanh(0.5 * odds))
    return probability


def _log_logistic(odds: FloatArray) -> FloatArray:
    value: FloatArray = -np.logaddexp(0.0, -odds)
    return value
