"""Exact distributions of sampling parameters, and a chi-square test of drawn tokens against them.

The distribution is computed from sorted probabilities in float64, step by step as the parameters are documented, and
shares no code with the samplers.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from engine.sampling.sampler import SamplingRow, sample
from engine.sampling_params import SamplingParams

V = 24
HISTORY = (3, 3, 7, 1, 5, 5, 5, 9)  #: prompt and output; the last NUM_OUTPUT are output
NUM_OUTPUT = 5
EOS = frozenset({2})
#: Smallest p-value that passes; about 60 tests run, so one in 2,000 runs would fail by chance, if seeds were not fixed.
SMALLEST_P = 1e-5

LOGITS = 1.7 * torch.randn(V, generator=torch.Generator().manual_seed(5))


def exact(params: SamplingParams) -> np.ndarray:
    """Probability of each token [V] after HISTORY."""
    scores = LOGITS.numpy().astype(np.float64).copy()
    for token, bias in params.logit_bias.items():
        scores[token] += bias
    output = HISTORY[-NUM_OUTPUT:]
    for token in set(HISTORY):
        penalty = params.repetition_penalty
        scores[token] = scores[token] / penalty if scores[token] > 0 else scores[token] * penalty
    for token in set(output):
        scores[token] -= params.presence_penalty + params.frequency_penalty * output.count(token)
    forbidden = set(EOS if params.min_tokens > NUM_OUTPUT else ())
    for word in params.bad_words_ids:
        if output[len(output) - len(word) + 1 :] == word[:-1] or len(word) == 1:
            forbidden.add(word[-1])
    if params.allowed_token_ids is not None:
        forbidden |= set(range(V)) - set(params.allowed_token_ids)
    scores[list(forbidden)] = -np.inf
    kept = np.exp((scores - scores.max()) / params.temperature)
    order = np.argsort(-kept, kind="stable")
    if params.top_k:
        kept[order[params.top_k :]] = 0.0
    before = np.cumsum(kept[order]) - kept[order]
    kept[order[before >= params.top_p * kept.sum()]] = 0.0
    kept[kept < params.min_p * kept.max()] = 0.0
    return typical(kept / kept.sum(), params.typical_p)


def typical(masses: np.ndarray, typical_p: float) -> np.ndarray:
    with np.errstate(divide="ignore"):
        surprise = -np.log(masses)
    entropy = float(sum(mass * bits for mass, bits in zip(masses, surprise, strict=True) if mass > 0))
    order = np.argsort(np.abs(surprise - entropy), kind="stable")
    before = np.cumsum(masses[order]) - masses[order]
    kept = masses.copy()
    if typical_p < 1.0:
        kept[order[before >= typical_p]] = 0.0
    normalised: np.ndarray = kept / kept.sum()
    return normalised


def p_value(counts: np.ndarray, probabilities: np.ndarray) -> float:
    """Of the chi-square test; 0 for a token that cannot be drawn. Rare tokens count together."""
    if counts[probabilities == 0.0].any():
        return 0.0
    expected = probabilities * counts.sum()
    is_rare = expected < 8.0
    seen = [*counts[~is_rare], counts[is_rare].sum()]
    wanted = [*expected[~is_rare], expected[is_rare].sum()]
    pairs = [(a, b) for a, b in zip(seen, wanted, strict=True) if b > 0]
    if len(pairs) < 2:
        return 1.0
    statistic = sum((a - b) ** 2 / b for a, b in pairs)
    halves = torch.tensor([(len(pairs) - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(*halves))


def draws(params: SamplingParams, count: int, draw: Callable[..., object] | None = None) -> np.ndarray:
    """How often each token is drawn [V], of `count` seeds in one call. draw: the operators' function."""
    output = HISTORY[-NUM_OUTPUT:]
    banned = tuple(w[-1] for w in params.bad_words_ids if len(w) > 1 and output[len(output) - len(w) + 1 :] == w[:-1])
    rows = [SamplingRow(params, seed, NUM_OUTPUT, HISTORY, banned) for seed in range(count)]
    tokens = sample(LOGITS.expand(count, -1), rows, EOS, partial(torch.argmax, dim=-1), draw)  # type: ignore[arg-type]
    return np.bincount([token.token_id for token in tokens], minlength=V)


def all_pairs(singles: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Every two of these settings together."""
    return [{**one, **other} for index, one in enumerate(singles) for other in singles[:index]]
