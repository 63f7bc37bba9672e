"""The gated delta rule in C++ (gated_delta.cpp). Contract: StateKernels.gated_delta."""

import torch

from engine.kernels.cpu.library import Library
from engine.kernels.state_kernels import DeltaWeights, StatesInPlace


def gated_delta(
    library: Library,
    qkv: torch.Tensor,
    gate: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    weights: DeltaWeights,
    states: StatesInPlace,
) -> torch.Tensor:
    """qkv [T, 2 G D + H V] -> the gated norm of what the queries read, [T, H V], newly allocated; updates the states'
    pages [H, D, V] in place."""
    pages = states.pages
    num_heads, key_dim, value_dim = pages.shape[1:]
    num_key_heads = (qkv.shape[1] - num_heads * value_dim) // (2 * key_dim)
    assert all(part.stride(1) == 1 or part.shape[1] == 1 for part in (qkv, gate, a, b))
    assert pages.dtype == torch.float32
    assert pages.stride()[1:] == (key_dim * value_dim, value_dim, 1)
    y = torch.empty(gate.shape, dtype=qkv.dtype)
    library.function("gated_delta", qkv.dtype)(
        *(number for part in (qkv, gate, a, b) for number in (part.data_ptr(), part.stride(0))),
        weights.rates.data_ptr(), weights.step_bias.data_ptr(), weights.norm.data_ptr(),
        pages.data_ptr(), pages.stride(0),
        states.page_ids.data_ptr(), states.starts.data_ptr(), states.query_starts.data_ptr(), y.data_ptr(),
        len(states.page_ids), num_heads, num_key_heads, key_dim, value_dim, weights.eps, library.num_threads,
    )  # fmt: skip
    return y
