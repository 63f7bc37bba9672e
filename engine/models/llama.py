"""Llama 1 to 3.x, and with small changes Mistral, Phi-3, Qwen and mixtures of experts: RMS norm before each part,
rotary positions, grouped query heads, gated MLP. Tensor names are those of Hugging Face checkpoints."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch

from engine.attention.backend import AttentionShape, ForwardBatch, HeadNorms, StateShape
from engine.errors import CheckpointError
from engine.layers.attention import SelfAttention
from engine.layers.decoder import Decoder, DecoderLayer
from engine.layers.embedding import TokenEmbedding
from engine.layers.heads import HeadShare
from engine.layers.linear import Linear
from engine.layers.mlp import FeedForward, GatedMLP
from engine.layers.norm import Norm, RMSNorm
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.rope import Rope, read_rope
from engine.parallel.shard import Shard

#: Tensors that some checkpoints carry; Agon computes them.
ROTARY_FREQUENCIES = re.compile(r".*\.rotary_emb\.inv_freq")


@dataclass(frozen=True)
class LlamaConfig:
    """Settings of a Llama-like model; `read` gives those of Llama, and other architectures replace some."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    shape: AttentionShape  #: of every layer, except for the window
    windows: tuple[int | None, ...]  #: by layer
    max_positions: int
    norm_eps: float
    rope: Rope
    has_qkv_bias: bool
    has_output_bias: bool
    has_mlp_bias: bool
    has_head_norm: bool  #: RMS norm on each query and key head (Qwen3)
    is_tied: bool  #: the output head is the token embedding
    has_fused_weights: bool = False  #: q, k and v are one tensor, gate and up another (Phi-3)
    has_head_bias: bool = False  #: in the output head (Phi-2)
    is_parallel: bool = False  #: attention and MLP read the output of one norm, side by side (Cohere)
    #: Rotary embeddings by layer, None where heads are not rotated; None: `rope` in all of them.
    layer_ropes: tuple[Rope | None, ...] | None = None
    chunks: tuple[int | None, ...] | None = None  #: by layer (Llama 4)
    sinks: tuple[tuple[float, ...], ...] | None = None  #: by layer, of all heads (gpt-oss)
    embedding_scale: float = 1.0  #: factor on embeddings
    logit_scale: float = 1.0  #: factor on logits
    rotary_dim: int | None = None  #: channels of a head that can rotate; None: all
    embedding_name: str = "model.embed_tokens"
    norm_name: str = "model.norm"  #: of the norm after the last layer
    load_norm: "NormLoader" = RMSNorm.load
    load_qkv: "QKVLoader | None" = None  #: makes the projections of a layer's heads; None: Llama's own
    load_mlp: "MLPLoader | None" = None  #: makes a layer's feed-forward part; None: the gated MLP
    load_layer: "LayerLoader | None" = None  #: makes a whole layer; None: Llama's own

    @classmethod
    def read(cls, config: ConfigReader, *, is_gated: bool = True, rope: Rope | None = None) -> Self:
        """is_gated: the MLP is that of Llama; otherwise the caller reads the activation. rope: None: that of the
        config. Raises CheckpointError for a config.json that is incomplete or contradicts itself."""
        if is_gated:
            config.expect("hidden_act", "silu")
        hidden_size = config.require("hidden_size", int)
        num_heads = config.require("num_attention_heads", int)
        num_kv_heads = config.get("num_key_value_heads", int, num_heads)
        head_dim = config.get("head_dim", int, hidden_size // num_heads)
        if num_heads % num_kv_heads or head_dim % 2:
            raise CheckpointError(
                f"config.json: {num_heads} heads over {num_kv_heads} of {head_dim} channels do not fit"
            )
        has_bias = config.get("attention_bias", bool, False)
        num_layers = config.require("num_hidden_layers", int)
        return cls(
            vocab_size=config.require("vocab_size", int),
            hidden_size=hidden_size,
            intermediate_size=config.require("intermediate_size", int),
            num_layers=num_layers,
            shape=AttentionShape(num_heads, num_kv_heads, head_dim),
            windows=(None,) * num_layers,
            max_positions=config.get("max_position_embeddings", int, 2048),
            norm_eps=config.get("rms_norm_eps", float, 1e-6),
            rope=rope or read_rope(config),
            has_qkv_bias=has_bias,
            has_output_bias=has_bias,
            has_mlp_bias=config.get("mlp_bias", bool, False),
            has_head_norm=False,
            is_tied=config.get("tie_word_embeddings", bool, False),
        )

    @property
    def ropes(self) -> list[Rope]:
        """The different rotary embeddings; a step computes each of them once."""
        ropes = (self.rope,) if self.layer_ropes is None else self.layer_ropes
        return list(dict.fromkeys(rope for rope in ropes if rope is not None))

    def rope_of(self, layer_id: int) -> Rope | None:
        """That layer's embedding; None: it rotates no heads."""
        return self.rope if self.layer_ropes is None else self.layer_ropes[layer_id]

    def rotation_of(self, layer_id: int) -> int | None:
        """Index into `ropes` of that layer's embedding; None: it rotates no heads."""
        rope = self.rope_of(layer_id)
        return None if rope is None else self.ropes.index(rope)

    def shape_of(self, layer_id: int) -> AttentionShape:
        """Heads and options of that layer, as all processes hold them together."""
        return replace(
            self.shape,
            window=self.windows[layer_id],
            chunk=None if self.chunks is None else self.chunks[layer_id],
            sinks=None if self.sinks is None else self.sinks[layer_id],
        )


def llama(config: ConfigReader, weights: WeightSource) -> "Llama":
    """Builds Llama. As in transformers, its heads are rotated whole, whatever partial_rotary_factor says."""
    return Llama(LlamaConfig.read(config, rope=replace(read_rope(config), share=1.0)), weights)


class Llama:
    """A CausalLM with the settings of LlamaConfig."""

    state_shapes: tuple[StateShape, ...] = ()
    narrows = True

    def __init__(self, config: LlamaConfig, weights: WeightSource) -> None:
        self.vocab_size = config.vocab_size
        self.max_positions = config.max_positions
        heads = HeadShare.of(config.shape, weights.group.place)
        self.attention_shapes = tuple(
            HeadShare.of(config.shape_of(index), weights.group.place).shape for index in range(config.num_layers)
        )
        head = None if config.is_tied else "lm_head"
        self._tokens = TokenEmbedding.load(
            weights,
            config.embedding_name,
            config.vocab_size,
            config.hidden_size,
            head=head,
            has_head_bias=config.has_head_bias,
        )
        self._embedding_scale, self._logit_scale = config.embedding_scale, config.logit_scale
        self._rotaries = [rope.rotary(config.rotary_dim or config.shape.head_dim) for rope in config.ropes]
        load_layer = config.load_layer or _layer
        layers = [load_layer(config, heads, i, weights) for i in range(config.num_layers)]
        self._layers = Decoder(layers, weights.operators)
        self.is_capturable = self._layers.is_capturable
        self._norm = config.load_norm(weights, config.norm_name, config.hidden_size, config.norm_eps)

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        """Final hidden states as in CausalLM.forward, [T or R, hidden]; writes the tokens' keys and values."""
        hidden = self._tokens(batch.token_ids)
        if self._embedding_scale != 1.0:
            hidden *= self._embedding_scale
        return self._norm(*self._layers(hidden, [rotary.at(batch.positions) for rotary in self._rotaries], batch))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [rows, hidden] -> [rows, vocab_size]."""
        logits = self._tokens.logits(hidden)
        return logits if self._logit_scale == 1.0 else logits.mul_(self._logit_scale)


def _layer(config: LlamaConfig, heads: HeadShare, layer_id: int, weights: WeightSource) -> DecoderLayer:
    name, hidden = f"model.layers.{layer_id}", config.hidden_size
    norm = config.load_norm(weights, f"{name}.input_layernorm", hidden, config.norm_eps)
    mlp_norm = norm
    if not config.is_parallel:
        mlp_norm = config.load_norm(weights, f"{name}.post_attention_layernorm", hidden, config.norm_eps)
    return DecoderLayer(
        mixer_norm=norm,
        mixer=self_attention(config, heads, layer_id, weights),
        mlp_norm=mlp_norm,
        mlp=(config.load_mlp or gated_mlp)(config, layer_id, weights),
        rotation=config.rotation_of(layer_id),
        is_parallel=config.is_parallel,
    )


#: (weights, name, size, epsilon) -> that norm
NormLoader = Callable[[WeightSource, str, int, float], Norm]
#: (settings, heads of this process, name of a layer's attention, weights) -> queries, keys and values of its input
QKVLoader = Callable[[LlamaConfig, HeadShare, str, WeightSource], Linear]
#: (settings, heads of this process, layer id, weights) -> that layer
LayerLoader = Callable[[LlamaConfig, HeadShare, int, WeightSource], DecoderLayer]
#: (settings, layer id, weights) -> the feed-forward part of that layer
MLPLoader = Callable[[LlamaConfig, int, WeightSource], FeedForward]


def self_attention(config: LlamaConfig, heads: HeadShare, layer_id: int, weights: WeightSource) -> SelfAttention:
    """The attention of a Llama layer."""
    name = f"model.layers.{layer_id}.self_attn"
    return SelfAttention(
        layer_id,
        heads.shape,
        (config.load_qkv or _qkv)(config, heads, name, weights),
        Linear.load(weights, f"{name}.o_proj", heads.queries, config.hidden_size, bias=config.has_output_bias),
        _head_norms(config, name, weights) if config.has_head_norm else None,
        scales_queries=(rope := config.rope_of(layer_id)) is not None and rope.query_scaling is not None,
    )


def _qkv(config: LlamaConfig, heads: HeadShare, name: str, weights: WeightSource) -> Linear:
    names, sizes = [f"{name}.{part}_proj" for part in "qkv"], heads.qkv
    if config.has_fused_weights:
        names, sizes = [f"{name}.qkv_proj"], [Shard.stacked(sizes)]
    return Linear.fused(weights, names, config.hidden_size, sizes, bias=config.has_qkv_bias)


def gated_mlp(config: LlamaConfig, layer_id: int, weights: WeightSource) -> GatedMLP:
    """The feed-forward part of a Llama layer."""
    name, hidden = f"model.layers.{layer_id}.mlp", config.hidden_size
    ffn = Shard.even(config.intermediate_size, weights.group.place, "intermediate_size")
    gate_up, sizes = [f"{name}.gate_proj", f"{name}.up_proj"], [ffn, ffn]
    if config.has_fused_weights:
        gate_up, sizes = [f"{name}.gate_up_proj"], [Shard.stacked([ffn, ffn])]
    return GatedMLP(
        Linear.fused(weights, gate_up, hidden, sizes, bias=config.has_mlp_bias),
        Linear.load(weights, f"{name}.down_proj", ffn, hidden, bias=config.has_mlp_bias),
        weights.operators.silu_mul,
    )


def _head_norms(config: LlamaConfig, name: str, weights: WeightSource) -> HeadNorms:
    query, key = (weights.take(f"{name}.{part}_norm.weight", config.shape.head_dim).float() for part in "qk")
    return HeadNorms(query, key, config.norm_eps)
