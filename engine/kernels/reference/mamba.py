"""Convolution and selective scan of Mamba layers (Gu and Dao 2023) on states in pages, in plain torch.

What does not depend on earlier tokens is computed for many tokens at once; the recurrence itself goes token by token.

T = tokens of the step, B = sequences, I = channels, S = state elements per channel, K = taps of the convolution,
L = tokens of each sequence of a group.
"""

import torch
import torch.nn.functional as F

from engine.kernels.reference.equal_sequences import equal_sequences
from engine.kernels.state_kernels import StatesInPlace

#: Tokens whose factors [B, tokens, I, S] are computed at once.
_TOKENS = 16


def causal_conv(
    x: torch.Tensor, taps: torch.Tensor, bias: torch.Tensor | None, states: StatesInPlace, *, has_silu: bool = True
) -> torch.Tensor:
    """x [T, I] -> the causal convolution, or silu of it, [T, I], newly allocated; updates the states' pages [K - 1, I]
    in place. Contract: StateKernels.causal_conv."""
    output = torch.zeros_like(x, memory_format=torch.contiguous_format)
    for group in equal_sequences(states):
        length = group.rows.shape[1]
        inputs = torch.cat((group.before.to(x.dtype), x[group.rows]), dim=1)  # [B, K - 1 + L, I]
        states.pages[group.page_ids] = inputs[:, length:].to(states.pages.dtype)
        total = torch.zeros((), device=x.device) if bias is None else bias.float()
        for first, tap in enumerate(taps.float()):
            total = torch.addcmul(total, inputs[:, first : first + length].float(), tap)
        output[group.rows] = (F.silu(total) if has_silu else total).to(x.dtype)
    return output


def selective_scan(
    x: torch.Tensor,
    dt: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    gate: torch.Tensor,
    a: torch.Tensor,
    d: torch.Tensor,
    states: StatesInPlace,
) -> torch.Tensor:
    """x [T, I] -> gated output of the state space model [T, I], newly allocated; updates the states' pages [I, S] in
    place. Contract: StateKernels.selective_scan."""
    output = torch.zeros_like(x, memory_format=torch.contiguous_format)
    for group in equal_sequences(states):
        state = group.before
        for rows in group.rows.split(_TOKENS, dim=1):
            x_t, dt_t, b_t, c_t, gate_t = (part[rows].float() for part in (x, dt, b, c, gate))  # [B, tokens, I or S]
            step = F.softplus(dt_t)
            decays = torch.exp(step[..., None] * a)  # [B, tokens, I, S]
            after = (step * x_t)[..., None] * b_t[:, :, None]
            for time in range(rows.shape[1]):
                state = after[:, time].addcmul_(decays[:, time], state)
            y = (after * c_t[:, :, None]).sum(-1) + d * x_t
            output[rows] = (y * F.silu(gate_t)).to(x.dtype)
        states.pages[group.page_ids] = state
    return output
