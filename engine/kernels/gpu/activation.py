"""Activation functions of feed-forward layers: silu or gelu of the gates times the ups, and gelu alone. R = rows."""

import torch
import triton
import triton.language as tl

from engine.kernels.gpu.dependent_launch import launch_options, wait_for_previous

_BLOCK = 1024  #: elements of a row per program: one 128-bit load of 16-bit numbers for each of 128 threads


@triton.jit
def _activate_rows(
    x_ptr,
    output_ptr,
    x_stride,
    output_stride,
    SIZE: tl.constexpr,
    IS_GELU: tl.constexpr,
    HAS_UP: tl.constexpr,
    BLOCK: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (R, blocks of a row). x [R, SIZE, or 2 SIZE if HAS_UP] -> output [R, SIZE], computed in float32.

    silu(x) = x sigmoid(x); gelu(x) = x / 2 (1 + tanh(u)) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3).
    """
    wait_for_previous(WAITS)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column = columns < SIZE
    from_ptr = x_ptr + row * x_stride + columns
    x = tl.load(from_ptr, mask=is_column, other=0.0).to(tl.float32)
    inner = 1.5957691216057308 * (x + 0.044715 * x * x * x) if IS_GELU else x
    y = x * tl.sigmoid(inner)
    if HAS_UP:
        y *= tl.load(from_ptr + SIZE, mask=is_column, other=0.0).to(tl.float32)
    tl.store(output_ptr + row * output_stride + columns, y.to(output_ptr.dtype.element_ty), mask=is_column)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """SwiGLU (Shazeer 2020): gate_up [R, 2 * size], strided rows, gates first -> silu(gate) * up [R, size], newly
    allocated."""
    return _launch(gate_up, is_gelu=False, has_up=True)


def gelu_tanh_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """GeGLU (Shazeer 2020): as silu_mul, with gelu_tanh of the gates."""
    return _launch(gate_up, is_gelu=True, has_up=True)


def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    """gelu, tanh approximation (Hendrycks and Gimpel 2016): x [R, size] -> [R, size], newly allocated."""
    return _launch(x, is_gelu=True, has_up=False)


def _launch(x: torch.Tensor, *, is_gelu: bool, has_up: bool) -> torch.Tensor:
    num_rows, width = x.shape
    row_stride, stride = x.stride()
    assert stride == 1
    assert width % (1 + has_up) == 0
    size = width // (1 + has_up)
    output = torch.empty((num_rows, size), dtype=x.dtype, device=x.device)
    if num_rows:
        _activate_rows[(num_rows, -(-size // _BLOCK))](
            x,
            output,
            row_stride,
            size,
            SIZE=size,
            IS_GELU=is_gelu,
            HAS_UP=has_up,
            BLOCK=_BLOCK,
            num_warps=4,
            **launch_options(x.device),
        )
    return output
