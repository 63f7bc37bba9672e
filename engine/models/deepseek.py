"""DeepSeek V2 and V3 (R1, Kimi K2 and Moonlight too), and GLM-4.7-Flash: Llama, but with latent attention and
experts."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from engine.attention.backend import AttentionShape
from engine.errors import CheckpointError
from engine.kernels.operators import ExpertGroups, Routing
from engine.layers.decoder import DecoderLayer
from engine.layers.experts import ExpertNames
from engine.layers.heads import HeadShare
from engine.layers.latent_attention import LatentAttention, LatentProjections
from engine.layers.linear import Linear
from engine.layers.mlp import FeedForward
from engine.layers.norm import RMSNorm
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig, MLPLoader, gated_mlp
from engine.models.mixtures import SharedExpert, load_mixture
from engine.models.sigmoid_experts import sigmoid_experts
from engine.parallel.shard import Shard

#: The layer after the last one predicts a second token; the published models have 61 and 47 layers.
NEXT_TOKEN_LAYERS = re.compile(r".*\.rotary_emb\.inv_freq|model\.layers\.(61|47)\..*")

_LATENT_EPS = 1e-6  #: of the norms inside attention, whatever the config says


def deepseek_v2(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds DeepSeek V2, whose experts have softmax scores."""
    return _build(config, weights, _softmax_experts(config), is_interleaved=True)


def deepseek_v3(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds DeepSeek V3, whose experts have sigmoid scores; the layer that predicts a second token is not used."""
    is_interleaved = config.get("rope_interleave", bool, True)
    return _build(config, weights, sigmoid_experts(config), is_interleaved=is_interleaved)


def glm4_moe_lite(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds GLM-4.7-Flash: DeepSeek V3, whose config lists the layers without experts."""
    num_layers = config.require("num_hidden_layers", int)
    kinds = config.get("mlp_layer_types", list, ["dense"] + ["sparse"] * (num_layers - 1))
    if len(kinds) != num_layers or not set(kinds) <= {"dense", "sparse"}:
        raise CheckpointError(f"config.json: mlp_layer_types must name {num_layers} layers, each one dense or sparse")
    dense = {index for index, kind in enumerate(kinds) if kind == "dense"}
    is_interleaved = config.get("rope_interleave", bool, True)
    return _build(config, weights, sigmoid_experts(config, dense), is_interleaved=is_interleaved)


@dataclass(frozen=True)
class LatentSettings:
    """Sizes of latent attention: N and R, channels of a head that are not rotated and that are; L, of the latent."""

    query_rank: int | None  #: queries are a product of that many channels; None: of the stream
    latent_dim: int
    plain_dim: int
    rotated_dim: int
    value_dim: int
    has_bias: bool
    is_interleaved: bool

    @classmethod
    def read(cls, config: ConfigReader, *, is_interleaved: bool) -> "LatentSettings":
        """Raises CheckpointError for a config.json that is incomplete."""
        return cls(
            query_rank=config.optional("q_lora_rank", int),
            latent_dim=config.require("kv_lora_rank", int),
            plain_dim=config.require("qk_nope_head_dim", int),
            rotated_dim=config.require("qk_rope_head_dim", int),
            value_dim=config.require("v_head_dim", int),
            has_bias=config.get("attention_bias", bool, False),
            is_interleaved=is_interleaved,
        )


def _build(config: ConfigReader, weights: WeightSource, load_mlp: MLPLoader, *, is_interleaved: bool) -> Llama:
    latent = LatentSettings.read(config, is_interleaved=is_interleaved)
    settings = LlamaConfig.read(config)
    shape = AttentionShape(
        settings.shape.num_heads,
        num_kv_heads=1,
        head_dim=latent.rotated_dim + latent.latent_dim,
        score_scale=(latent.plain_dim + latent.rotated_dim) ** -0.5 * _score_gain(config),
        value_dim=latent.latent_dim,
    )

    def load_layer(own: LlamaConfig, heads: HeadShare, layer_id: int, weights: WeightSource) -> DecoderLayer:
        name, hidden = f"model.layers.{layer_id}", own.hidden_size
        num_heads, own_heads = own.shape.num_heads, heads.shape.num_heads
        return DecoderLayer(
            mixer_norm=RMSNorm.load(weights, f"{name}.input_layernorm", hidden, own.norm_eps),
            mixer=LatentAttention(
                layer_id,
                heads.shape,
                latent_projections(latent, hidden, num_heads, own_heads, f"{name}.self_attn", weights),
                is_interleaved=latent.is_interleaved,
            ),
            mlp_norm=RMSNorm.load(weights, f"{name}.post_attention_layernorm", hidden, own.norm_eps),
            mlp=load_mlp(own, layer_id, weights),
            rotation=own.rotation_of(layer_id),
        )

    return Llama(replace(settings, shape=shape, rotary_dim=latent.rotated_dim, load_layer=load_layer), weights)


def _score_gain(config: ConfigReader) -> float:
    """YaRN's factor on scores, beside that on rotated channels."""
    section = config.section("rope_parameters") or config.section("rope_scaling")
    if section is None or section.get("rope_type", str, section.get("type", str, "default")) == "default":
        return 1.0
    weight, factor = section.get("mscale_all_dim", float, 0.0), section.get("factor", float, 1.0)
    return 1.0 if factor <= 1.0 else (0.1 * weight * math.log(factor) + 1.0) ** 2


def latent_projections(
    latent: LatentSettings, hidden: int, all_heads: int, num_heads: int, name: str, weights: WeightSource
) -> LatentProjections:
    """The projections of the layer `name`. all_heads: of the layer; num_heads: of this process."""
    operators = weights.operators
    head_size = latent.plain_dim + latent.value_dim

    def channels(size: int) -> Shard:
        return Shard.even(all_heads * size, weights.group.place, "channels of all heads")

    products = weights.take_matrix(f"{name}.kv_b_proj.weight", channels(head_size), latent.latent_dim)
    keys, values = products.view(num_heads, head_size, -1).split([latent.plain_dim, latent.value_dim], dim=1)
    return LatentProjections(
        queries=_queries(latent, hidden, channels(latent.plain_dim + latent.rotated_dim), name, weights),
        latent=Linear.load(
            weights,
            f"{name}.kv_a_proj_with_mqa",
            hidden,
            latent.latent_dim + latent.rotated_dim,
            bias=latent.has_bias,
        ),
        latent_norm=RMSNorm.load(weights, f"{name}.kv_a_layernorm", latent.latent_dim, _LATENT_EPS),
        keys_to_latent=operators.linear_by_head(keys.transpose(1, 2)),
        latent_to_values=operators.linear_by_head(values),
        output=Linear.load(weights, f"{name}.o_proj", channels(latent.value_dim), hidden, bias=latent.has_bias),
    )


def _queries(
    latent: LatentSettings, hidden: int, channels: Shard, name: str, weights: WeightSource
) -> Callable[[torch.Tensor], torch.Tensor]:
    if latent.query_rank is None:
        return Linear.load(weights, f"{name}.q_proj", hidden, channels, bias=False)
    down = Linear.load(weights, f"{name}.q_a_proj", hidden, latent.query_rank, bias=latent.has_bias)
    norm = RMSNorm.load(weights, f"{name}.q_a_layernorm", latent.query_rank, _LATENT_EPS)
    up = Linear.load(weights, f"{name}.q_b_proj", latent.query_rank, channels, bias=False)
    return lambda x: up(norm(down(x)))


def _softmax_experts(config: ConfigReader) -> MLPLoader:
    """A loader of the feed-forward part of each layer. Raises CheckpointError for another kind of routing."""
    config.expect("scoring_func", "softmax")
    config.expect("topk_method", "greedy", "group_limited_greedy")
    config.expect("norm_topk_prob", False)
    config.expect("moe_layer_freq", 1)
    num_dense = config.get("first_k_dense_replace", int, 0)
    num_experts = config.get("n_routed_experts", int, 64)
    num_shared = config.get("n_shared_experts", int, 2)
    ffn = config.get("moe_intermediate_size", int, 1407)
    groups = None
    if config.get("topk_method", str, "greedy") == "group_limited_greedy":
        groups = ExpertGroups(config.require("n_group", int), config.require("topk_group", int), num_summed=1)
    routing = Routing(
        config.require("num_experts_per_tok", int),
        sums_to_one=False,
        groups=groups,
        scale=config.get("routed_scaling_factor", float, 1.0),
    )

    def load_mlp(settings: LlamaConfig, layer_id: int, weights: WeightSource) -> FeedForward:
        if layer_id < num_dense:
            return gated_mlp(settings, layer_id, weights)
        name = f"model.layers.{layer_id}.mlp"
        return load_mixture(
            weights,
            f"{name}.gate",
            [ExpertNames.projections(f"{name}.experts.{index}") for index in range(num_experts)],
            settings.hidden_size,
            ffn,
            routing,
            SharedExpert(f"{name}.shared_experts", num_shared * ffn) if num_shared else None,
        )

    return load_mlp
