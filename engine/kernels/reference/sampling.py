"""Sampling in plain torch: the definition that the Triton kernel is tested against. R = rows, V = vocabulary.

Truncation keeps all scores at or above a threshold, so tokens with equal logits are kept or dropped together. Top-p
acts on the tokens that top-k has left; min-p is relative to the likeliest token. A row's result does not depend on
other rows.
"""

import torch

from engine.batch import NO_TOKEN
from engine.kernels.step_kernels import SamplingWorkspace

_NEVER = float("-inf")
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = 0xFFFFFFFF


def sample(
    logits: torch.Tensor,
    temperatures: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    seeds: torch.Tensor,
    counters: torch.Tensor,
    token_ids: torch.Tensor,
    workspace: SamplingWorkspace | None = None,
    slots: torch.Tensor | None = None,
    last_tokens: torch.Tensor | None = None,
) -> None:
    """Samples one token per row of logits [R, V] into token_ids [R] int64, as StepKernels.sample defines: the inverse
    of the cumulative distribution at uniform(seeds, counters), or argmax if the temperature is 0. The workspace is not
    used."""
    scores = logits.to(torch.float32)
    greedy = scores.argmax(dim=-1)
    largest = scores.amax(dim=-1, keepdim=True)  # NaN if any is
    scores = scores - largest
    scores = truncate(scores / temperatures.where(temperatures > 0, 1.0)[:, None], top_k, top_p, min_p)
    cumulative = scores.softmax(dim=-1).cumsum(dim=-1, dtype=torch.float64)
    targets = uniform(seeds, counters)[:, None] * cumulative[:, -1:]
    drawn = torch.searchsorted(cumulative, targets, right=True).squeeze(1).clamp(max=logits.shape[1] - 1)
    drawn = torch.where(temperatures > 0, drawn, greedy)
    token_ids.copy_(drawn.where(largest.squeeze(1).isfinite(), NO_TOKEN))
    if slots is not None and last_tokens is not None:
        last_tokens.index_put_((slots.long(),), drawn)  # -1 is the last element, which is never read


def truncate(scores: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """Scores [R, V] with -inf for tokens that top-k (0: off), top-p (Holtzman et al. 2020; 1: off) or min-p (Nguyen et
    al. 2024; 0: off) remove; settings are [R]. Newly allocated."""
    vocab_size = scores.shape[1]
    leaders = scores.sort(dim=-1, descending=True).values
    last = top_k.to(torch.int64).clamp(max=vocab_size).where(top_k > 0, vocab_size)[:, None] - 1
    by_rank = leaders.gather(1, last)
    masses = leaders.masked_fill(leaders < by_rank, _NEVER).softmax(dim=-1, dtype=torch.float64)
    mass_before = masses.cumsum(dim=-1) - masses
    num_kept = (mass_before < top_p[:, None]).sum(dim=-1, keepdim=True).clamp(min=1)
    by_mass = leaders.gather(1, num_kept - 1).where((top_p < 1.0)[:, None], _NEVER)
    by_ratio = leaders[:, :1] + min_p.log()[:, None]
    thresholds = torch.maximum(torch.maximum(by_rank, by_mass), by_ratio)
    return scores.masked_fill(scores < thresholds, _NEVER)


def uniform(seeds: torch.Tensor, counters: torch.Tensor) -> torch.Tensor:
    """Philox-4x32-10 (Salmon et al., SC'11): [R] float64 in [0, 1) with 53 random bits for each (seed, counter), both
    [R] int64. The product of two 32-bit words may become negative in int64, but its 64 bits are right."""
    c0, c1 = counters & _LOW, (counters >> 32) & _LOW
    c2, c3 = torch.zeros_like(c0), torch.zeros_like(c0)
    k0, k1 = seeds & _LOW, (seeds >> 32) & _LOW
    for _ in range(10):
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            ((product1 >> 32) & _LOW) ^ c1 ^ k0,
            product1 & _LOW,
            ((product0 >> 32) & _LOW) ^ c3 ^ k1,
            product0 & _LOW,
        )
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return ((c0 << 21) | (c1 >> 11)).to(torch.float64) * 2.0**-53
