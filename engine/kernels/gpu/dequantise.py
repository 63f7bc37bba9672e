"""The weights of quantised matrices in 16 or 32 bits: rows of a table that ids choose, or whole matrices for a product
of many rows by cuBLAS. O = outputs, I = inputs.
"""

import torch
import triton
import triton.language as tl

from engine.kernels.gpu.dependent_launch import launch_options, wait_for_previous
from engine.kernels.gpu.packed_codes import PackedCodes, group_scales, weights_of

_ROWS_OF_A_TABLE = 4  #: ids point anywhere: few rows a program give more programs
_ROWS_OF_A_MATRIX = 32


@triton.jit(do_not_specialize=["first", "num_rows", "factor"])
def _dequantise(
    words_ptr,
    scales_ptr,
    ids_ptr,
    order_ptr,
    output_ptr,
    first,
    num_rows,
    factor,
    OUTPUTS: tl.constexpr,
    KIND: tl.constexpr,
    SCALES: tl.constexpr,
    ZERO: tl.constexpr,
    HAS_SMALL: tl.constexpr,
    GROUP: tl.constexpr,
    SIZE: tl.constexpr,
    WORDS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (blocks of rows, blocks of inputs). words, scales: as PackedCodes has them. output [num_rows, SIZE]: the
    weights of outputs first, first + 1, ..., or of those that ids_ptr [num_rows] has. order_ptr [SIZE] or None."""
    wait_for_previous(WAITS)
    SLOTS: tl.constexpr = 8 if (KIND == 0 or KIND == 3) else 4
    BLOCK_K: tl.constexpr = SLOTS * WORDS
    NUM_BLOCKS: tl.constexpr = (SIZE + BLOCK_K - 1) // BLOCK_K
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    is_row = rows < num_rows
    if ids_ptr is None:
        weight_rows = tl.minimum(first + rows, OUTPUTS - 1)
    else:
        weight_rows = tl.load(ids_ptr + rows, mask=is_row, other=0).to(tl.int32)
    block = tl.program_id(1)
    columns = block * WORDS + tl.arange(0, WORDS)
    words = tl.load(words_ptr + weight_rows.to(tl.int64)[:, None] * (NUM_BLOCKS * WORDS) + columns[None, :])
    for slot in tl.static_range(SLOTS):
        first_input = block * BLOCK_K + slot * WORDS
        scale, addend = group_scales(
            scales_ptr, weight_rows, first_input, slot * WORDS, OUTPUTS, WORDS,
            KIND, SCALES, ZERO, HAS_SMALL, GROUP, SIZE,
        )  # fmt: skip
        weights = weights_of(words, scale, addend, slot, KIND, HAS_SMALL)
        if SCALES == 1:
            weights *= factor
        inputs = first_input + tl.arange(0, WORDS)
        is_input = inputs < SIZE
        if order_ptr is not None:
            inputs = tl.load(order_ptr + inputs, mask=is_input, other=0)
        tl.store(
            output_ptr + rows.to(tl.int64)[:, None] * SIZE + inputs[None, :],
            weights.to(output_ptr.dtype.element_ty),
            mask=is_row[:, None] & is_input[None, :],
        )


def rows_of(table: PackedCodes, ids: torch.Tensor) -> torch.Tensor:
    """ids [T] of outputs -> their weights [T, I], inputs in order, newly allocated."""
    output = torch.empty((len(ids), table.form.size), dtype=table.dtype, device=ids.device)
    assert ids.is_contiguous()
    _launch(table, ids, 0, output, _ROWS_OF_A_TABLE)
    return output


def dequantise(matrix: PackedCodes, first: int, output: torch.Tensor) -> None:
    """output [n, I], of the matrix's dtype: the weights of outputs first to first + n, inputs in order."""
    assert first + len(output) <= matrix.num_outputs
    assert output.shape[1] == matrix.form.size
    assert output.dtype == matrix.dtype
    assert output.is_contiguous()
    _launch(matrix, None, first, output, _ROWS_OF_A_MATRIX)


def _launch(matrix: PackedCodes, ids: torch.Tensor | None, first: int, output: torch.Tensor, block_n: int) -> None:
    assert matrix.words.is_contiguous()
    assert matrix.words.ndim == 2
    if not len(output):
        return
    _dequantise[(triton.cdiv(len(output), block_n), matrix.form.num_blocks)](
        matrix.words,
        matrix.scales,
        ids,
        matrix.order,
        output,
        first,
        len(output),
        matrix.factor,
        OUTPUTS=matrix.num_outputs,
        **matrix.form.constants(),
        BLOCK_N=block_n,
        **launch_options(output.device),
        num_warps=4,
    )
