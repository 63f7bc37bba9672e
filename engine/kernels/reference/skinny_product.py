"""Products with their neighbours folded in, in plain torch: the definition that the Triton kernel is tested against."""

import torch
import torch.nn.functional as F


def multiply(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    norm_weight: torch.Tensor | None,
    eps: float,
    activation: str | None,
    added_to: torch.Tensor | None,
) -> torch.Tensor:
    """added_to + activation(rms_norm(x) weight^T + bias), rounded once to the dtype of x, which only the norm is
    rounded to as well. activation: "silu" or "gelu" (tanh form) of the first half of the outputs, times the others."""
    dtype, x = x.dtype, x.float()
    if norm_weight is not None:
        x = F.rms_norm(x, x.shape[1:], norm_weight.float(), eps).to(dtype).float()
    y = F.linear(x, weight.float(), None if bias is None else bias.float())
    if activation is not None:
        gates, ups = y.chunk(2, dim=-1)
        y = (F.silu(gates) if activation == "silu" else F.gelu(gates, approximate="tanh")) * ups
    if added_to is not None:
        y = y + added_to.float()
    return y.to(dtype)
