"""What models of attention layers and recurrent layers have in common: the forward pass, and how their configs describe
heads and Mamba-2 layers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from engine.attention.backend import AttentionShape, ForwardBatch, StateShape
from engine.errors import CheckpointError
from engine.json_files import quoted
from engine.layers.attention import SelfAttention
from engine.layers.decoder import Decoder, DecoderLayer
from engine.layers.embedding import TokenEmbedding
from engine.layers.linear import Linear
from engine.layers.mamba2 import Mamba2Sizes
from engine.layers.mixer import Mixer
from engine.layers.mlp import FeedForward
from engine.layers.norm import RMSNorm
from engine.layers.rotary import Rotary
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader


@dataclass(frozen=True)
class HybridParts:
    """A loaded model in parts; rotations of its layers are None or 0."""

    vocab_size: int
    max_positions: int
    attention_shapes: tuple[AttentionShape, ...]
    state_shapes: tuple[StateShape, ...]
    tokens: TokenEmbedding
    layers: Sequence[DecoderLayer]
    norm: RMSNorm
    rotary: Rotary | None = None  #: None: no layer rotates heads
    embedding_factor: float = 1.0
    logit_factor: float = 1.0


@dataclass(frozen=True)
class HybridKinds:
    """What the layers of load_hybrid are."""

    has_attention: Sequence[bool]  #: by layer; the others are recurrent
    state_shapes: tuple[StateShape, StateShape]  #: of a recurrent layer
    recurrence: Callable[[str, int], Mixer]  #: (name, id of its first state) -> the mixer of a recurrent layer
    feed_forward: Callable[[str, int], FeedForward]  #: (name, index of the layer) -> its feed-forward part
    norm_eps: float  #: of all norms


class HybridLM:
    """A CausalLM of these parts."""

    narrows = True

    def __init__(self, parts: HybridParts, weights: WeightSource) -> None:
        self.vocab_size = parts.vocab_size
        self.max_positions = parts.max_positions
        self.attention_shapes = parts.attention_shapes
        self.state_shapes = parts.state_shapes
        self._parts = parts
        self._layers = Decoder(parts.layers, weights.operators)
        self.is_capturable = self._layers.is_capturable

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        """Final hidden states as in CausalLM.forward, [T or R, hidden]; writes the tokens' keys, values and states."""
        parts = self._parts
        hidden = parts.tokens(batch.token_ids)
        if parts.embedding_factor != 1.0:
            hidden *= parts.embedding_factor
        rotations = () if parts.rotary is None else (parts.rotary.at(batch.positions),)
        return parts.norm(*self._layers(hidden, rotations, batch))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [rows, hidden] -> [rows, vocab_size]."""
        logits = self._parts.tokens.logits(hidden)
        return logits if self._parts.logit_factor == 1.0 else logits.mul_(self._parts.logit_factor)


def read_shape(config: ConfigReader, score_scale: float | None = None) -> AttentionShape:
    """Heads of the attention layers. Raises CheckpointError where they cannot be grouped."""
    num_heads = config.require("num_attention_heads", int)
    num_kv_heads = config.get("num_key_value_heads", int, num_heads)
    head_dim = config.get("head_dim", int, config.require("hidden_size", int) // num_heads)
    if num_heads % num_kv_heads or head_dim < 1:
        raise CheckpointError(f"config.json: {num_heads} heads over {num_kv_heads} of {head_dim} channels do not fit")
    return AttentionShape(num_heads, num_kv_heads, head_dim, score_scale=score_scale)


def load_attention(
    weights: WeightSource,
    name: str,
    layer_id: int,
    shape: AttentionShape,
    hidden: int,
    *,
    bias: bool = False,
) -> SelfAttention:
    """Attention with the projections q_proj, k_proj, v_proj and o_proj."""
    query_size, kv_size = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    qkv = [f"{name}.{part}_proj" for part in "qkv"]
    return SelfAttention(
        layer_id,
        shape,
        Linear.fused(weights, qkv, hidden, [query_size, kv_size, kv_size], bias=bias),
        Linear.load(weights, f"{name}.o_proj", query_size, hidden, bias=bias),
    )


def load_hybrid(
    config: ConfigReader,
    weights: WeightSource,
    kinds: HybridKinds,
    *,
    rotary: Rotary | None = None,
    has_attention_bias: bool = False,
) -> HybridLM:
    """A model of attention layers and recurrent layers under the names of tensors that Jamba and Bamba share. rotary:
    rotates the heads of all attention layers."""
    hidden, vocab_size = config.require("hidden_size", int), config.require("vocab_size", int)
    eps, shape, layers = kinds.norm_eps, read_shape(config), []
    for index, is_attention in enumerate(kinds.has_attention):
        name, num_attention = f"model.layers.{index}", sum(kinds.has_attention[:index])
        mixer: Mixer
        if is_attention:
            attention = f"{name}.self_attn"
            mixer = load_attention(weights, attention, num_attention, shape, hidden, bias=has_attention_bias)
        else:
            mixer = kinds.recurrence(f"{name}.mamba", 2 * (index - num_attention))
        layers.append(
            DecoderLayer(
                mixer_norm=RMSNorm.load(weights, f"{name}.input_layernorm", hidden, eps),
                mixer=mixer,
                mlp_norm=RMSNorm.load(weights, f"{name}.pre_ff_layernorm", hidden, eps),
                mlp=kinds.feed_forward(f"{name}.feed_forward", index),
                rotation=None if rotary is None else 0,
            )
        )
    head = None if config.get("tie_word_embeddings", bool, False) else "lm_head"
    num_attention = sum(kinds.has_attention)
    parts = HybridParts(
        vocab_size=vocab_size,
        max_positions=config.get("max_position_embeddings", int, 262_144),
        attention_shapes=(shape,) * num_attention,
        state_shapes=kinds.state_shapes * (len(layers) - num_attention),
        tokens=TokenEmbedding.load(weights, "model.embed_tokens", vocab_size, hidden, head=head),
        layers=layers,
        norm=RMSNorm.load(weights, "model.final_layernorm", hidden, eps),
        rotary=rotary,
    )
    return HybridLM(parts, weights)


def read_mamba2_sizes(config: ConfigReader, num_channels: int | None = None) -> Mamba2Sizes:
    """Mamba-2 layers of hybrid models, whose settings begin with "mamba_". num_channels: of all heads; None:
    mamba_expand times the hidden size."""
    config.expect("hidden_act", "silu")
    hidden, num_heads = config.require("hidden_size", int), config.get("mamba_n_heads", int, 128)
    if num_channels is None:
        num_channels = config.get("mamba_expand", int, 2) * hidden
    is_auto = config.get("mamba_d_head", object, "auto") == "auto"
    has_bias = config.get("mamba_proj_bias", bool, False)
    return checked_mamba2_sizes(
        Mamba2Sizes(
            hidden=hidden,
            num_heads=num_heads,
            head_dim=num_channels // num_heads if is_auto else config.require("mamba_d_head", int),
            num_groups=config.get("mamba_n_groups", int, 1),
            num_states=config.get("mamba_d_state", int, 256),
            num_taps=config.get("mamba_d_conv", int, 4),
            step_limits=read_step_limits(config),
            norm_eps=config.get("rms_norm_eps", float, 1e-5),
            has_bias=has_bias,
            has_output_bias=has_bias,
            has_conv_bias=config.get("mamba_conv_bias", bool, True),
        ),
        num_channels,
    )


def checked_mamba2_sizes(sizes: Mamba2Sizes, num_channels: int) -> Mamba2Sizes:
    """The same sizes. Raises CheckpointError where they do not give that many channels in all, or groups are uneven."""
    if sizes.num_channels != num_channels or sizes.head_dim < 1:
        raise CheckpointError(
            f"config.json: {sizes.num_heads} Mamba heads of {sizes.head_dim} channels are not {num_channels} channels"
        )
    if sizes.num_heads % sizes.num_groups:
        raise CheckpointError(f"config.json: {sizes.num_heads} Mamba heads in {sizes.num_groups} groups do not fit")
    return sizes


def read_step_limits(config: ConfigReader) -> tuple[float, float]:
    """Least and largest time step. JSON has no infinity, so transformers writes it as an object."""
    limits = config.get("time_step_limit", list, [0.0, math.inf])
    limits = [math.inf if limit == {"__float__": "Infinity"} else limit for limit in limits]
    are_numbers = all(isinstance(limit, int | float) and not isinstance(limit, bool) for limit in limits)
    if len(limits) != 2 or not are_numbers or not 0 <= limits[0] <= limits[1]:
        raise CheckpointError(f"config.json: time_step_limit {quoted(limits)} is not a range of times")
    return float(limits[0]), float(limits[1])


def checked_kinds(kinds: Sequence[object], num_layers: int, *accepted: str) -> list[str]:
    """What each layer is, from a config's list. Raises CheckpointError if there are not as many as layers, or one is
    not accepted."""
    if len(kinds) != num_layers or not kinds:
        raise CheckpointError(f"config.json describes {len(kinds)} of {num_layers} layers")
    names = {"full_attention": "attention", "linear_attention": "mamba"}
    renamed = [names.get(kind, kind) if isinstance(kind, str) else "" for kind in kinds]
    for kind, name in zip(kinds, renamed, strict=True):
        if name not in accepted:
            raise CheckpointError(f"config.json: a layer of type {quoted(kind)} is not supported")
    return renamed
