"""Kimi Linear: Kimi delta attention, with latent attention without positions in every fourth layer; experts as those of
DeepSeek V3 in all layers but the first."""

from dataclasses import replace

import torch

from engine.attention.backend import AttentionShape
from engine.errors import CheckpointError
from engine.kernels.operators import ExpertGroups, Routing
from engine.layers.decoder import DecoderLayer
from engine.layers.embedding import TokenEmbedding
from engine.layers.experts import ExpertNames, load_expert
from engine.layers.kimi_delta import KimiDelta, KimiDeltaSizes
from engine.layers.latent_attention import LatentAttention
from engine.layers.mixer import Mixer
from engine.layers.mlp import FeedForward
from engine.layers.norm import RMSNorm
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.deepseek import LatentSettings, latent_projections
from engine.models.hybrid import HybridLM, HybridParts, checked_kinds
from engine.models.mixtures import SharedExpert, load_mixture

_ATTENTION, _DELTA = "attention", "mamba"  #: as checked_kinds names them


def kimi_linear(config: ConfigReader, weights: WeightSource) -> HybridLM:
    """Builds Kimi Linear."""
    config.expect("hidden_act", "silu")
    config.expect("mla_use_nope", True)
    hidden, num_layers = config.require("hidden_size", int), config.require("num_hidden_layers", int)
    eps, vocab_size = config.get("rms_norm_eps", float, 1e-5), config.require("vocab_size", int)
    latent = LatentSettings.read(config, is_interleaved=False)
    num_heads = config.require("num_attention_heads", int)
    shape = AttentionShape(
        num_heads,
        num_kv_heads=1,
        head_dim=latent.rotated_dim + latent.latent_dim,
        score_scale=(latent.plain_dim + latent.rotated_dim) ** -0.5,
        value_dim=latent.latent_dim,
    )
    sizes, kinds, is_sparse = (
        _sizes(config, hidden, eps),
        _kinds(config, num_layers),
        _sparse_layers(config, num_layers),
    )
    routing = _routing(config)
    layers = []
    for index, kind in enumerate(kinds):
        name, attention_id = f"model.layers.{index}", kinds[:index].count(_ATTENTION)
        if kind == _ATTENTION:
            projections = latent_projections(latent, hidden, num_heads, num_heads, f"{name}.self_attn", weights)
            mixer: Mixer = LatentAttention(attention_id, shape, projections, is_interleaved=False)
        else:
            mixer = KimiDelta(2 * (index - attention_id), weights, f"{name}.self_attn", sizes)
        layers.append(
            DecoderLayer(
                mixer_norm=RMSNorm.load(weights, f"{name}.input_layernorm", hidden, eps),
                mixer=mixer,
                mlp_norm=RMSNorm.load(weights, f"{name}.post_attention_layernorm", hidden, eps),
                mlp=_feed_forward(config, weights, name, hidden, routing if is_sparse[index] else None),
            )
        )
    num_attention = kinds.count(_ATTENTION)
    is_tied = config.get("tie_word_embeddings", bool, False)
    parts = HybridParts(
        vocab_size=vocab_size,
        max_positions=config.get("model_max_length", int, config.get("max_position_embeddings", int, 1_048_576)),
        attention_shapes=(shape,) * num_attention,
        state_shapes=sizes.state_shapes(weights.dtype) * (num_layers - num_attention),
        tokens=TokenEmbedding.load(
            weights, "model.embed_tokens", vocab_size, hidden, head=None if is_tied else "lm_head"
        ),
        layers=layers,
        norm=RMSNorm.load(weights, "model.norm", hidden, eps),
    )
    return HybridLM(parts, weights)


def _feed_forward(
    config: ConfigReader, weights: WeightSource, layer: str, hidden: int, routing: Routing | None
) -> FeedForward:
    """routing: None: a layer without experts."""
    name = f"{layer}.block_sparse_moe"
    if routing is None:
        # transformers writes all layers under the name of those with experts
        dense = name if f"{name}.gate_proj.weight" in weights else f"{layer}.mlp"
        return load_expert(weights, ExpertNames.projections(dense), hidden, config.require("intermediate_size", int))
    num_experts, ffn = config.require("num_experts", int), config.require("moe_intermediate_size", int)
    num_shared = config.get("num_shared_experts", int, 1)
    # Differences between experts are smaller than what bfloat16 keeps.
    correction = weights.take(f"{name}.gate.e_score_correction_bias", num_experts, dtype=torch.float32)
    experts = [f"{name}.experts.{index}" for index in range(num_experts)]
    return load_mixture(
        weights,
        f"{name}.gate",
        [ExpertNames(gate=f"{expert}.w1", up=f"{expert}.w3", down=f"{expert}.w2") for expert in experts],
        hidden,
        ffn,
        replace(routing, correction=correction),
        SharedExpert(f"{name}.shared_experts", num_shared * ffn) if num_shared else None,
    )


def _routing(config: ConfigReader) -> Routing:
    config.expect("moe_router_activation_func", "sigmoid")
    config.expect("moe_layer_freq", 1)
    num_groups = config.get("num_expert_group", int, 1)
    return Routing(
        config.require("num_experts_per_token", int),
        sums_to_one=config.get("moe_renormalize", bool, True),
        is_sigmoid=True,
        groups=None if num_groups == 1 else ExpertGroups(num_groups, config.get("topk_group", int, 1), num_summed=2),
        scale=config.get("routed_scaling_factor", float, 1.0),
    )


def _sizes(config: ConfigReader, hidden: int, eps: float) -> KimiDeltaSizes:
    """Published configs have a section for these layers; transformers writes other keys."""
    section = config.section("linear_attn_config")
    if section is None:
        return KimiDeltaSizes(
            hidden,
            num_heads=config.get("linear_num_heads", int, 32),
            head_dim=config.get("linear_head_dim", int, 128),
            num_taps=config.get("linear_conv_kernel_dim", int, 4),
            norm_eps=eps,
        )
    return KimiDeltaSizes(
        hidden,
        num_heads=section.require("num_heads", int),
        head_dim=section.require("head_dim", int),
        num_taps=section.get("short_conv_kernel_size", int, 4),
        norm_eps=eps,
    )


def _kinds(config: ConfigReader, num_layers: int) -> list[str]:
    """By layer; published configs list the numbers of layers, beginning with 1."""
    listed, section = config.optional("layer_types", list), config.section("linear_attn_config")
    if listed is None and section is not None:
        attention, delta = (section.require(f"{kind}_layers", list) for kind in ("full_attn", "kda"))
        if len(attention + delta) != num_layers or set(attention + delta) != set(range(1, num_layers + 1)):
            raise CheckpointError(f"config.json: full_attn_layers and kda_layers are not layers 1 to {num_layers}")
        listed = ["full_attention" if index + 1 in attention else "linear_attention" for index in range(num_layers)]
    if listed is None:
        raise CheckpointError("config.json has no layer_types and no linear_attn_config")
    return checked_kinds(listed, num_layers, _ATTENTION, _DELTA)


def _sparse_layers(config: ConfigReader, num_layers: int) -> list[bool]:
    """By layer: whether it has experts."""
    num_dense = config.get("first_k_dense_replace", int, 1)
    default = ["dense" if index < num_dense else "sparse" for index in range(num_layers)]
    kinds = checked_kinds(config.get("mlp_layer_types", list, default), num_layers, "dense", "sparse")
    return [kind == "sparse" for kind in kinds]
