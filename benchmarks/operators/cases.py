"""The operators of a step on CPU, in the shapes that are measured, with the bytes and the arithmetic each must do.

A case calls what the engine itself calls: a set of operators, the attention backend that goes with it, the sampler.
Each case exists once for every set: plain torch, and C++ where this machine can build it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from engine.attention import choose_backend
from engine.attention.backend import AttentionShape, StepLayout
from engine.attention.layout import layer_specs
from engine.kernels.choice import choose_operators
from engine.kernels.operators import Operators
from engine.kernels.torch_operators import TorchOperators
from engine.layers.rotary import Rotary
from engine.memory.planning.planner import group_layers, plan_pool
from engine.sampling.sampler import SamplingRow, sample
from engine.sampling_params import SamplingParams

PAGE_TOKENS = 16
#: smol-135m and an 8B Llama
HEADS = (AttentionShape(9, 3, 64), AttentionShape(32, 8, 128))
#: (in, out) of smol-135m's matrices by name
LINEARS = {"qkv": (576, 960), "output": (576, 576), "gate_up": (576, 3072), "down": (1536, 576), "head": (576, 49152)}
HIDDEN, FFN, VOCABULARY = 576, 1536, 49152


@dataclass(frozen=True, slots=True)
class Case:
    """`make` builds the operands and returns the call to measure; memory is held only while it is measured."""

    operator: str
    implementation: str
    shape: str
    dtype: torch.dtype
    num_bytes: int
    operations: int
    make: Callable[[], Callable[[], object]]
    arithmetic: torch.dtype | None = None  #: what the operations compute in; None: dtype


def operator_sets(dtype: torch.dtype, num_threads: int) -> list[Operators]:
    """Torch's operators, and the engine's choice for this machine if it differs."""
    chosen = choose_operators(torch.device("cpu"), dtype, num_threads, allow_compiled=True)
    return [TorchOperators()] if isinstance(chosen, TorchOperators) else [TorchOperators(), chosen]


def all_cases(num_threads: int, *, is_quick: bool) -> Iterator[Case]:
    for dtype in (torch.bfloat16, torch.float32):
        sets = operator_sets(dtype, num_threads)
        yield from decode_cases(sets, dtype, is_quick=is_quick)
        yield from prefill_cases(sets, dtype, is_quick=is_quick)
        yield from linear_cases(sets, dtype, is_quick=is_quick)
        if dtype is torch.bfloat16:
            yield from small_cases(sets, dtype, is_quick=is_quick)


def decode_cases(sets: list[Operators], dtype: torch.dtype, *, is_quick: bool) -> Iterator[Case]:
    """One query per sequence over a paged context: bound by reading keys and values."""
    for shape in HEADS:
        for batch in (8,) if is_quick else (1, 8, 32):
            for context in (256,) if is_quick else (256, 1024, 4096):
                read = batch * context * 2 * shape.num_kv_heads * shape.head_dim * dtype.itemsize
                operations = 4 * batch * context * shape.num_heads * shape.head_dim
                text = f"{batch} x {context}, {_heads(shape)}"
                for operators in sets:
                    make = _attention(operators, shape, dtype, [context - 1] * batch, [1] * batch)
                    yield Case("paged attention, decode", operators.name, text, dtype, read, operations, make)


def prefill_cases(sets: list[Operators], dtype: torch.dtype, *, is_quick: bool) -> Iterator[Case]:
    """A whole prompt at once: bound by arithmetic, half of the square."""
    for shape in HEADS:
        for tokens in (64,) if is_quick else (512, 2048):
            moved = tokens * (2 * shape.num_heads + 4 * shape.num_kv_heads) * shape.head_dim * dtype.itemsize
            operations = 2 * tokens * (tokens + 1) * shape.num_heads * shape.head_dim
            for operators in sets:
                make = _attention(operators, shape, dtype, [0], [tokens])
                text = f"{tokens} tokens, {_heads(shape)}"
                yield Case("attention, prefill", operators.name, text, dtype, moved, operations, make)


def linear_cases(sets: list[Operators], dtype: torch.dtype, *, is_quick: bool) -> Iterator[Case]:
    for name, (size_in, size_out) in LINEARS.items():
        for rows in (8,) if is_quick else (1, 8, 32, 512):
            if name == "head" and rows > 32:
                continue  # only rows that draw a token reach the head
            moved = (size_in * size_out + rows * (size_in + size_out)) * dtype.itemsize
            text = f"{name} {size_in} x {size_out}, {rows} rows"
            for operators in sets:
                make = _linear(operators, rows, size_in, size_out, dtype)
                yield Case("linear", operators.name, text, dtype, moved, 2 * rows * size_in * size_out, make)


def small_cases(sets: list[Operators], dtype: torch.dtype, *, is_quick: bool) -> Iterator[Case]:
    """Operators that pass over their operands once. Only bytes are counted; their arithmetic is negligible."""
    shape, itemsize = HEADS[0], dtype.itemsize
    per_row = (2 * shape.num_heads + 4 * shape.num_kv_heads) * shape.head_dim * itemsize
    for rows in (8,) if is_quick else (1, 32, 512):
        for operators in sets:
            name, text = operators.name, f"{rows} rows"
            moved = 4 * rows * HIDDEN * itemsize
            yield Case("addition and RMS norm", name, text, dtype, moved, 0, _norm(operators, rows, dtype))
            moved = 3 * rows * FFN * itemsize
            yield Case("silu and product", name, text, dtype, moved, 0, _silu(operators, rows, dtype))
            make = _attention(operators, shape, dtype, [0] * rows, [1] * rows)
            yield Case("rotation and storing, contexts of one token", name, text, dtype, rows * per_row, 0, make)
    for rows in (8,) if is_quick else (1, 32):
        for name, params in _SAMPLING.items():
            for operators in sets:
                make = _sampling(operators, rows, params, dtype)
                text, read = f"{rows} rows, {name}", rows * VOCABULARY * itemsize
                yield Case("sampling", operators.name, text, dtype, read, 0, make)


_SAMPLING = {
    "greedy": SamplingParams(temperature=0.0),
    "temperature": SamplingParams(temperature=0.8, seed=1),
    "top-p 0.9": SamplingParams(temperature=0.8, top_p=0.9, seed=1),
}


def _heads(shape: AttentionShape) -> str:
    return f"{shape.num_heads}/{shape.num_kv_heads} x {shape.head_dim}"


def _attention(
    operators: Operators, shape: AttentionShape, dtype: torch.dtype, starts: list[int], lengths: list[int]
) -> Callable[[], Callable[[], object]]:
    """Rotation, storing of the step's own keys and values, and attention: one call in the engine too."""

    def make() -> Callable[[], object]:
        ends = np.array(starts) + np.array(lengths)
        num_pages = -(-ends // PAGE_TOKENS)
        specs = layer_specs((shape,), dtype, max_model_len=int(ends.max()))
        (kind,) = group_layers(specs, page_tokens=PAGE_TOKENS)
        pool_bytes = (int(num_pages.sum()) + 2) * kind.small_page_bytes
        plan = plan_pool(specs, page_tokens=PAGE_TOKENS, pool_bytes=pool_bytes)
        pool = torch.empty(plan.pool_bytes, dtype=torch.uint8)
        pool.view(dtype).normal_()
        # Pages in random order, as a server leaves them after a while. Page 0 is the null page.
        order = np.random.default_rng(0).permutation(int(num_pages.sum())) + 1
        table = np.zeros((len(starts), int(num_pages.max())), dtype=np.int64)
        table[np.arange(table.shape[1]) < num_pages[:, None]] = order
        backend = choose_backend(operators, plan, pool, (shape,), dtype)
        layout = StepLayout(np.array(starts), np.array(lengths), {plan.types[0].name: table})
        step = backend.begin(layout)
        qkv = torch.randn(sum(lengths), shape.num_heads + 2 * shape.num_kv_heads, shape.head_dim).to(dtype)
        rotation = Rotary(shape.head_dim, 1e5, None).at(torch.from_numpy(layout.positions))
        return lambda: step.attend(0, qkv, rotation, None)

    return make


def _linear(
    operators: Operators, rows: int, size_in: int, size_out: int, dtype: torch.dtype
) -> Callable[[], Callable[[], object]]:
    def make() -> Callable[[], object]:
        multiply = operators.linear(torch.randn(size_out, size_in).to(dtype), None)
        x = torch.randn(rows, size_in).to(dtype)
        return lambda: multiply(x)

    return make


def _norm(operators: Operators, rows: int, dtype: torch.dtype) -> Callable[[], Callable[[], object]]:
    def make() -> Callable[[], object]:
        norm = operators.rms_norm(torch.ones(HIDDEN, dtype=dtype), 1e-5)
        stream, update = torch.randn(rows, HIDDEN).to(dtype), torch.zeros(rows, HIDDEN, dtype=dtype)
        return lambda: norm(stream, update)

    return make


def _silu(operators: Operators, rows: int, dtype: torch.dtype) -> Callable[[], Callable[[], object]]:
    def make() -> Callable[[], object]:
        x = torch.randn(rows, 2 * FFN).to(dtype)
        return lambda: operators.silu_mul(x)

    return make


def _sampling(
    operators: Operators, rows: int, params: SamplingParams, dtype: torch.dtype
) -> Callable[[], Callable[[], object]]:
    def make() -> Callable[[], object]:
        logits = torch.randn(rows, VOCABULARY).to(dtype)
        drawn = [SamplingRow(params, seed, 3) for seed in range(rows)]
        return lambda: sample(logits, drawn, frozenset(), operators.argmax, operators.draw)

    return make
