"""Merging attention states over disjoint tokens into one result: outputs weighted by their sums of exponentials
(Flash-Decoding, Dao et al. 2023). One program per row and head."""

import torch
import triton
import triton.language as tl

from engine.kernels.gpu.compilation import Compilation, Expectation
from engine.kernels.gpu.launching import launch

_LOG2_E = tl.constexpr(1.4426950408889634)

_TILE_ELEMENTS = 8192  #: elements of states that are read together: 64 registers per thread


@triton.jit(do_not_specialize=["lse_stride", "lse_head_stride", "num_states"])
def _merge_states(
    outputs_ptr,
    lse_ptr,
    output_ptr,
    outputs_stride,
    outputs_head_stride,
    outputs_state_stride,
    lse_stride,
    lse_head_stride,
    output_stride,
    output_head_stride,
    num_states,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    """Grid (rows, H). outputs [rows, H, states, D] and lse [rows, H, states] float32 -> output [rows, H, D]."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    channels = tl.arange(0, BLOCK_D)
    is_channel = channels < HEAD_DIM
    outputs_ptr += row * outputs_stride + head * outputs_head_stride
    lse_ptr += row * lse_stride + head * lse_head_stride
    total = tl.zeros((BLOCK_D,), tl.float32)
    total_sum = tl.zeros((), tl.float32)
    total_max = tl.full((), float("-inf"), tl.float32)
    # The tile size does not depend on num_states, so any number of empty states changes no bit of the result.
    for first in range(0, num_states, BLOCK_S):
        states = first + tl.arange(0, BLOCK_S)
        lse = tl.load(lse_ptr + states, mask=states < num_states, other=float("-inf")) * _LOG2_E
        is_state = lse > float("-inf")
        places = states[:, None] * outputs_state_stride + channels[None, :]
        outputs = tl.load(outputs_ptr + places, mask=is_state[:, None] & is_channel[None, :], other=0.0)
        new_max = tl.maximum(total_max, tl.max(lse, 0))
        shift = tl.where(new_max == float("-inf"), 0.0, new_max)
        weights = tl.exp2(lse - shift)
        decay = tl.exp2(total_max - shift)
        total = total * decay + tl.sum(outputs * weights[:, None], 0)
        total_sum = total_sum * decay + tl.sum(weights, 0)
        total_max = new_max
    divisor = tl.where(total_sum > 0.0, total_sum, 1.0)
    merged = (total / divisor).to(output_ptr.dtype.element_ty)
    tl.store(output_ptr + row * output_stride + head * output_head_stride + channels, merged, mask=is_channel)


def merge_states(outputs: torch.Tensor, lse: torch.Tensor, output: torch.Tensor) -> None:
    """Writes output [rows, H, D] from outputs [rows, H, states, D] float32 and lse [rows, H, states] float32, all
    strided.

    A state with lse -inf is empty and its output is not read; a row without other states becomes zeros. Raises
    ValueError if shapes or strides do not fit.
    """
    num_rows, num_heads, num_states, head_dim = outputs.shape
    if lse.shape != outputs.shape[:3] or output.shape != (num_rows, num_heads, head_dim):
        raise ValueError(f"states {list(outputs.shape)}, sums {list(lse.shape)} and output {list(output.shape)}")
    if outputs.stride(3) != 1 or lse.stride(2) != 1 or output.stride(2) != 1:
        raise ValueError("channels, and sums of a head's states, must be adjacent")
    if not num_rows:
        return
    blocks, num_warps = _blocks(head_dim)
    launch(_merge_states, (num_rows, num_heads))(
        outputs,
        lse,
        output,
        *outputs.stride()[:3],
        *lse.stride()[:2],
        *output.stride()[:2],
        num_states,
        HEAD_DIM=head_dim,
        **blocks,
        num_warps=num_warps,
    )


def _blocks(head_dim: int) -> tuple[dict[str, int], int]:
    block_d = triton.next_power_of_2(head_dim)
    return {"BLOCK_D": block_d, "BLOCK_S": max(_TILE_ELEMENTS // block_d, 1)}, 4


def shipped() -> list[Compilation]:
    """Configurations for heads of 64, 128 and 256 channels in bfloat16, and of 128 in float32."""
    return [_compilation("bf16", head_dim) for head_dim in (64, 128, 256)] + [_compilation("fp32", 128)]


def _compilation(dtype: str, head_dim: int) -> Compilation:
    pointers = {"outputs_ptr": "*fp32", "lse_ptr": "*fp32", "output_ptr": f"*{dtype}"}
    strides = ["outputs_stride", "outputs_head_stride", "outputs_state_stride", "output_stride", "output_head_stride"]
    sums_strides = ["lse_stride", "lse_head_stride"]
    blocks, num_warps = _blocks(head_dim)
    return Compilation(
        name=f"merge_states, {dtype}, D {head_dim}",
        kernel=_merge_states,
        signature=pointers | dict.fromkeys([*strides, *sums_strides, "num_states"], "i32"),
        constants={"HEAD_DIM": head_dim} | blocks,
        divisible_by_16=frozenset([*pointers, *strides]),
        num_warps=num_warps,
        num_stages=2,
        expectation=Expectation(max_registers=128),
    )
