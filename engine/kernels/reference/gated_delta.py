"""The gated delta rule (Yang et al. 2024) on states in pages, in plain torch. Contract: StateKernels.gated_delta.

Sequences run one after another, prompts in chunks whose tokens are products of matrices.

T = tokens of the step, H = value heads, G = key heads, D = channels of a key, V = of a value, L = tokens
of a chunk.
"""

import torch
import torch.nn.functional as F

from engine.kernels.state_kernels import DeltaWeights, StatesInPlace

_CHUNK = 64
_LENGTH_EPS = 1e-6


def gated_delta(
    qkv: torch.Tensor,
    gate: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    weights: DeltaWeights,
    states: StatesInPlace,
) -> torch.Tensor:
    """qkv [T, 2 G D + H V] -> the gated norm of what the queries read, [T, H V]; updates the states' pages [H, D, V]
    in place."""
    num_heads, key_dim, value_dim = states.pages.shape[1:]
    key_size = (qkv.shape[1] - num_heads * value_dim) // 2
    query, key = (unit_heads(part, num_heads, key_dim) for part in qkv[:, : 2 * key_size].chunk(2, dim=1))
    inputs = (
        query * key_dim**-0.5,
        key,
        qkv[:, 2 * key_size :].float().unflatten(1, (num_heads, value_dim)),
        weights.rates * F.softplus(a.float() + weights.step_bias),
        b.float().sigmoid(),
    )
    output = torch.zeros(gate.shape, dtype=qkv.dtype, device=qkv.device)
    bounds = states.query_starts.tolist()
    for row, (page_id, start) in enumerate(zip(states.page_ids.tolist(), states.starts.tolist(), strict=True)):
        if page_id < 0:
            continue
        page = states.pages[page_id]
        state = page if start > 0 else torch.zeros_like(page)  # a new sequence's page may hold NaN
        for first in range(bounds[row], bounds[row + 1], _CHUNK):
            chunk = slice(first, min(first + _CHUNK, bounds[row + 1]))
            read, state = _advance(state, *(part[chunk].transpose(0, 1) for part in inputs))
            normed = F.rms_norm(read.transpose(0, 1), (value_dim,), weights.norm, weights.eps)
            output[chunk] = normed.flatten(1) * F.silu(gate[chunk].float())
        page.copy_(state)
    return output


def unit_heads(x: torch.Tensor, num_heads: int, key_dim: int) -> torch.Tensor:
    """x [T, G D] -> vectors of length one for every value head [T, H, D]; consecutive heads share a key head."""
    heads = x.float().unflatten(1, (-1, key_dim))
    unit: torch.Tensor = heads * torch.rsqrt(heads.square().sum(-1, keepdim=True) + _LENGTH_EPS)
    return unit.repeat_interleave(num_heads // unit.shape[1], dim=1)


def _advance(
    state: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    decay: torch.Tensor,
    strength: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """state [H, D, V], query and key [H, L, D], value [H, L, V], decay (logarithms) and strength [H, L]. Returns what
    the queries read [H, L, V], and the state after the tokens.

    Token t adds k_t d_t^T to the decayed state, with d_t = strength_t (v_t - what k_t reads of it). The d of a chunk
    depend on each other, which makes them the solution of a triangular system.
    """
    total = decay.cumsum(-1)  # [H, L]: since the chunk began
    since = (total[:, :, None] - total[:, None, :]).tril().exp().tril()  # [H, t, s]: the decay from token s to token t
    keys = key.transpose(1, 2)
    old = total.exp()[:, :, None]
    system = strength[:, :, None] * since * (key @ keys)
    wanted = strength[:, :, None] * (value - old * (key @ state))
    added = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True)
    read = old * (query @ state) + (since * (query @ keys)) @ added
    kept = (total[:, -1:] - total).exp()[:, :, None] * key
    return read, total[:, -1, None, None].exp() * state + kept.transpose(1, 2) @ added
