"""Activations of feed-forward layers, in plain torch: silu or gelu of gates times ups, and gelu alone. R = rows."""

import torch
import torch.nn.functional as F


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """gate_up [R, 2 * size], gates first -> silu(gate) * up [R, size], newly allocated."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (F.silu(gate) * up).to(gate_up.dtype)


def gelu_tanh_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """As silu_mul, with gelu in its tanh form."""
    gate, up = gate_up.double().chunk(2, dim=-1)  # 1 + tanh loses digits where tanh is near -1
    return (F.gelu(gate, approximate="tanh") * up).to(gate_up.dtype)


def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    """gelu in its tanh form: x [R, size] -> [R, size], newly allocated."""
    return F.gelu(x.double(), approximate="tanh").to(x.dtype)
