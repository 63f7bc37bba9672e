"""The operators of a step on CPU, in the shapes that are measured, with the bytes and the arithmetic each must do.

A case calls what the engine itself calls: attention backends, layers, the sampler. `backends()` is the only place that
knows which attention backends exist.

B = sequences, L = context, H, K = query and key/value heads, D = head dimension.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from engine.attention.backend import AttentionBackend, AttentionShape, StepLayout
from engine.attention.layout import layer_specs
from engine.attention.torch_backend import TorchBackend
from engine.config import SamplingParams
from engine.kernels.reference import store_key_value
from engine.layers.linear import Linear
from engine.layers.mlp import GatedMLP
from engine.layers.norm import RMSNorm
from engine.layers.rotary import Rotary
from engine.memory.planner import group_layers, plan_pool
from engine.memory.spec import PoolPlan
from engine.sampling.sampler import SamplingRow, sample

PAGE_TOKENS = 16
#: smol-135m and an 8B Llama
HEADS = (AttentionShape(9, 3, 64), AttentionShape(32, 8, 128))
#: (in, out) of smol-135m's matrices by name
LINEARS = {"qkv": (576, 960), "output": (576, 576), "gate_up": (576, 3072), "down": (1536, 576), "head": (576, 49152)}
HIDDEN, FFN, VOCABULARY = 576, 1536, 49152

BackendMaker = Callable[[PoolPlan, torch.Tensor, tuple[AttentionShape, ...], torch.dtype], AttentionBackend]


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


def backends() -> Mapping[str, BackendMaker]:
    """Attention backends by name."""
    return {"torch": TorchBackend}


def all_cases(*, is_quick: bool) -> Iterator[Case]:
    yield from decode_cases(is_quick=is_quick)
    yield from prefill_cases(is_quick=is_quick)
    yield from linear_cases(is_quick=is_quick)
    yield from small_cases(is_quick=is_quick)


def decode_cases(*, is_quick: bool) -> Iterator[Case]:
    """One query per sequence over a paged context: bound by reading keys and values."""
    for shape in HEADS:
        for dtype in (torch.bfloat16, torch.float32):
            for batch in (8,) if is_quick else (1, 8, 32):
                for context in (256,) if is_quick else (256, 1024, 4096):
                    read = batch * context * 2 * shape.num_kv_heads * shape.head_dim * dtype.itemsize
                    operations = 4 * batch * context * shape.num_heads * shape.head_dim
                    text = f"{batch} x {context}, {_heads(shape)}"
                    for name, maker in backends().items():
                        make = _attention(maker, shape, dtype, [context - 1] * batch, [1] * batch)
                        yield Case("paged attention, decode", name, text, dtype, read, operations, make)


def prefill_cases(*, is_quick: bool) -> Iterator[Case]:
    """A whole prompt at once: bound by arithmetic, half of the square."""
    for shape in HEADS:
        for dtype in (torch.bfloat16, torch.float32):
            for tokens in (64,) if is_quick else (512, 2048):
                moved = tokens * (2 * shape.num_heads + 4 * shape.num_kv_heads) * shape.head_dim * dtype.itemsize
                operations = 2 * tokens * (tokens + 1) * shape.num_heads * shape.head_dim
                for name, maker in backends().items():
                    make = _attention(maker, shape, dtype, [0], [tokens])
                    text = f"{tokens} tokens, {_heads(shape)}"
                    yield Case("attention, prefill", name, text, dtype, moved, operations, make)


def linear_cases(*, is_quick: bool) -> Iterator[Case]:
    for dtype in (torch.bfloat16, torch.float32):
        for name, (size_in, size_out) in LINEARS.items():
            for rows in (8,) if is_quick else (1, 8, 32, 512):
                if name == "head" and rows > 32:
                    continue  # only rows that draw a token reach the head
                moved = (size_in * size_out + rows * (size_in + size_out)) * dtype.itemsize
                text = f"{name} {size_in} x {size_out}, {rows} rows"
                make = _linear(rows, size_in, size_out, dtype)
                yield Case("linear", "engine", text, dtype, moved, 2 * rows * size_in * size_out, make)


def small_cases(*, is_quick: bool) -> Iterator[Case]:
    """Everything that only passes over its operands once. Operations count as nothing beside the bytes."""
    dtype = torch.bfloat16
    for rows in (8,) if is_quick else (1, 32, 512):
        text = f"{rows} rows"
        yield Case("RMS norm", "engine", text, dtype, 2 * rows * HIDDEN * 2, 0, _norm(rows, dtype))
        yield Case("silu and product", "engine", text, dtype, 3 * rows * FFN * 2, 0, _silu(rows, dtype))
        moved = rows * (2 * 12 + 2 * 2 * 3) * 64 * 2
        yield Case("rotation and storing keys and values", "engine", text, dtype, moved, 0, _rotate(rows, dtype))
    for rows in (8,) if is_quick else (1, 32):
        read = rows * VOCABULARY * 2
        for name, params in _SAMPLING.items():
            make = _sampling(rows, params, dtype)
            yield Case("sampling", "engine", f"{rows} rows, {name}", dtype, read, 0, make)


_SAMPLING = {
    "greedy": SamplingParams(temperature=0.0),
    "temperature": SamplingParams(temperature=0.8, seed=1),
    "top-p 0.9": SamplingParams(temperature=0.8, top_p=0.9, seed=1),
}


def _heads(shape: AttentionShape) -> str:
    return f"{shape.num_heads}/{shape.num_kv_heads} x {shape.head_dim}"


def _attention(
    maker: BackendMaker, shape: AttentionShape, dtype: torch.dtype, starts: list[int], lengths: list[int]
) -> Callable[[], Callable[[], object]]:
    def make() -> Callable[[], object]:
        ends = np.array(starts) + np.array(lengths)
        num_pages = -(-ends // PAGE_TOKENS)
        specs = layer_specs((shape,), dtype, max_model_len=int(ends.max()))
        (kind,) = group_layers(specs, page_tokens=PAGE_TOKENS)
        plan = plan_pool(specs, page_tokens=PAGE_TOKENS, pool_bytes=(int(num_pages.sum()) + 2) * kind.small_page_bytes)
        pool = torch.empty(plan.pool_bytes, dtype=torch.uint8)
        pool.view(dtype).normal_()
        # Pages in random order, as a server leaves them after a while. Page 0 is the null page.
        order = np.random.default_rng(0).permutation(int(num_pages.sum())) + 1
        table = np.zeros((len(starts), int(num_pages.max())), dtype=np.int64)
        table[np.arange(table.shape[1]) < num_pages[:, None]] = order
        backend = maker(plan, pool, (shape,), dtype)
        layout = StepLayout(np.array(starts), np.array(lengths), {plan.types[0].name: table})
        step = backend.begin(layout)
        rows = sum(lengths)
        query = torch.randn(rows, shape.num_heads, shape.head_dim).to(dtype)
        key_value = torch.randn(rows, 2, shape.num_kv_heads, shape.head_dim).to(dtype)
        return lambda: step.attend(0, query, key_value)

    return make


def _linear(rows: int, size_in: int, size_out: int, dtype: torch.dtype) -> Callable[[], Callable[[], object]]:
    def make() -> Callable[[], object]:
        layer = Linear(torch.randn(size_out, size_in).to(dtype))
        x = torch.randn(rows, size_in).to(dtype)
        return lambda: layer(x)

    return make


def _norm(rows: int, dtype: torch.dtype) -> Callable[[], Callable[[], object]]:
    def make() -> Callable[[], object]:
        norm = RMSNorm(torch.ones(HIDDEN, dtype=dtype), 1e-5)
        x = torch.randn(rows, HIDDEN).to(dtype)
        return lambda: norm(x)

    return make


def _silu(rows: int, dtype: torch.dtype) -> Callable[[], Callable[[], object]]:
    def make() -> Callable[[], object]:
        mlp: Any = GatedMLP(_Identity(), _Identity())  # type: ignore[arg-type]  # the products are measured above
        x = torch.randn(rows, 2 * FFN).to(dtype)
        return lambda: mlp(x)

    return make


class _Identity:
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x


def _rotate(rows: int, dtype: torch.dtype) -> Callable[[], Callable[[], object]]:
    def make() -> Callable[[], object]:
        qkv = torch.randn(rows, 15, 64).to(dtype)
        pages = torch.zeros(rows + 1, 2, 3, PAGE_TOKENS, 64, dtype=dtype)
        page_ids, offsets = torch.arange(rows) + 1, torch.zeros(rows, dtype=torch.long)
        rotation = Rotary(64, 1e5, None, dtype=dtype).at(torch.arange(rows))

        def run() -> None:
            rotation.apply_(qkv[:, :12])
            store_key_value(qkv[:, 9:].view(rows, 2, 3, 64), pages, page_ids, offsets)

        return run

    return make


def _sampling(rows: int, params: SamplingParams, dtype: torch.dtype) -> Callable[[], Callable[[], object]]:
    def make() -> Callable[[], object]:
        logits = F.layer_norm(torch.randn(rows, VOCABULARY), (VOCABULARY,)).to(dtype)
        drawn = [SamplingRow(params, seed, 3) for seed in range(rows)]
        return lambda: sample(logits, drawn, frozenset())

    return make
