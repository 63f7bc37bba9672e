"""Decoders of random layers over random contexts, for tests that compare ways to run them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from engine.attention.backend import AttentionShape, AttentionStep, ForwardBatch, HeadNorms, StepLayout
from engine.attention.cpp_backend import CppBackend
from engine.attention.layout import layer_specs
from engine.attention.narrowing import narrow
from engine.attention.rotation import Rotation
from engine.kernels.cpu.operators import CppOperators
from engine.kernels.cpu.scratch import Scratch
from engine.layers.attention import SelfAttention
from engine.layers.decoder import Decoder, DecoderLayer
from engine.layers.latent_attention import LatentAttention, LatentProjections
from engine.layers.linear import Linear
from engine.layers.mlp import MLP, GatedMLP
from engine.layers.norm import LayerNorm, RMSNorm
from engine.memory.planning.planner import plan_pool
from tests.engine.kernels.libraries import USABLE, library

HIDDEN = 64
SHAPE = AttentionShape(4, 2, 32)
STARTS, LENGTHS = np.array([0, 17, 300, 0, 5]), np.array([37, 1, 1, 1, 40])
SHARING = (SHAPE, replace(SHAPE, shares_with=0))
LATENT = AttentionShape(4, 1, 48, value_dim=32)

Make = Callable[["Random", int], DecoderLayer]  #: a layer of an id


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

    def attention(
        self, layer_id: int, *, bias: bool, head_norms: HeadNorms | None = None, shape: AttentionShape = SHAPE
    ) -> SelfAttention:
        size = shape.num_heads * shape.head_dim
        stored = 0 if shape.shares_with is not None else 2 * shape.num_kv_heads * shape.head_dim
        qkv = self.linear(HIDDEN, size + stored, bias=bias)
        return SelfAttention(layer_id, shape, qkv, self.linear(size, HIDDEN, bias=bias), head_norms)

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


def sharing(random: Random, layer_id: int) -> DecoderLayer:
    """The second layer reads the keys and values of the first."""
    attention = random.attention(layer_id, bias=False, shape=SHARING[layer_id])
    return replace(llama(random, layer_id), mixer=attention)


def latents(random: Random, layer_id: int) -> DecoderLayer:
    """Heads of 8 channels without rotation, and values of 12."""
    assert LATENT.value_dim is not None
    num_heads, turned = LATENT.num_heads, LATENT.head_dim - LATENT.value_dim
    by_head = random.operators.linear_by_head
    projections = LatentProjections(
        queries=random.linear(HIDDEN, num_heads * (8 + turned), bias=False),
        latent=random.linear(HIDDEN, LATENT.head_dim, bias=False),
        latent_norm=RMSNorm(random.operators.rms_norm(random.tensor(LATENT.value_dim), 1e-6)),
        keys_to_latent=by_head(random.tensor(num_heads, LATENT.value_dim, 8)),
        latent_to_values=by_head(random.tensor(num_heads, 12, LATENT.value_dim) * 0.2),
        output=random.linear(num_heads * 12, HIDDEN, bias=False),
    )
    mixer = LatentAttention(layer_id, LATENT, projections, is_interleaved=layer_id == 1)
    return replace(llama(random, layer_id), mixer=mixer, rotation=1)


MAKES: Sequence[Make] = (llama, gemma, gpt2, gpt_neox, sharing, latents, with_a_part_of_its_own)


class OneByOne:
    """An attention step that cannot run recordings."""

    def __init__(self, step: Any) -> None:
        self.attend, self.store, self.read = step.attend, step.store, step.read


@dataclass(frozen=True)
class Outcome:
    """What is behind the layers after a run."""

    update: torch.Tensor
    stream: torch.Tensor
    pool: torch.Tensor  #: all pages


def run(
    make: Make,
    dtype: torch.dtype = torch.float32,
    instruction_set: str = USABLE[0],
    num_threads: int = 2,
    weights: str = "auto",
    *,
    is_recorded: bool = True,
    kv_dtype: torch.dtype | None = None,
    wanted: Sequence[int] | None = None,
    make_backend: Callable[..., Any] | None = None,
    shares: bool = False,
) -> Outcome:
    """Two layers in two steps: the contexts, then a mixed step on top of them, narrowed to the last wanted[b] tokens of
    each sequence. make_backend: (plan, pool, shapes, dtype) -> attention; None: the operators' own. shares: the
    layers have the shapes of `sharing`."""
    operators = CppOperators(
        library(instruction_set, num_threads),
        dtype,
        has_int8_weights=weights == "int8",
        has_int4_weights=weights == "int4",
    )
    torch.manual_seed(1)
    random = Random(operators, dtype)
    decoder = Decoder([make(random, layer_id) for layer_id in range(2)], operators)
    shapes = SHARING if shares or make is sharing else (LATENT, LATENT) if make is latents else (SHAPE, SHAPE)
    plan = plan_pool(layer_specs(shapes, kv_dtype or dtype, 512), page_tokens=16, pool_bytes=4 << 20)
    pool = torch.zeros(plan.pool_bytes, dtype=torch.uint8)
    if make_backend is None:
        backend: Any = CppBackend(plan, pool, shapes, dtype, operators.library, Scratch())
    else:
        backend = make_backend(plan, pool, shapes, dtype)
    tables = {plan.types[0].name: 1 + np.arange(len(LENGTHS) * 32).reshape(len(LENGTHS), 32)}
    has_past = STARTS > 0
    past = StepLayout(
        np.zeros_like(STARTS[has_past]), STARTS[has_past], {k: table[has_past] for k, table in tables.items()}
    )
    for layout in (past, StepLayout(STARTS, LENGTHS, tables)):
        num_rows = int(layout.lengths.sum())
        stream = random.tensor(num_rows, HIDDEN)
        angles = torch.randn(num_rows, 16, generator=torch.Generator().manual_seed(2))
        rotations = [Rotation(angles.cos(), angles.sin()), Rotation(angles[:, :8].sin(), angles[:, :8].cos())]

        def begin(layout: StepLayout) -> AttentionStep:
            step: AttentionStep = backend.begin(layout)
            return step if is_recorded else OneByOne(step)

        batch = ForwardBatch(torch.zeros(num_rows), torch.zeros(num_rows), begin(layout))
        if wanted is not None and layout is not past:
            batch = narrow(batch, layout, np.array(wanted), begin)
            assert batch.narrowing is not None
        stream, update = decoder(stream, [Rotation(r.cos.contiguous(), r.sin.contiguous()) for r in rotations], batch)
    return Outcome(update, stream, pool)
