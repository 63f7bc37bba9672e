"""Hunyuan 1: Llama, but query and key heads are normed after their rotation, and the base of positions grows with a
factor `alpha`. Dense, or with experts and a shared expert in every layer."""

from dataclasses import replace

import torch

from engine.attention.backend import AttentionShape, ForwardBatch
from engine.attention.rotation import Rotation
from engine.errors import CheckpointError
from engine.kernels.operators import NormFunction, Routing
from engine.layers.decoder import DecoderLayer
from engine.layers.experts import ExpertNames
from engine.layers.heads import HeadShare
from engine.layers.linear import Linear
from engine.layers.mlp import FeedForward
from engine.layers.norm import RMSNorm
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig, gated_mlp
from engine.models.mixtures import SharedExpert, load_mixture
from engine.models.rope import Rope, read_rope


def hunyuan(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds the dense models."""
    return Llama(_read(config), weights)


def hunyuan_moe(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds the mixtures of experts."""
    settings = _read(config)
    num_experts = config.by_layer("num_experts", settings.num_layers)
    num_chosen = config.by_layer("moe_topk", settings.num_layers)

    def load_mlp(settings: LlamaConfig, layer_id: int, weights: WeightSource) -> FeedForward:
        name, ffn = f"model.layers.{layer_id}.mlp", settings.intermediate_size
        names = [ExpertNames.projections(f"{name}.experts.{index}") for index in range(num_experts[layer_id])]
        routing, shared = Routing(num_chosen[layer_id], sums_to_one=True), SharedExpert(f"{name}.shared_mlp", ffn)
        return load_mixture(weights, f"{name}.gate.wg", names, settings.hidden_size, ffn, routing, shared)

    return Llama(replace(settings, load_mlp=load_mlp), weights)


class NormedAfterRotation:
    """Self-attention whose query and key heads are rotated, then normed; attention backends norm before they rotate."""

    def __init__(
        self,
        layer_id: int,
        shape: AttentionShape,
        qkv: Linear,
        output: Linear,
        norms: tuple[NormFunction, NormFunction],
    ) -> None:
        """norms: of query heads and of key heads, [T * heads, D] -> normed."""
        self._layer_id = layer_id
        self._shape = shape
        self._qkv = qkv
        self._output = output
        self._norms = norms

    def __call__(self, x: torch.Tensor, rotation: Rotation | None, batch: ForwardBatch) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]; writes the keys and values of these tokens into their pages."""
        shape = self._shape
        heads = self._qkv(x).view(len(x), -1, shape.head_dim)
        if rotation is not None:
            rotation.apply_(heads[:, : shape.num_heads + shape.num_kv_heads])
        queries, keys, _ = torch.split(heads, [shape.num_heads, shape.num_kv_heads, shape.num_kv_heads], dim=1)
        for part, norm in zip((queries, keys), self._norms, strict=True):
            part.copy_(norm(part.reshape(-1, shape.head_dim).contiguous(), None).view(part.shape))
        return self._output(batch.attention.attend(self._layer_id, heads, None, None))


def _read(config: ConfigReader) -> LlamaConfig:
    config.expect("use_qk_norm", True)
    config.expect("use_cla", False)
    return replace(
        LlamaConfig.read(config, rope=_read_rope(config)),
        norm_eps=config.get("rms_norm_eps", float, 1e-5),
        has_mlp_bias=False,
        load_layer=_layer,
    )


def _layer(config: LlamaConfig, heads: HeadShare, layer_id: int, weights: WeightSource) -> DecoderLayer:
    layer, head_dim, eps = f"model.layers.{layer_id}", config.shape.head_dim, config.norm_eps
    name, hidden = f"{layer}.self_attn", config.hidden_size
    norms = [RMSNorm.load(weights, f"{name}.{part}_layernorm", head_dim, eps).norm for part in ("query", "key")]
    qkv = [f"{name}.{part}_proj" for part in "qkv"]
    return DecoderLayer(
        mixer_norm=RMSNorm.load(weights, f"{layer}.input_layernorm", hidden, eps),
        mixer=NormedAfterRotation(
            layer_id,
            heads.shape,
            Linear.fused(weights, qkv, hidden, heads.qkv, bias=config.has_qkv_bias),
            Linear.load(weights, f"{name}.o_proj", heads.queries, hidden, bias=config.has_output_bias),
            (norms[0], norms[1]),
        ),
        mlp_norm=RMSNorm.load(weights, f"{layer}.post_attention_layernorm", hidden, eps),
        mlp=(config.load_mlp or gated_mlp)(config, layer_id, weights),
        rotation=0,
    )


def _read_rope(config: ConfigReader) -> Rope:
    """With `alpha` the checkpoints call their scaling dynamic, but it does not depend on the length."""
    section = config.section("rope_parameters") or config.section("rope_scaling")
    alpha = None if section is None else section.optional("alpha", float)
    if section is None or alpha is None:
        return read_rope(config)
    section.expect("rope_type", "dynamic")
    section.expect("type", "dynamic")
    width, num_heads = config.require("hidden_size", int), config.require("num_attention_heads", int)
    head_dim = config.get("head_dim", int, width // num_heads)
    if head_dim <= 2:
        raise CheckpointError(f"config.json: alpha has no meaning for heads of {head_dim} channels")
    base = section.get("rope_theta", float, config.get("rope_theta", float, 10_000.0))
    return Rope(base * alpha ** (head_dim / (head_dim - 2)))
