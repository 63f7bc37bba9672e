"""Logits of single tokens changed before anything is drawn: one thread for each token that a row names. N = tokens."""

import torch
import triton
import triton.language as tl

from engine.kernels.gpu.compilation import Compilation, Expectation
from engine.kernels.step_kernels import Penalties

_BLOCK = 256


@triton.jit(do_not_specialize=["num_tokens", "token_stride"])
def _penalise(
    logits_ptr,
    rows_ptr,
    token_ids_ptr,
    output_counts_ptr,
    is_seen_ptr,
    biases_ptr,
    repetition_ptr,
    presence_ptr,
    frequency_ptr,
    logits_stride,
    token_stride,
    num_tokens,
    BLOCK: tl.constexpr,
):
    which = tl.program_id(0).to(tl.int64)
    row = tl.load(rows_ptr + which)
    if row >= 0:
        columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        places = which * token_stride + columns
        is_inside = columns < num_tokens
        tokens = tl.load(token_ids_ptr + places, mask=is_inside, other=-1)
        is_token = tokens >= 0
        logits = logits_ptr + row * logits_stride + tokens
        values = tl.load(logits, mask=is_token, other=0.0) + tl.load(biases_ptr + places, mask=is_token, other=0.0)
        is_seen = tl.load(is_seen_ptr + places, mask=is_token, other=0) != 0
        repetition = tl.load(repetition_ptr + which)
        repeated = tl.where(values > 0.0, tl.div_rn(values, repetition), values * repetition)
        values = tl.where(is_seen, repeated, values)
        counts = tl.load(output_counts_ptr + places, mask=is_token, other=0)
        values -= tl.load(frequency_ptr + which) * counts
        values -= tl.where(counts > 0, tl.load(presence_ptr + which), 0.0)
        tl.store(logits, values, mask=is_token)


def penalise(logits: torch.Tensor, rows: torch.Tensor, penalties: Penalties) -> None:
    num_rows, num_tokens = penalties.token_ids.shape
    assert logits.dtype == torch.float32
    assert logits.stride(1) == 1
    assert rows.dtype == torch.int64
    tables = (penalties.token_ids, penalties.output_counts, penalties.is_seen, penalties.biases)
    columns = (penalties.repetition, penalties.presence, penalties.frequency)
    assert all(table.shape == (num_rows, num_tokens) and table.is_contiguous() for table in tables)
    assert all(column.shape == (num_rows,) and column.is_contiguous() for column in (rows, *columns))
    if not num_rows or not num_tokens:
        return
    _penalise[(num_rows, triton.cdiv(num_tokens, _BLOCK))](
        logits,
        rows,
        penalties.token_ids,
        penalties.output_counts,
        penalties.is_seen.view(torch.uint8),
        penalties.biases,
        *columns,
        logits.stride(0),
        num_tokens,
        num_tokens,
        BLOCK=_BLOCK,
        num_warps=4,
    )


def shipped() -> list[Compilation]:
    pointers = {"logits": "fp32", "rows": "i64", "token_ids": "i32", "output_counts": "i32", "is_seen": "u8"}
    pointers |= {name: "fp32" for name in ("biases", "repetition", "presence", "frequency")}
    return [
        Compilation(
            name="penalise",
            kernel=_penalise,
            signature={f"{name}_ptr": f"*{kind}" for name, kind in pointers.items()}
            | {"logits_stride": "i32", "token_stride": "i32", "num_tokens": "i32"},
            constants={"BLOCK": _BLOCK},
            divisible_by_16=frozenset({"logits_stride", *(f"{name}_ptr" for name in pointers)}),
            num_warps=4,
            num_stages=3,
            # A gather: each thread has two tokens somewhere.
            expectation=Expectation(max_registers=48, has_wide_loads=False),
        )
    ]
