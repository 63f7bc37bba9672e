"""Gemma 2: RMS norms with scales around one, before and after each part; scaled embeddings; soft caps on attention
scores and on logits; every other layer reads a sliding window. Gemma 3 is the same code with other settings."""

from dataclasses import dataclass, replace

import torch

from engine.attention.backend import AttentionShape, ForwardBatch, HeadNorms, StateShape
from engine.errors import CheckpointError
from engine.layers.attention import SelfAttention
from engine.layers.decoder import Decoder, DecoderLayer
from engine.layers.embedding import TokenEmbedding
from engine.layers.heads import HeadShare
from engine.layers.linear import Linear
from engine.layers.mlp import GatedMLP
from engine.layers.norm import RMSNorm, scales_around_one
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.rope import Rope, read_rope
from engine.models.windows import read_windows
from engine.parallel.shard import Shard


@dataclass(frozen=True)
class GemmaConfig:
    """Settings that Gemma 2 and Gemma 3 share, made by read_gemma."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    shape: AttentionShape  #: of every layer, except for the window
    windows: tuple[int | None, ...]  #: by layer
    max_positions: int
    norm_eps: float
    rope: Rope  #: of layers with full attention
    window_rope: Rope  #: of layers with a window
    has_bias: bool  #: in the projections of attention
    has_head_norm: bool  #: RMS norm on each query and key head (Gemma 3)
    logit_softcap: float | None
    is_tied: bool


def gemma2(config: ConfigReader, weights: WeightSource) -> "Gemma":
    """Builds Gemma 2: layers with even numbers read a window; all layers share one RoPE base."""
    num_layers = config.require("num_hidden_layers", int)
    rope = read_rope(config)
    settings = read_gemma(
        config,
        window_rule=[index % 2 == 0 for index in range(num_layers)],
        rope=rope,
        window_rope=rope,
        default_context=8192,
        default_vocab=256_000,
        has_head_norm=False,
    )
    return Gemma(settings, weights)


def read_gemma(
    config: ConfigReader,
    *,
    window_rule: list[bool],
    rope: Rope,
    window_rope: Rope,
    default_context: int,
    default_vocab: int,
    has_head_norm: bool,
) -> GemmaConfig:
    """The settings of both versions. window_rule: which layers read a window, for a config without layer_types."""
    config.expect("hidden_activation", "gelu_pytorch_tanh")
    config.expect("use_bidirectional_attention", False)
    num_heads = config.get("num_attention_heads", int, 8)
    num_kv_heads = config.get("num_key_value_heads", int, 4)
    head_dim = config.get("head_dim", int, 256)
    if num_heads % num_kv_heads or head_dim % 2:
        raise CheckpointError(f"config.json: {num_heads} heads over {num_kv_heads} of {head_dim} channels do not fit")
    has_softcaps = not has_head_norm  # in Gemma 3 only where the config sets them
    shape = AttentionShape(
        num_heads,
        num_kv_heads,
        head_dim,
        softcap=_softcap(config, "attn_logit_softcapping", 50.0) if has_softcaps else None,  # Gemma 3 never reads it
        score_scale=config.get("query_pre_attn_scalar", float, 256.0) ** -0.5,
    )
    return GemmaConfig(
        vocab_size=config.get("vocab_size", int, default_vocab),
        hidden_size=config.require("hidden_size", int),
        intermediate_size=config.require("intermediate_size", int),
        shape=shape,
        windows=read_windows(config, config.get("sliding_window", int, 4096), window_rule),
        max_positions=config.get("max_position_embeddings", int, default_context),
        norm_eps=config.get("rms_norm_eps", float, 1e-6),
        rope=rope,
        window_rope=window_rope,
        has_bias=config.get("attention_bias", bool, False),
        has_head_norm=has_head_norm,
        logit_softcap=_softcap(config, "final_logit_softcapping", 30.0 if has_softcaps else None),
        is_tied=config.get("tie_word_embeddings", bool, True),
    )


def _softcap(config: ConfigReader, key: str, default: float | None) -> float | None:
    """None for null; the architecture's default for a missing key."""
    return config.optional(key, float) if key in config else default


class Gemma:
    """A CausalLM with the settings of GemmaConfig."""

    state_shapes: tuple[StateShape, ...] = ()
    is_capturable = True
    narrows = True

    def __init__(self, config: GemmaConfig, weights: WeightSource) -> None:
        self.vocab_size = config.vocab_size
        self.max_positions = config.max_positions
        heads = HeadShare.of(config.shape, weights.group.place)
        self.attention_shapes = tuple(replace(heads.shape, window=window) for window in config.windows)
        head = None if config.is_tied else "lm_head"
        self._tokens = TokenEmbedding.load(
            weights, "model.embed_tokens", config.vocab_size, config.hidden_size, head=head
        )
        # Rounded as the checkpoints were trained: 55.5 and not 55.4256 for 3,072 channels in bfloat16.
        self._embedding_scale = torch.tensor(config.hidden_size**0.5).to(weights.dtype).item()
        ropes = [config.rope if window is None else config.window_rope for window in config.windows]
        kinds = list(dict.fromkeys(ropes))
        self._rotaries = [rope.rotary(config.shape.head_dim) for rope in kinds]
        layers = [_layer(config, heads, i, kinds.index(rope), weights) for i, rope in enumerate(ropes)]
        self._layers = Decoder(layers, weights.operators)
        self._norm = RMSNorm.around_one(weights, "model.norm", config.hidden_size, config.norm_eps)
        self._logit_softcap = config.logit_softcap

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        """Final hidden states as in CausalLM.forward, [T or R, hidden]; writes the tokens' keys and values."""
        hidden = self._tokens(batch.token_ids) * self._embedding_scale
        rotations = [rotary.at(batch.positions) for rotary in self._rotaries]
        return self._norm(*self._layers(hidden, rotations, batch))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [rows, hidden] -> [rows, vocab_size]."""
        logits = self._tokens.logits(hidden)
        if self._logit_softcap is None:
            return logits
        return logits.div_(self._logit_softcap).tanh_().mul_(self._logit_softcap)


def _layer(config: GemmaConfig, heads: HeadShare, layer_id: int, rotation: int, weights: WeightSource) -> DecoderLayer:
    name, hidden, eps = f"model.layers.{layer_id}", config.hidden_size, config.norm_eps
    ffn = Shard.even(config.intermediate_size, weights.group.place, "intermediate_size")
    qkv = [f"{name}.self_attn.{part}_proj" for part in "qkv"]
    gate_up = [f"{name}.mlp.gate_proj", f"{name}.mlp.up_proj"]
    return DecoderLayer(
        mixer_norm=RMSNorm.around_one(weights, f"{name}.input_layernorm", hidden, eps),
        mixer=SelfAttention(
            layer_id,
            heads.shape,
            Linear.fused(weights, qkv, hidden, heads.qkv, bias=config.has_bias),
            Linear.load(weights, f"{name}.self_attn.o_proj", heads.queries, hidden, bias=config.has_bias),
            _head_norms(config, f"{name}.self_attn", weights) if config.has_head_norm else None,
        ),
        mixer_output_norm=RMSNorm.around_one(weights, f"{name}.post_attention_layernorm", hidden, eps),
        mlp_norm=RMSNorm.around_one(weights, f"{name}.pre_feedforward_layernorm", hidden, eps),
        mlp=GatedMLP(
            Linear.fused(weights, gate_up, hidden, [ffn, ffn], bias=False),
            Linear.load(weights, f"{name}.mlp.down_proj", ffn, hidden, bias=False),
            weights.operators.gelu_tanh_mul,
        ),
        mlp_output_norm=RMSNorm.around_one(weights, f"{name}.post_feedforward_layernorm", hidden, eps),
        rotation=rotation,
    )


def _head_norms(config: GemmaConfig, name: str, weights: WeightSource) -> HeadNorms:
    query, key = (scales_around_one(weights, f"{name}.{part}_norm", config.shape.head_dim) for part in "qk")
    return HeadNorms(query, key, config.norm_eps)
