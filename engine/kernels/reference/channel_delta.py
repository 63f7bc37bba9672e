"""The delta rule with a decay for every channel of a key (Kimi Linear, arXiv 2510.26692) on states in pages, in plain
torch. Contract: StateKernels.channel_delta.

Token by token, in one order: a token's bits do not depend on how a prompt was divided into steps.
T = tokens of the step, H = heads, D = channels of a key, V = of a value.
"""

import torch
import torch.nn.functional as F

from engine.kernels.reference.gated_delta import unit_heads
from engine.kernels.state_kernels import DeltaWeights, StatesInPlace


def channel_delta(
    qkv: torch.Tensor,
    gate: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    weights: DeltaWeights,
    states: StatesInPlace,
) -> torch.Tensor:
    """qkv [T, 2 H D + H V] -> the gated norm of what the queries read, [T, H V]; updates the states' pages [H, D, V]
    in place."""
    num_heads, key_dim, value_dim = states.pages.shape[1:]
    key_size = num_heads * key_dim
    query, key = (unit_heads(part, num_heads, key_dim) for part in qkv[:, : 2 * key_size].chunk(2, dim=1))
    query = query * key_dim**-0.5
    value = qkv[:, 2 * key_size :].float().unflatten(1, (num_heads, value_dim))
    steps = F.softplus(a.float() + weights.step_bias).unflatten(1, (num_heads, key_dim))
    decay = (weights.rates[:, None] * steps).exp()
    strength = b.float().sigmoid()
    read = torch.zeros(value.shape, dtype=torch.float32, device=qkv.device)
    bounds = states.query_starts.tolist()
    for row, (page_id, start) in enumerate(zip(states.page_ids.tolist(), states.starts.tolist(), strict=True)):
        if page_id < 0:
            continue
        state = states.pages[page_id]
        if start == 0:
            state.zero_()  # a new sequence's page may hold NaN
        for token in range(bounds[row], bounds[row + 1]):
            state *= decay[token, :, :, None]
            found = (state * key[token, :, :, None]).sum(1)  # [H, V]
            added = strength[token, :, None] * (value[token] - found)
            state += key[token, :, :, None] * added[:, None]
            read[token] = (state * query[token, :, :, None]).sum(1)
    normed = F.rms_norm(read, (value_dim,), weights.norm, weights.eps).flatten(1)
    return (normed * gate.float().sigmoid()).to(qkv.dtype)
