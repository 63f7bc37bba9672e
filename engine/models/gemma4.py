"""Gemma 4 for text: Gemma 3, but heads of layers with full attention have sizes of their own, the last layers may read
the keys and values of earlier ones, values are normalised and may be the keys before their norm, each layer may have an
input of its own beside the stream (per-layer embeddings) and experts beside its MLP, and ends with a factor on the
stream. From checkpoints with other towers only the text model is served."""

import re
from dataclasses import dataclass, replace

import torch

from engine.attention.backend import AttentionShape, ForwardBatch, HeadNorms, StateShape
from engine.errors import CheckpointError
from engine.layers.attention import SelfAttention
from engine.layers.decoder import Decoder, DecoderLayer, LayerEnd
from engine.layers.embedding import TokenEmbedding
from engine.layers.heads import HeadShare
from engine.layers.linear import Linear
from engine.layers.mlp import FeedForward, GatedMLP
from engine.layers.norm import Norm, RMSNorm
from engine.layers.rotary import ProportionalScaling
from engine.layers.weights import WeightSource, text_model_of
from engine.models.config_reader import ConfigReader
from engine.models.gemma4_experts import ExpertSettings, MLPWithExperts, add_update, read_experts
from engine.models.layer_inputs import LayerInputs, rounded
from engine.models.rope import Rope, rope_in
from engine.models.shared_layers import read_shared_layers
from engine.models.windows import read_windows
from engine.parallel.shard import Shard

#: The towers of images and sounds with their projectors.
TOWER_TENSORS = re.compile(
    r"(model\.)?(vision_tower|audio_tower|embed_vision|embed_audio)\..*|(language_model\.)?lm_head\.weight"
)
#: Keys and values that layers without storage do not compute; some checkpoints have them.
UNUSED_TENSORS = re.compile(r".*\.self_attn\.(k_proj|v_proj|k_norm|v_norm)\.weight|.*\.rotary_emb\..*")

_PERIOD = 6


@dataclass(frozen=True)
class Gemma4Config:
    """Settings of the text model; made by read_gemma4."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    shapes: tuple[AttentionShape, ...]  #: by layer
    max_positions: int
    norm_eps: float
    rope: Rope  #: of layers with full attention
    window_rope: Rope  #: of layers with a window
    has_bias: bool  #: in the projections of attention
    keys_are_values: bool  #: in layers with full attention, but for norm and rotation
    has_wide_mlp: bool  #: layers that store no keys have an MLP of twice the size
    per_layer_size: int  #: channels of each layer's own input; 0: none
    experts: ExpertSettings | None
    logit_softcap: float | None
    is_tied: bool


def gemma4(config: ConfigReader, weights: WeightSource) -> "Gemma4":
    """Builds the text model; its config may be a whole config.json or a text_config."""
    return Gemma4(read_gemma4(config), weights)


def gemma4_with_towers(config: ConfigReader, weights: WeightSource) -> "Gemma4":
    """Builds the text model of a checkpoint with other towers: the same, one level deeper in config and names."""
    text = config.section("text_config")
    if text is None:
        raise CheckpointError("config.json has no text_config")
    return gemma4(text, text_model_of(weights))


def read_gemma4(config: ConfigReader) -> Gemma4Config:
    """Raises CheckpointError for a config that is incomplete or contradicts itself."""
    config.expect("hidden_activation", "gelu_pytorch_tanh")
    config.expect("use_bidirectional_attention", False, "vision")  # between tokens of images only
    vocab_size = config.get("vocab_size", int, 262_144)
    per_layer_size = config.get("hidden_size_per_layer_input", int, 256)
    if per_layer_size and config.get("vocab_size_per_layer_input", int, 262_144) != vocab_size:
        raise CheckpointError("config.json: vocab_size_per_layer_input differs from vocab_size")
    sections = config.section("rope_parameters")
    return Gemma4Config(
        vocab_size=vocab_size,
        hidden_size=config.get("hidden_size", int, 2304),
        intermediate_size=config.get("intermediate_size", int, 9216),
        shapes=_read_shapes(config),
        max_positions=config.get("max_position_embeddings", int, 131_072),
        norm_eps=config.get("rms_norm_eps", float, 1e-6),
        rope=_full_rope(None if sections is None else sections.section("full_attention")),
        window_rope=rope_in(None if sections is None else sections.section("sliding_attention"), Rope(10_000.0)),
        has_bias=config.get("attention_bias", bool, False),
        keys_are_values=config.get("attention_k_eq_v", bool, False),
        has_wide_mlp=config.get("use_double_wide_mlp", bool, False),
        per_layer_size=per_layer_size,
        experts=read_experts(config) if config.get("enable_moe_block", bool, False) else None,
        logit_softcap=config.optional("final_logit_softcapping", float),
        is_tied=config.get("tie_word_embeddings", bool, True),
    )


def _read_shapes(config: ConfigReader) -> tuple[AttentionShape, ...]:
    num_layers = config.get("num_hidden_layers", int, 30)
    rule = [(index + 1) % _PERIOD != 0 for index in range(num_layers)]
    windows = read_windows(config, config.get("sliding_window", int, 512), rule)
    windows = (*windows[:-1], None)  # whatever the config says
    owners = read_shared_layers(config, windows)
    shapes: list[AttentionShape] = []
    for index, (window, owner) in enumerate(zip(windows, owners, strict=True)):
        num_heads, num_kv_heads, head_dim = _heads_of_layer(config, index, is_full=window is None)
        if num_heads % num_kv_heads or head_dim % 2:
            raise CheckpointError(
                f"config.json: {num_heads} heads over {num_kv_heads} of {head_dim} channels do not fit"
            )
        shape = AttentionShape(num_heads, num_kv_heads, head_dim, window, score_scale=1.0, shares_with=owner)
        if owner is not None and replace(shapes[owner], shares_with=owner) != shape:
            raise CheckpointError(f"config.json: layers {owner} and {index} share keys and values, but differ in heads")
        shapes.append(shape)
    return tuple(shapes)


def _heads_of_layer(config: ConfigReader, index: int, *, is_full: bool) -> tuple[int, int, int]:
    """Query heads, key/value heads, channels of a head. Newer configs list what differs by layer, others say it for all
    layers with full attention."""
    num_heads = config.get("num_attention_heads", int, 8)
    num_kv_heads = config.get("num_key_value_heads", int, 4)
    head_dim = config.get("head_dim", int, 256)
    listed = config.section("per_layer_config")
    if listed is not None:
        own = listed.section(str(index))
        if own is not None:
            num_kv_heads = own.get("num_key_value_heads", int, num_kv_heads)
            head_dim = own.get("head_dim", int, head_dim)
    elif is_full:
        head_dim = config.get("global_head_dim", int, 512)
        if config.get("attention_k_eq_v", bool, False):
            num_kv_heads = config.get("num_global_key_value_heads", int, num_kv_heads)
    return num_heads, num_kv_heads, head_dim


def _full_rope(section: ConfigReader | None) -> Rope:
    base, share = 1_000_000.0, 0.25
    if section is None:
        return Rope(base, ProportionalScaling(share, 1.0))
    if section.get("rope_type", str, "proportional") != "proportional":
        return rope_in(section, Rope(base))
    scaling = ProportionalScaling(section.get("partial_rotary_factor", float, 1.0), section.get("factor", float, 1.0))
    return Rope(section.get("rope_theta", float, base), scaling)


class Gemma4:
    """A CausalLM with the settings of Gemma4Config."""

    state_shapes: tuple[StateShape, ...] = ()
    narrows = True

    def __init__(self, config: Gemma4Config, weights: WeightSource) -> None:
        self.vocab_size = config.vocab_size
        self.max_positions = config.max_positions
        heads = [HeadShare.of(shape, weights.group.place) for shape in config.shapes]
        self.attention_shapes = tuple(share.shape for share in heads)
        head = None if config.is_tied else "lm_head"
        self._tokens = TokenEmbedding.load(
            weights, "model.embed_tokens", config.vocab_size, config.hidden_size, head=head
        )
        self._embedding_scale = rounded(config.hidden_size**0.5, weights)
        self._layer_inputs = _layer_inputs(config, weights) if config.per_layer_size else None
        ropes = [
            (config.rope if shape.window is None else config.window_rope, shape.head_dim) for shape in config.shapes
        ]
        kinds = list(dict.fromkeys(ropes))
        self._rotaries = [rope.rotary(head_dim) for rope, head_dim in kinds]
        layers = [_layer(config, share, i, kinds.index(ropes[i]), weights) for i, share in enumerate(heads)]
        self._layers = Decoder(layers, weights.operators)
        self.is_capturable = self._layers.is_capturable
        self._norm = RMSNorm.load(weights, "model.norm", config.hidden_size, config.norm_eps)
        self._logit_softcap = config.logit_softcap

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        """Final hidden states as in CausalLM.forward, [T or R, hidden]; writes the tokens' keys and values."""
        hidden = self._tokens(batch.token_ids) * self._embedding_scale
        if self._layer_inputs is not None:
            batch = replace(batch, layer_inputs=self._layer_inputs(batch.token_ids, hidden))
        rotations = [rotary.at(batch.positions) for rotary in self._rotaries]
        return self._norm(*self._layers(hidden, rotations, batch))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [rows, hidden] -> [rows, vocab_size]."""
        logits = self._tokens.logits(hidden)
        if self._logit_softcap is None:
            return logits
        return logits.div_(self._logit_softcap).tanh_().mul_(self._logit_softcap)


def _layer_inputs(config: Gemma4Config, weights: WeightSource) -> LayerInputs:
    return LayerInputs(
        weights,
        num_layers=len(config.shapes),
        size=config.per_layer_size,
        hidden=config.hidden_size,
        num_tokens=config.vocab_size,
        vocab_size=config.vocab_size,
        eps=config.norm_eps,
    )


class _ScaledEnd:
    """stream and update times a factor."""

    def __init__(self, factor: float) -> None:
        self._factor = factor

    def __call__(self, stream: torch.Tensor, update: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        stream.mul_(self._factor)
        return update.mul_(self._factor)


class _PerLayerEnd:
    """Adds norm(projection(gelu(gate(stream)) * the layer's own input)), then multiplies all by a factor."""

    def __init__(self, config: Gemma4Config, name: str, layer_id: int, factor: float, weights: WeightSource) -> None:
        hidden, size = config.hidden_size, config.per_layer_size
        self._layer_id = layer_id
        self._gate = Linear.load(weights, f"{name}.per_layer_input_gate", hidden, size, bias=False)
        self._activation = weights.operators.gelu_tanh
        self._projection = Linear.load(weights, f"{name}.per_layer_projection", size, hidden, bias=False)
        self._norm = RMSNorm.load(weights, f"{name}.post_per_layer_input_norm", hidden, config.norm_eps)
        self._scale = _ScaledEnd(factor)

    def __call__(self, stream: torch.Tensor, update: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        assert batch.layer_inputs is not None
        stream.add_(update)
        gated = self._activation(self._gate(stream)).mul_(batch.layer_inputs[:, self._layer_id])
        return self._scale(stream, self._norm(self._projection(gated)), batch)


def _layer(config: Gemma4Config, heads: HeadShare, layer_id: int, rotation: int, weights: WeightSource) -> DecoderLayer:
    name, hidden, eps = f"model.layers.{layer_id}", config.hidden_size, config.norm_eps
    mlp, mlp_norm = _feed_forward(config, heads.shape, name, weights)
    return DecoderLayer(
        mixer_norm=RMSNorm.load(weights, f"{name}.input_layernorm", hidden, eps),
        mixer=_attention(config, heads, layer_id, weights),
        mixer_output_norm=RMSNorm.load(weights, f"{name}.post_attention_layernorm", hidden, eps),
        mlp_norm=mlp_norm,
        mlp=mlp,
        mlp_output_norm=RMSNorm.load(weights, f"{name}.post_feedforward_layernorm", hidden, eps),
        rotation=rotation,
        end=_end(config, name, layer_id, weights),
    )


def _attention(config: Gemma4Config, heads: HeadShare, layer_id: int, weights: WeightSource) -> SelfAttention:
    name, shape = f"model.layers.{layer_id}.self_attn", heads.shape
    parts, sizes = ["q"], heads.qkv[:1]
    if shape.shares_with is None:
        has_values = shape.window is not None or not config.keys_are_values
        parts, sizes = ["q", "k", "v" if has_values else "k"], heads.qkv
    query_norm, *key_norm = (weights.take(f"{name}.{part}_norm.weight", shape.head_dim).float() for part in parts[:2])
    norms = HeadNorms(query_norm, key_norm[0] if key_norm else None, config.norm_eps, has_values=bool(key_norm))
    return SelfAttention(
        layer_id,
        shape,
        Linear.fused(
            weights, [f"{name}.{part}_proj" for part in parts], config.hidden_size, sizes, bias=config.has_bias
        ),
        Linear.load(weights, f"{name}.o_proj", heads.queries, config.hidden_size, bias=config.has_bias),
        norms,
    )


def _feed_forward(
    config: Gemma4Config, shape: AttentionShape, name: str, weights: WeightSource
) -> tuple[FeedForward, Norm]:
    """The feed-forward part, and the norm before it."""
    hidden = config.hidden_size
    is_wide = config.has_wide_mlp and shape.shares_with is not None
    ffn = Shard.even(config.intermediate_size * (2 if is_wide else 1), weights.group.place, "intermediate_size")
    mlp = GatedMLP(
        Linear.fused(weights, [f"{name}.mlp.gate_proj", f"{name}.mlp.up_proj"], hidden, [ffn, ffn], bias=False),
        Linear.load(weights, f"{name}.mlp.down_proj", ffn, hidden, bias=False),
        weights.operators.gelu_tanh_mul,
    )
    norm = RMSNorm.load(weights, f"{name}.pre_feedforward_layernorm", hidden, config.norm_eps)
    if config.experts is None:
        return mlp, norm
    experts = MLPWithExperts(config.experts, mlp, norm, name, hidden, config.norm_eps, weights)
    return experts, Norm(add_update)


def _end(config: Gemma4Config, name: str, layer_id: int, weights: WeightSource) -> LayerEnd | None:
    factor = weights.take(f"{name}.layer_scalar", 1).item()
    if config.per_layer_size:
        return _PerLayerEnd(config, name, layer_id, factor, weights)
    return None if factor == 1.0 else _ScaledEnd(factor)
