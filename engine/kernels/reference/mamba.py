"""Convolution and selective scan of Mamba layers (Gu and Dao 2023) on states in pages, in plain torch: one sequence and
one token at a time. This module implements the protocol StateKernels.

T = tokens of the step, B = sequences, I = channels, S = state elements per channel, K = taps of the convolution.
"""

import torch
import torch.nn.functional as F

from engine.kernels.state_kernels import StatesInPlace


def causal_conv(x: torch.Tensor, taps: torch.Tensor, bias: torch.Tensor | None, states: StatesInPlace) -> torch.Tensor:
    """x [T, I] -> silu of the causal convolution [T, I], newly allocated; updates the states' pages [K - 1, I] in
    place. Contract: StateKernels.causal_conv."""
    output = torch.zeros_like(x, memory_format=torch.contiguous_format)
    for first, last, page, before in _sequences(states):
        inputs = torch.cat((before.to(x.dtype), x[first:last]))  # [K - 1 + L, I]
        page.copy_(inputs[last - first :])
        windows = inputs.float().unfold(0, len(taps), 1)  # [L, I, K]
        convolved = (windows * taps.float().t()).sum(-1)
        output[first:last] = F.silu(convolved if bias is None else convolved + bias.float()).to(x.dtype)
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
    for first, last, page, state in _sequences(states):
        for t in range(first, last):
            step = F.softplus(dt[t].float())[:, None]
            state = torch.exp(step * a) * state + step * b[t].float() * x[t].float()[:, None]
            y = (state * c[t].float()).sum(-1) + d * x[t].float()
            output[t] = (y * F.silu(gate[t].float())).to(x.dtype)
        page.copy_(state)
    return output


def _sequences(states: StatesInPlace) -> list[tuple[int, int, torch.Tensor, torch.Tensor]]:
    """For every sequence that is not padding: its first token, its end, its page, and its state before the step."""
    bounds = states.query_starts.tolist()
    found = []
    for row, (page_id, start) in enumerate(zip(states.page_ids.tolist(), states.starts.tolist(), strict=True)):
        if page_id >= 0:
            page = states.pages[page_id]
            before = page.clone() if start > 0 else torch.zeros_like(page)
            found.append((bounds[row], bounds[row + 1], page, before))
    return found
