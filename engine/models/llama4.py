"""Llama 4: layers that read their own chunk and rotate heads, layers that read everything and have no positions, and
experts with a shared one. From checkpoints with a vision tower only the text model is served."""

import re
from dataclasses import replace

import torch

from engine.attention.backend import HeadNorms
from engine.errors import CheckpointError
from engine.kernels.operators import PLAIN_EXPERTS, Routing
from engine.layers.adjacent_pairs import AdjacentPairs
from engine.layers.attention import SelfAttention
from engine.layers.decoder import DecoderLayer
from engine.layers.experts import ExpertNames, Experts, WithSharedExpert, load_expert
from engine.layers.heads import HeadShare
from engine.layers.linear import Linear
from engine.layers.mlp import FeedForward
from engine.layers.norm import RMSNorm
from engine.layers.rotary import QueryScaling
from engine.layers.weights import WeightSource, text_model_of
from engine.models.config_reader import ConfigReader
from engine.models.llama import LayerLoader, Llama, LlamaConfig, MLPLoader
from engine.models.rope import Rope, read_rope
from engine.models.smollm3 import read_rotated
from engine.parallel.shard import Shard

#: The vision tower with its projector.
LLAMA4_VISION = re.compile(r"(model\.)?(vision_model|multi_modal_projector)\..*")

_IS_CHUNKED = {"full_attention": False, "chunked_attention": True}


def llama4(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds the text model; its config may be a whole config.json or a text_config."""
    settings = LlamaConfig.read(config)
    is_rotated = read_rotated(config, settings.num_layers)
    rope, unrotated = read_rope(config, default_base=500_000.0), _unrotated(config, settings.max_positions)
    settings = replace(
        settings,
        max_positions=config.get("max_position_embeddings", int, 131_072),
        norm_eps=config.get("rms_norm_eps", float, 1e-5),
        chunks=_read_chunks(config, is_rotated),
        layer_ropes=tuple(rope if is_it else unrotated for is_it in is_rotated),
        load_mlp=_feed_forward(config),
        load_layer=_layers(has_head_norm=config.get("use_qk_norm", bool, True)),
    )
    return Llama(settings, weights)


def llama4_with_vision(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds the text model of a checkpoint with a vision tower: the same, one level deeper in config and names."""
    text = config.section("text_config")
    if text is None:
        raise CheckpointError("config.json has no text_config")
    return llama4(text, text_model_of(weights))


def _unrotated(config: ConfigReader, max_positions: int) -> Rope | None:
    """What layers without positions have in place of a rotary embedding: queries that grow with their position, where
    a context is served in which they do."""
    scaling = QueryScaling(config.get("attn_scale", float, 0.1), config.get("floor_scale", int, 8192), offset=1)
    is_on = config.get("attn_temperature_tuning", bool, True)
    is_on = is_on and (config.served_context or max_positions) >= scaling.original_context
    return Rope(1.0, share=0.0, query_scaling=scaling) if is_on else None


def _read_chunks(config: ConfigReader, is_rotated: list[bool]) -> tuple[int | None, ...]:
    """By layer: tokens of a chunk, or None. Without layer_types the layers with positions have chunks."""
    chunk = config.optional("attention_chunk_size", int) if "attention_chunk_size" in config else 8192
    names = config.optional("layer_types", list)
    if names is not None and (len(names) != len(is_rotated) or not all(name in _IS_CHUNKED for name in names)):
        raise CheckpointError(
            f"config.json: layer_types must name {len(is_rotated)} layers, each one of {', '.join(_IS_CHUNKED)}"
        )
    is_chunked = is_rotated if names is None else [_IS_CHUNKED[name] for name in names]
    if chunk is None and any(is_chunked):
        raise CheckpointError("config.json: chunked layers need an attention_chunk_size")
    return tuple(chunk if is_it else None for is_it in is_chunked)


def _layers(*, has_head_norm: bool) -> LayerLoader:
    def load_layer(config: LlamaConfig, heads: HeadShare, layer_id: int, weights: WeightSource) -> DecoderLayer:
        name, hidden, eps = f"model.layers.{layer_id}", config.hidden_size, config.norm_eps
        assert config.load_mlp is not None
        rope = config.rope_of(layer_id)
        is_rotated = rope is not None and rope.share > 0.0
        scale = weights.take(f"{name}.input_layernorm.weight", hidden)
        # These norms have no weights, so it does not matter that here they come before the rotation.
        ones = torch.ones(heads.shape.head_dim, device=scale.device)
        return DecoderLayer(
            mixer_norm=RMSNorm(weights.operators.rms_norm(scale, eps)),
            mixer=SelfAttention(
                layer_id,
                heads.shape,
                _qkv(config, heads, f"{name}.self_attn", weights, is_rotated=is_rotated),
                Linear.load(weights, f"{name}.self_attn.o_proj", heads.queries, hidden, bias=config.has_output_bias),
                HeadNorms(ones, ones, eps) if has_head_norm and is_rotated else None,
                scales_queries=rope is not None and rope.query_scaling is not None,
            ),
            mlp_norm=RMSNorm.load(weights, f"{name}.post_attention_layernorm", hidden, eps),
            mlp=config.load_mlp(config, layer_id, weights),
            rotation=config.rotation_of(layer_id),
        )

    return load_layer


def _qkv(config: LlamaConfig, heads: HeadShare, name: str, weights: WeightSource, *, is_rotated: bool) -> Linear:
    """Layers without positions keep the order of channels; rotated ones are stored in pairs of adjacent channels."""
    if is_rotated:
        head_dim = heads.shape.head_dim
        weights = AdjacentPairs(weights, head_dim=head_dim, num_rotated=head_dim)
    names = [f"{name}.{part}_proj" for part in "qkv"]
    return Linear.fused(weights, names, config.hidden_size, heads.qkv, bias=config.has_qkv_bias)


def _feed_forward(config: ConfigReader) -> MLPLoader:
    num_experts = config.get("num_local_experts", int, 16)
    routing = Routing(config.get("num_experts_per_tok", int, 1), sums_to_one=False, is_sigmoid=True, scales_inputs=True)
    dense_ffn = config.get("intermediate_size_mlp", int, 16_384)
    listed, period = config.optional("moe_layers", list), config.get("interleave_moe_layer_step", int, 1)

    def load_mlp(settings: LlamaConfig, layer_id: int, weights: WeightSource) -> FeedForward:
        name, hidden, place = f"model.layers.{layer_id}.feed_forward", settings.hidden_size, weights.group.place
        if (layer_id + 1) % period if listed is None else layer_id not in listed:
            ffn = Shard.even(dense_ffn, place, "intermediate_size_mlp")
            return load_expert(weights, ExpertNames.projections(name), hidden, ffn)
        ffn = Shard.even(settings.intermediate_size, place, "intermediate_size")
        experts = _experts(weights, name, num_experts, hidden, ffn, routing)
        shared = load_expert(weights, ExpertNames.projections(f"{name}.shared_expert"), hidden, ffn)
        return WithSharedExpert(experts, shared, gate=None)

    return load_mlp


def _experts(weights: WeightSource, name: str, num_experts: int, hidden: int, ffn: Shard, routing: Routing) -> Experts:
    """In 16 bits stacks of [in, out]; quantised checkpoints have matrices for each expert."""
    router = Linear.load_router(weights, f"{name}.router", hidden, num_experts)
    if f"{name}.experts.gate_up_proj" not in weights:
        names = [ExpertNames.projections(f"{name}.experts.{index}") for index in range(num_experts)]
        return Experts.load(weights, router, names, hidden, ffn, routing)
    gate_up = weights.take_matrix(f"{name}.experts.gate_up_proj", num_experts, hidden, Shard.stacked([ffn, ffn]))
    down = weights.take_matrix(f"{name}.experts.down_proj", num_experts, ffn, hidden)
    return Experts.stacked(
        weights,
        router,
        gate_up.transpose(1, 2),
        down.transpose(1, 2),
        routing,
        PLAIN_EXPERTS,
        summed_over=None if ffn.is_whole else weights.group,
    )
