"""Activation functions of feed-forward layers: silu or gelu of the gates times the ups, and gelu alone. R = rows."""

import torch
import torch.nn.functional as F


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """SwiGLU (Shazeer 2020): gate_up [R, 2 * size], gates first -> silu(gate) * up [R, size], newly allocated."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (F.silu(gate) * up).to(gate_up.dtype)


def gelu_tanh_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """GeGLU (Shazeer 2020): as silu_mul, with gelu_tanh of the gates."""
    gate, up = gate_up.double().chunk(2, dim=-1)  # 1 + tanh loses digits where tanh is near -1
    return (F.gelu(gate, approximate="tanh") * up).to(gate_up.dtype)


def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    """gelu, tanh approximation (Hendrycks and Gimpel 2016): x [R, size] -> [R, size], newly allocated."""
    return F.gelu(x.double(), approximate="tanh").to(x.dtype)
