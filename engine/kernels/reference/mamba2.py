"""The recurrence of Mamba-2 (Dao and Gu 2024, section 6) on states in pages, in plain torch: products of matrices
inside a chunk of tokens, and the state from chunk to chunk.

T = tokens of the step, H = heads, P = channels of a head, G = groups, S = numbers of state per channel, B = sequences
of a group, Q = tokens of a chunk.
"""

import torch
import torch.nn.functional as F

from engine.kernels.reference.equal_sequences import equal_sequences
from engine.kernels.state_kernels import ScanHeads, StatesInPlace

_CHUNK = 64


def head_scan(
    x: torch.Tensor, dt: torch.Tensor, b: torch.Tensor, c: torch.Tensor, heads: ScanHeads, states: StatesInPlace
) -> torch.Tensor:
    """x [T, H P] -> output of the heads [T, H P], newly allocated; updates the states' pages [H, P, S] in place.
    Contract: StateKernels.head_scan."""
    num_heads, _, num_numbers = states.pages.shape[1:]
    output = torch.zeros_like(x, memory_format=torch.contiguous_format)
    for group in equal_sequences(states):
        state = group.before
        for rows in group.rows.split(_CHUNK, dim=1):
            x_t = _by_head(x[rows], num_heads)  # [B, H, Q, P]
            b_t, c_t = (_by_head(part[rows], part.shape[1] // num_numbers) for part in (b, c))
            b_t, c_t = (part.repeat_interleave(num_heads // part.shape[1], dim=1) for part in (b_t, c_t))
            steps = F.softplus(dt[rows].float() + heads.dt_bias).clamp(*heads.step_limits).transpose(1, 2)  # [B, H, Q]
            decays = (steps * heads.a[:, None]).cumsum(-1)  # logarithms, from the chunk's beginning
            inputs = steps[..., None] * x_t
            since = (decays[..., :, None] - decays[..., None, :]).tril().exp().tril()  # [B, H, Q, Q]
            y = (c_t @ b_t.transpose(-1, -2) * since) @ inputs
            y += decays.exp()[..., None] * (c_t @ state.transpose(-1, -2)) + heads.d[:, None, None] * x_t
            output[rows] = y.transpose(1, 2).flatten(2).to(x.dtype)
            left = (decays[..., -1:] - decays).exp()[..., None]
            state = decays[..., -1, None, None].exp() * state + (left * inputs).transpose(-1, -2) @ b_t
        states.pages[group.page_ids] = state
    return output


def _by_head(rows: torch.Tensor, num_heads: int) -> torch.Tensor:
    """[B, Q, heads * size] -> [B, heads, Q, size] float32."""
    return rows.float().view(*rows.shape[:2], num_heads, -1).transpose(1, 2)
