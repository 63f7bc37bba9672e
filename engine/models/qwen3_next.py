"""Qwen3-Next: gated delta nets, with gated attention in every fourth layer; norms around one; a mixture of experts with
a shared one in all layers, or in those that the config lists. Qwen3.5 is the same with other names of tensors."""

from collections.abc import Callable

import torch

from engine.attention.backend import AttentionShape, ForwardBatch, HeadNorms
from engine.errors import CheckpointError
from engine.layers.decoder import Decoder, DecoderLayer
from engine.layers.delta_net import DeltaNet, DeltaShare, DeltaSizes
from engine.layers.embedding import TokenEmbedding
from engine.layers.gated_attention import GatedAttention
from engine.layers.heads import HeadShare
from engine.layers.linear import Linear, ungrouped
from engine.layers.mixer import Mixer
from engine.layers.norm import RMSNorm, scales_around_one
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import LlamaConfig, MLPLoader
from engine.models.qwen2_moe import qwen_experts
from engine.models.rope import read_rope
from engine.parallel.shard import Shard

#: (weights, name of the layer, its heads) -> the product of DeltaNet's in_proj
ProjectionLoader = Callable[[WeightSource, str, DeltaShare], Linear]

_IS_ATTENTION = {"linear_attention": False, "full_attention": True}


def qwen3_next(config: ConfigReader, weights: WeightSource) -> "Qwen3Next":
    """Builds Qwen3-Next."""
    load_mlp = qwen_experts(config, num_experts=512, num_chosen=10, ffn=512, shared_ffn=512, sums_to_one=True)
    is_tied = config.get("tie_word_embeddings", bool, False)
    return Qwen3Next(config, weights, load_mlp, _grouped_projections, is_tied=is_tied)


class Qwen3Next:
    """A CausalLM of gated delta nets and layers with gated attention."""

    narrows = True

    def __init__(
        self,
        config: ConfigReader,
        weights: WeightSource,
        load_mlp: MLPLoader,
        load_projections: ProjectionLoader,
        *,
        is_tied: bool,
    ) -> None:
        settings, sizes = _settings(config, is_tied=is_tied), _sizes(config)
        hidden, eps = settings.hidden_size, settings.norm_eps
        has_attention = _layer_kinds(config, settings.num_layers)
        num_attention = sum(has_attention)
        heads = HeadShare.of(settings.shape, weights.group.place)
        share = DeltaShare.of(sizes, weights.group.place)
        self.vocab_size = settings.vocab_size
        self.max_positions = settings.max_positions
        self.attention_shapes = (heads.shape,) * num_attention
        self.state_shapes = share.own.state_shapes(weights.dtype) * (settings.num_layers - num_attention)
        head = None if is_tied else "lm_head"
        self._tokens = TokenEmbedding.load(weights, "model.embed_tokens", self.vocab_size, hidden, head=head)
        self._rotary = settings.rope.rotary(settings.shape.head_dim)
        layers = []
        for index in range(settings.num_layers):
            name, num_before = f"model.layers.{index}", sum(has_attention[:index])
            if has_attention[index]:
                mixer: Mixer = _attention(weights, f"{name}.self_attn", num_before, heads, settings)
            else:
                delta, first_id = f"{name}.linear_attn", 2 * (index - num_before)
                in_proj = load_projections(weights, delta, share)
                mixer = DeltaNet.load(weights, delta, share, first_id, first_id + 1, in_proj)
            layers.append(
                DecoderLayer(
                    mixer_norm=RMSNorm.around_one(weights, f"{name}.input_layernorm", hidden, eps),
                    mixer=mixer,
                    mlp_norm=RMSNorm.around_one(weights, f"{name}.post_attention_layernorm", hidden, eps),
                    mlp=load_mlp(settings, index, weights),
                    rotation=0,
                )
            )
        self._layers = Decoder(layers, weights.operators)
        self.is_capturable = self._layers.is_capturable
        self._norm = RMSNorm.around_one(weights, "model.norm", hidden, eps)

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        """Final hidden states as in CausalLM.forward, [T or R, hidden]; writes the tokens' keys, values and states."""
        hidden = self._tokens(batch.token_ids)
        return self._norm(*self._layers(hidden, [self._rotary.at(batch.positions)], batch))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [rows, hidden] -> [rows, vocab_size]."""
        return self._tokens.logits(hidden)


def _attention(
    weights: WeightSource, name: str, layer_id: int, heads: HeadShare, settings: LlamaConfig
) -> GatedAttention:
    """The checkpoint has the rows of each head's queries, followed by those of its gate."""
    hidden, head_dim = settings.hidden_size, settings.shape.head_dim
    both = Shard(2 * heads.queries.size, tuple((2 * start, 2 * end) for start, end in heads.queries.ranges))
    query_and_gate = weights.take_matrix(f"{name}.q_proj.weight", both, hidden)
    query, gate = ungrouped(query_and_gate, heads.shape.num_heads, [head_dim, head_dim])
    key, value = (weights.take_matrix(f"{name}.{part}_proj.weight", heads.keys, hidden) for part in "kv")
    query_norm, key_norm = (scales_around_one(weights, f"{name}.{part}_norm", head_dim) for part in "qk")
    return GatedAttention(
        layer_id,
        heads.shape,
        Linear.joined(weights.operators, [query, key, value], []),
        Linear.bind(weights.operators, gate),
        Linear.load(weights, f"{name}.o_proj", heads.queries, hidden, bias=False),
        HeadNorms(query_norm, key_norm, settings.norm_eps),
    )


def _grouped_projections(weights: WeightSource, name: str, share: DeltaShare) -> Linear:
    """The checkpoint has the rows of each key head together: query, key, and the values and gates of its value heads;
    in another matrix the strengths and the steps of its value heads."""
    whole, own = share.whole, share.own
    group_values = whole.group_size * whole.value_dim
    place = weights.group.place
    width = Shard.even(2 * whole.key_channels + 2 * whole.value_channels, place, "heads")
    grouped = weights.take_matrix(f"{name}.in_proj_qkvz.weight", width, whole.hidden)
    parts = ungrouped(grouped, own.num_key_heads, [whole.key_dim, whole.key_dim, group_values, group_values])
    grouped = weights.take_matrix(
        f"{name}.in_proj_ba.weight", Shard.even(2 * whole.num_heads, place, "heads"), whole.hidden
    )
    parts += ungrouped(grouped, own.num_key_heads, [whole.group_size, whole.group_size])
    return Linear.joined(weights.operators, parts, [])


def _settings(config: ConfigReader, *, is_tied: bool) -> LlamaConfig:
    config.expect("hidden_act", "silu")
    config.expect("attention_bias", False)
    config.expect("attn_output_gate", True)
    num_heads, num_kv_heads = config.get("num_attention_heads", int, 16), config.get("num_key_value_heads", int, 2)
    if num_heads % num_kv_heads:
        raise CheckpointError(f"config.json: {num_heads} heads over {num_kv_heads} do not fit")
    num_layers = config.require("num_hidden_layers", int)
    return LlamaConfig(
        vocab_size=config.require("vocab_size", int),
        hidden_size=config.require("hidden_size", int),
        intermediate_size=config.get("intermediate_size", int, 5632),
        num_layers=num_layers,
        shape=AttentionShape(num_heads, num_kv_heads, config.get("head_dim", int, 256)),
        windows=(None,) * num_layers,
        max_positions=config.get("max_position_embeddings", int, 32_768),
        norm_eps=config.get("rms_norm_eps", float, 1e-6),
        rope=read_rope(config, default_share=0.25),
        has_qkv_bias=False,
        has_output_bias=False,
        has_mlp_bias=False,
        has_head_norm=True,
        is_tied=is_tied,
    )


def _sizes(config: ConfigReader) -> DeltaSizes:
    config.expect("mamba_ssm_dtype", "float32")
    num_heads = config.get("linear_num_value_heads", int, 32)
    num_key_heads = config.get("linear_num_key_heads", int, 16)
    if num_heads % num_key_heads:
        raise CheckpointError(f"config.json: {num_heads} value heads over {num_key_heads} key heads do not fit")
    return DeltaSizes(
        hidden=config.require("hidden_size", int),
        num_heads=num_heads,
        num_key_heads=num_key_heads,
        key_dim=config.get("linear_key_head_dim", int, 128),
        value_dim=config.get("linear_value_head_dim", int, 128),
        num_taps=config.get("linear_conv_kernel_dim", int, 4),
        norm_eps=config.get("rms_norm_eps", float, 1e-6),
    )


def _layer_kinds(config: ConfigReader, num_layers: int) -> list[bool]:
    """By layer: whether it has attention."""
    listed = config.optional("layer_types", list)
    if listed is None:
        interval = config.get("full_attention_interval", int, 4)
        return [(index + 1) % interval == 0 for index in range(num_layers)]
    if len(listed) != num_layers or not all(name in _IS_ATTENTION for name in listed):
        raise CheckpointError(
            f"config.json: layer_types must name {num_layers} layers, each one of {', '.join(_IS_ATTENTION)}"
        )
    return [_IS_ATTENTION[name] for name in listed]
