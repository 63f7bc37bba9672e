"""RMS norm and layer norm of rows, fused with the addition of the residual update: one program per row.

R = rows. Sums are in float32. The new stream is rounded to its dtype once, and the rounded values are normalised.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import triton
import triton.language as tl

from engine.kernels.gpu.dependent_launch import launch_options, wait_for_previous


@triton.jit
def _norm(
    stream_ptr,
    update_ptr,
    weight_ptr,
    bias_ptr,
    output_ptr,
    stream_stride,
    update_stride,
    output_stride,
    eps,
    SIZE: tl.constexpr,
    HAS_UPDATE: tl.constexpr,
    IS_CENTRED: tl.constexpr,
    BLOCK: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (R). Updates the stream [R, SIZE] in place if HAS_UPDATE; writes output [R, SIZE]. IS_CENTRED: layer
    norm."""
    wait_for_previous(WAITS)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    is_column = columns < SIZE
    stream_row = stream_ptr + row * stream_stride
    x = tl.load(stream_row + columns, mask=is_column, other=0.0).to(tl.float32)
    if HAS_UPDATE:
        x += tl.load(update_ptr + row * update_stride + columns, mask=is_column, other=0.0).to(tl.float32)
        rounded = x.to(stream_ptr.dtype.element_ty)
        tl.store(stream_row + columns, rounded, mask=is_column)
        x = rounded.to(tl.float32)
    weight = tl.load(weight_ptr + columns, mask=is_column, other=0.0).to(tl.float32)
    if IS_CENTRED:
        x = tl.where(is_column, x - tl.sum(x, axis=0) / SIZE, 0.0)
    normed = x * tl.rsqrt(tl.sum(x * x, axis=0) / SIZE + eps) * weight
    if IS_CENTRED:
        normed += tl.load(bias_ptr + columns, mask=is_column, other=0.0).to(tl.float32)
    tl.store(output_ptr + row * output_stride + columns, normed.to(output_ptr.dtype.element_ty), mask=is_column)


def rms_norm(stream: torch.Tensor, update: torch.Tensor | None, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMS norm (Zhang and Sennrich 2019). stream [R, size] becomes stream + update (in place); returns its norm times
    weight [size]: [R, size], newly allocated, in the stream's dtype. Rows may be strided."""
    return _launch(stream, update, weight, None, eps)


def layer_norm(
    stream: torch.Tensor, update: torch.Tensor | None, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor:
    """Layer norm (Ba et al. 2016): as rms_norm, after the row's mean has been subtracted, plus bias [size]."""
    return _launch(stream, update, weight, bias, eps)


@dataclass(frozen=True, eq=False)
class RMSNorm:
    """rms_norm bound to its weights: a NormFunction that a product of few rows can take in."""

    weight: torch.Tensor  #: [size]
    eps: float
    kernel: Callable[..., torch.Tensor] = rms_norm
    float_weight: torch.Tensor = field(init=False)  #: the same in float32

    def __post_init__(self) -> None:
        object.__setattr__(self, "float_weight", self.weight.float())

    def __call__(self, stream: torch.Tensor, update: torch.Tensor | None) -> torch.Tensor:
        """The norm of the stream, which becomes stream + update, both [R, size]."""
        return self.kernel(stream, update, self.weight, self.eps)


def _launch(
    stream: torch.Tensor, update: torch.Tensor | None, weight: torch.Tensor, bias: torch.Tensor | None, eps: float
) -> torch.Tensor:
    num_rows, size = stream.shape
    stream_stride, stride = stream.stride()
    assert stride == 1
    assert weight.shape == (size,)
    assert weight.is_contiguous()
    assert update is None or (update.shape == stream.shape and update.stride(1) == 1)
    assert bias is None or (bias.shape == (size,) and bias.is_contiguous())
    output = torch.empty((num_rows, size), dtype=stream.dtype, device=stream.device)
    if not num_rows:
        return output
    block = 1 << (size - 1).bit_length()
    _norm[(num_rows,)](
        stream,
        update,
        weight,
        bias,
        output,
        stream_stride,
        0 if update is None else update.stride(0),
        size,
        eps,
        SIZE=size,
        HAS_UPDATE=update is not None,
        IS_CENTRED=bias is not None,
        BLOCK=block,
        num_warps=_num_warps(block),
        **launch_options(stream.device),
    )
    return output


def _num_warps(block: int) -> int:
    """16 elements per thread, which are two 128-bit loads of 16-bit numbers; at most 16 warps."""
    return min(max(block // 512, 1), 16)
