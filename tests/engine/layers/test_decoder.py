"""Decoder layers in one call give to the last bit what the same layers give operator by operator."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from engine.attention.backend import AttentionShape, AttentionStep, ForwardBatch, HeadNorms, StepLayout
from engine.attention.cpp_backend import CppBackend
from engine.attention.layout import layer_specs
from engine.attention.rotation import Rotation
from engine.kernels.cpu.operators import CppOperators
from engine.kernels.cpu.scratch import Scratch
from engine.layers.attention import SelfAttention
from engine.layers.decoder import Decoder, DecoderLayer
from engine.layers.linear import Linear
from engine.layers.mlp import MLP, GatedMLP
from engine.layers.norm import LayerNorm, RMSNorm
from engine.memory.planning.planner import plan_pool
from tests.engine.kernels.libraries import USABLE, library

HIDDEN = 64
SHAPE = AttentionShape(4, 2, 32)
STARTS, LENGTHS = np.array([0, 17, 300, 0]), np.array([37, 1, 1, 1])


class Random:
    """Seeded random weights of any size."""

    def __init__(self, operators: CppOperators, dtype: torch.dtype) -> None:
        self.operators = operators
        self._dtype = dtype
        self._generator = torch.Generator().manual_seed(5)

    def tensor(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self._generator).to(self._dtype)

    def linear(self, size: int, out: int, *, bias: bool) -> Linear:
        return Linear.bind(self.operators, self.tensor(out, size) * size**-0.5, self.tensor(out) if bias else None)

    def rms_norm(self) -> RMSNorm:
        return RMSNorm(self.operators.rms_norm(self.tensor(HIDDEN), 1e-5))

    def layer_norm(self) -> LayerNorm:
        return LayerNorm(self.operators.layer_norm(self.tensor(HIDDEN), self.tensor(HIDDEN), 1e-5))

    def attention(self, layer_id: int, *, bias: bool, head_norms: HeadNorms | None = None) -> SelfAttention:
        size = SHAPE.num_heads * SHAPE.head_dim
        qkv = self.linear(HIDDEN, size + 2 * SHAPE.num_kv_heads * SHAPE.head_dim, bias=bias)
        return SelfAttention(layer_id, SHAPE, qkv, self.linear(size, HIDDEN, bias=bias), head_norms)

    def gated(self, ffn: int) -> GatedMLP:
        up = self.linear(HIDDEN, 2 * ffn, bias=True)
        return GatedMLP(up, self.linear(ffn, HIDDEN, bias=False), self.operators.silu_mul)


def llama(random: Random, layer_id: int) -> DecoderLayer:
    """Gates that fill whole panels in one layer, and not in the other."""
    mlp = random.gated((96, 100)[layer_id])
    return DecoderLayer(random.rms_norm(), random.attention(layer_id, bias=False), random.rms_norm(), mlp, rotation=0)


def gemma(random: Random, layer_id: int) -> DecoderLayer:
    norms = HeadNorms(torch.rand(32), torch.rand(32), 1e-6)
    attention = random.attention(layer_id, bias=False, head_norms=norms)
    return DecoderLayer(
        random.rms_norm(),
        attention,
        random.rms_norm(),
        random.gated(96),
        layer_id,
        random.rms_norm(),
        random.rms_norm(),
    )


def gpt2(random: Random, layer_id: int) -> DecoderLayer:
    activation = (random.operators.gelu_tanh, random.operators.relu)[layer_id]
    mlp = MLP(random.linear(HIDDEN, 200, bias=True), random.linear(200, HIDDEN, bias=True), activation)
    return DecoderLayer(random.layer_norm(), random.attention(layer_id, bias=True), random.layer_norm(), mlp)


def gpt_neox(random: Random, layer_id: int) -> DecoderLayer:
    mlp = replace(gpt2(random, layer_id), rotation=1).mlp
    return DecoderLayer(
        random.layer_norm(), random.attention(layer_id, bias=True), random.layer_norm(), mlp, 1, is_parallel=True
    )


def with_a_part_of_its_own(random: Random, layer_id: int) -> DecoderLayer:
    """The first layer's feed-forward part is a function that no recorder accepts."""
    layer = llama(random, layer_id)
    return replace(layer, mlp=lambda x: x * 2) if layer_id == 0 else layer


class OneByOne:
    """An attention step that cannot run recordings."""

    def __init__(self, step: AttentionStep) -> None:
        self.attend = step.attend


@pytest.mark.parametrize("make", [llama, gemma, gpt2, gpt_neox, with_a_part_of_its_own])
@pytest.mark.parametrize("weights", ["float32", "bfloat16", "int8", "int4"])
def test_it_gives_what_its_operators_give(make: object, weights: str) -> None:
    dtype = torch.float32 if weights == "float32" else torch.bfloat16
    results = [run(make, dtype, USABLE[0], 2, weights, is_recorded=recorded) for recorded in (False, True)]
    for one_by_one, recorded in zip(*results, strict=True):
        assert torch.equal(one_by_one, recorded)
        assert recorded.isfinite().all()


@pytest.mark.parametrize("make", [llama, gemma])
def test_so_it_does_over_pages_of_8_bits(make: object) -> None:
    runs = [run(make, torch.bfloat16, USABLE[0], 2, is_recorded=r, kv_dtype=torch.int8) for r in (False, True)]
    for one_by_one, recorded in zip(*runs, strict=True):
        assert torch.equal(one_by_one, recorded)
    exact = run(make, torch.bfloat16, USABLE[0], 2)
    assert not torch.equal(exact[1], runs[1][1])
    torch.testing.assert_close(exact[1], runs[1][1], atol=0.1, rtol=0.1)


@pytest.mark.parametrize("instruction_set", USABLE)
@pytest.mark.parametrize("weights", ["bfloat16", "int8", "int4"])
def test_a_row_is_the_same_on_any_number_of_threads(instruction_set: str, weights: str) -> None:
    runs = [run(llama, torch.bfloat16, instruction_set, threads, weights) for threads in (1, 2, 3, 5)]
    for one, other in pairwise(runs):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_threads_that_lose_their_cores_leave_no_item_out_and_do_none_twice() -> None:
    """Many more threads than cores: the system preempts threads at any point, and other threads do their items."""
    (alone, stream), *others = [run(llama, torch.float32, USABLE[0], threads) for threads in (1, *8 * [16])]
    for update, other_stream in others:
        assert torch.equal(update, alone)
        assert torch.equal(other_stream, stream)


def run(
    make: object,
    dtype: torch.dtype,
    instruction_set: str,
    num_threads: int,
    weights: str = "auto",
    *,
    is_recorded: bool = True,
    kv_dtype: torch.dtype | None = None,
) -> Sequence[torch.Tensor]:
    """Update and stream behind two layers, in two steps: the contexts, then a mixed step on top of them."""
    operators = CppOperators(
        library(instruction_set, num_threads),
        dtype,
        has_int8_weights=weights == "int8",
        has_int4_weights=weights == "int4",
    )
    torch.manual_seed(1)
    random = Random(operators, dtype)
    decoder = Decoder([make(random, layer_id) for layer_id in range(2)], operators)  # type: ignore[operator]
    specs = layer_specs((SHAPE, SHAPE), kv_dtype or dtype, 512)
    plan = plan_pool(specs, page_tokens=16, pool_bytes=4 << 20)
    pool = torch.zeros(plan.pool_bytes, dtype=torch.uint8)
    backend = CppBackend(plan, pool, (SHAPE, SHAPE), dtype, operators.library, Scratch())
    tables = {plan.types[0].name: 1 + np.arange(len(LENGTHS) * 32).reshape(len(LENGTHS), 32)}
    has_past = STARTS > 0
    past = StepLayout(
        np.zeros_like(STARTS[has_past]), STARTS[has_past], {k: table[has_past] for k, table in tables.items()}
    )
    for layout in (past, StepLayout(STARTS, LENGTHS, tables)):
        num_rows = int(layout.lengths.sum())
        stream = random.tensor(num_rows, HIDDEN)
        angles = torch.randn(num_rows, 16, generator=torch.Generator().manual_seed(2))
        rotations = [Rotation(angles.cos(), angles.sin()), Rotation(angles[:, :10].sin(), angles[:, :10].cos())]
        step: AttentionStep = backend.begin(layout)
        update = decoder(
            stream,
            [Rotation(r.cos.contiguous(), r.sin.contiguous()) for r in rotations],
            ForwardBatch(torch.zeros(num_rows), torch.zeros(num_rows), step if is_recorded else OneByOne(step)),
        )
    return update, stream
