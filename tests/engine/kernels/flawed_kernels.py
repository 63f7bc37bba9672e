"""Small kernel configurations with one flaw each, and two without: input of test_ahead_of_time.py."""

from dataclasses import replace

import triton
import triton.language as tl

from engine.kernels.gpu.compilation import Compilation, Expectation


@triton.jit
def scale_rows(input_ptr, output_ptr, row_stride, factor, num_columns, COLUMNS: tl.constexpr):
    """Grid (rows). output = input * factor, row by row, with loads that should be 128 bits wide."""
    columns = tl.arange(0, COLUMNS)
    is_inside = columns < num_columns
    place = tl.program_id(0).to(tl.int64) * row_stride + columns
    values = tl.load(input_ptr + place, mask=is_inside, other=0.0).to(tl.float32) * factor
    tl.store(output_ptr + place, values.to(output_ptr.dtype.element_ty), mask=is_inside)


@triton.jit
def double(input_ptr, output_ptr, WAITS: tl.constexpr):
    """Grid (1). A kernel that may run beside the one before it, and does not wait for its results."""
    places = tl.arange(0, 1024)
    tl.store(output_ptr + places, tl.load(input_ptr + places) * 2)


@triton.jit
def multiply(a_ptr, b_ptr, output_ptr, num_steps, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """One program. output [M, N] = sum over steps of a [M, K] times b [K, N], in a loop that should be pipelined."""
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((M, N), dtype=tl.float32)
    for step in range(num_steps):
        a = tl.load(a_ptr + (step * M + rows[:, None]) * K + inner[None, :])
        b = tl.load(b_ptr + (step * K + inner[:, None]) * N + columns[None, :])
        total = tl.dot(a, b, total)
    tl.store(output_ptr + rows[:, None] * N + columns[None, :], total)


def shipped() -> tuple[Compilation, ...]:
    """The two sound configurations, then one for each kind of violation."""
    pointers = {"input_ptr": "*bf16", "output_ptr": "*bf16"}
    plain = Compilation(
        name="without a flaw",
        kernel=scale_rows,
        signature=pointers | {"row_stride": "i64", "factor": "fp32", "num_columns": "i32"},
        constants={"COLUMNS": 2048},
        divisible_by_16=frozenset({"input_ptr", "output_ptr", "row_stride", "num_columns"}),
        num_warps=4,
        num_stages=1,
        architectures=(80, 90),
    )
    product = Compilation(
        name="pipelined product",
        kernel=multiply,
        signature={"a_ptr": "*bf16", "b_ptr": "*bf16", "output_ptr": "*fp32", "num_steps": "i32"},
        constants={"M": 64, "N": 64, "K": 64},
        divisible_by_16=frozenset({"a_ptr", "b_ptr", "output_ptr"}),
        num_warps=4,
        num_stages=3,
        expectation=Expectation(has_async_copies=True, has_wgmma=True),
        architectures=(80, 90),
    )
    both = ("input_ptr", "output_ptr")
    hasty = Compilation(
        name="does not wait",
        kernel=double,
        signature=dict.fromkeys(both, "*fp32"),
        constants={},
        divisible_by_16=frozenset(both),
        num_warps=4,
        num_stages=1,
        architectures=(90,),
    )
    return (
        plain,
        product,
        hasty,
        replace(plain, name="unknown alignment", divisible_by_16=frozenset({"output_ptr"}), architectures=(90,)),
        replace(plain, name="too many registers", expectation=Expectation(max_registers=8), architectures=(90,)),
        replace(product, name="spills", constants={"M": 128, "N": 256, "K": 32}, num_warps=1, architectures=(80,)),
        replace(product, name="too much shared memory", num_stages=9, architectures=(89,)),
        replace(product, name="not pipelined", num_stages=1, architectures=(80,)),
        replace(product, name="too few rows for wgmma", constants={"M": 16, "N": 64, "K": 64}, architectures=(90,)),
        replace(product, name="does not compile", constants={"M": 48, "N": 64, "K": 64}, architectures=(90,)),
    )
