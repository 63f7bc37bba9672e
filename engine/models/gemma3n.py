"""Gemma 3n for text: several residual streams (alternating updates), a low-rank part beside attention (Laurel), gates
cut off in the lower layers, inputs of each layer beside the streams, and keys and values that the last layers share."""

from dataclasses import dataclass

import torch

from engine.attention.backend import AttentionShape, ForwardBatch, StateShape
from engine.errors import CheckpointError
from engine.json_files import quoted
from engine.layers.alternating_updates import magnitude, with_magnitude
from engine.layers.embedding import TokenEmbedding
from engine.layers.linear import Linear
from engine.layers.norm import RMSNorm
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.gemma3n_layer import Gemma3nLayer, LayerSettings
from engine.models.layer_inputs import LayerInputs, rounded
from engine.models.rope import Rope, read_ropes
from engine.models.shared_layers import read_shared_layers
from engine.models.windows import read_windows

_PERIOD = 5
_SPARSITY = 0.95
_SPARSE_LAYERS = 10


@dataclass(frozen=True)
class Gemma3nConfig:
    """Settings of the model; made by read_gemma3n."""

    vocab_size: int
    layer: LayerSettings
    shapes: tuple[AttentionShape, ...]  #: by layer
    ffns: tuple[int, ...]  #: intermediate size by layer
    sparsities: tuple[float, ...]  #: share of gates that are cut off, by layer
    max_positions: int
    rope: Rope  #: of layers with full attention
    window_rope: Rope  #: of layers with a window
    num_layer_tokens: int  #: rows of the embedding of the layers' inputs
    logit_softcap: float | None
    is_tied: bool


def gemma3n(config: ConfigReader, weights: WeightSource) -> "Gemma3n":
    """Builds the text model."""
    return Gemma3n(read_gemma3n(config), weights)


def read_gemma3n(config: ConfigReader) -> Gemma3nConfig:
    """Raises CheckpointError for a config that is incomplete or contradicts itself."""
    config.expect("hidden_activation", "gelu_pytorch_tanh")
    config.expect("use_bidirectional_attention", False)
    num_layers = config.get("num_hidden_layers", int, 35)
    rope, window_rope = read_ropes(config, default_base=1_000_000.0, default_window_base=10_000.0)
    num_streams, active = config.get("altup_num_inputs", int, 4), config.get("altup_active_idx", int, 0)
    if active >= num_streams:
        raise CheckpointError(f"config.json: altup_active_idx {active} is none of {num_streams} streams")
    layer = LayerSettings(
        hidden=config.get("hidden_size", int, 2048),
        norm_eps=config.get("rms_norm_eps", float, 1e-6),
        has_bias=config.get("attention_bias", bool, False),
        num_streams=num_streams,
        active=active,
        scales_output=config.get("altup_correct_scale", bool, True),
        laurel_rank=config.get("laurel_rank", int, 64),
        input_size=config.get("hidden_size_per_layer_input", int, 256),
    )
    if not layer.input_size:
        raise CheckpointError("config.json: hidden_size_per_layer_input 0 is not supported")
    is_capped = "final_logit_softcapping" in config
    return Gemma3nConfig(
        vocab_size=config.get("vocab_size", int, 262_400),
        layer=layer,
        shapes=_read_shapes(config, num_layers),
        ffns=tuple(config.by_layer("intermediate_size", num_layers)),
        sparsities=_read_sparsities(config, num_layers),
        max_positions=config.get("max_position_embeddings", int, 32_768),
        rope=rope,
        window_rope=window_rope,
        num_layer_tokens=config.get("vocab_size_per_layer_input", int, 262_144),
        logit_softcap=config.optional("final_logit_softcapping", float) if is_capped else 30.0,
        is_tied=config.get("tie_word_embeddings", bool, True),
    )


def _read_shapes(config: ConfigReader, num_layers: int) -> tuple[AttentionShape, ...]:
    num_heads, num_kv_heads = config.get("num_attention_heads", int, 8), config.get("num_key_value_heads", int, 2)
    head_dim = config.get("head_dim", int, 256)
    if num_heads % num_kv_heads or head_dim % 2:
        raise CheckpointError(f"config.json: {num_heads} heads over {num_kv_heads} of {head_dim} channels do not fit")
    rule = [(index + 1) % _PERIOD != 0 for index in range(num_layers)]
    windows = read_windows(config, config.get("sliding_window", int, 512), rule)
    owners = read_shared_layers(config, windows, default=15)
    return tuple(
        AttentionShape(num_heads, num_kv_heads, head_dim, window, score_scale=1.0, shares_with=owner)
        for window, owner in zip(windows, owners, strict=True)
    )


def _read_sparsities(config: ConfigReader, num_layers: int) -> tuple[float, ...]:
    num_sparse = _SPARSE_LAYERS if num_layers > _SPARSE_LAYERS else 0
    default = [_SPARSITY if index < num_sparse else 0.0 for index in range(num_layers)]
    shares = config.get("activation_sparsity_pattern", list, default)
    are_shares = all(
        isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share < 1 for share in shares
    )
    if len(shares) != num_layers or not are_shares:
        raise CheckpointError(
            f"config.json: activation_sparsity_pattern {quoted(shares)} has not a share below 1 for each of "
            f"{num_layers} layers"
        )
    return tuple(map(float, shares))


class Gemma3n:
    """A CausalLM with the settings of Gemma3nConfig."""

    state_shapes: tuple[StateShape, ...] = ()
    is_capturable = True
    narrows = False

    def __init__(self, config: Gemma3nConfig, weights: WeightSource) -> None:
        self.vocab_size = config.vocab_size
        self.max_positions = config.max_positions
        self.attention_shapes = config.shapes
        settings = config.layer
        hidden, eps, others = settings.hidden, settings.norm_eps, range(settings.num_streams - 1)
        head = None if config.is_tied else "lm_head"
        self._tokens = TokenEmbedding.load(weights, "model.embed_tokens", config.vocab_size, hidden, head=head)
        self._embedding_scale = rounded(hidden**0.5, weights)
        self._layer_inputs = LayerInputs(
            weights,
            num_layers=len(config.shapes),
            size=settings.input_size,
            hidden=hidden,
            num_tokens=config.num_layer_tokens,
            vocab_size=config.vocab_size,
            eps=eps,
        )
        self._spread, self._gather = (
            [Linear.load(weights, f"model.{name}.{index}", hidden, hidden, bias=False) for index in others]
            for name in ("altup_projections", "altup_unembed_projections")
        )
        ropes = [config.rope if shape.window is None else config.window_rope for shape in config.shapes]
        kinds = list(dict.fromkeys(ropes))
        self._rotaries = [rope.rotary(config.shapes[0].head_dim) for rope in kinds]
        self._rotations = [kinds.index(rope) for rope in ropes]  #: by layer: index among the rotations of a step
        self._layers = [
            Gemma3nLayer(settings, index, shape, ffn, sparsity, weights)
            for index, (shape, ffn, sparsity) in enumerate(
                zip(config.shapes, config.ffns, config.sparsities, strict=True)
            )
        ]
        self._norm = RMSNorm.load(weights, "model.norm", hidden, eps)
        self._logit_softcap = config.logit_softcap

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        """Final hidden states of the step's tokens, [T, hidden]; writes their keys and values."""
        hidden = self._tokens(batch.token_ids) * self._embedding_scale
        inputs = self._layer_inputs(batch.token_ids, hidden)
        rotations = [rotary.at(batch.positions) for rotary in self._rotaries]
        size = magnitude(hidden)
        streams = torch.stack([hidden, *(with_magnitude(spread(hidden), size) for spread in self._spread)])
        for index, (layer, rotation) in enumerate(zip(self._layers, self._rotations, strict=True)):
            streams = layer(streams, inputs[:, index], rotations[rotation], batch)
        first, *others = streams
        size = magnitude(first)
        gathered = [with_magnitude(gather(x), size) for gather, x in zip(self._gather, others, strict=True)]
        return self._norm(torch.stack([first, *gathered]).mean(dim=0))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [rows, hidden] -> [rows, vocab_size]."""
        logits = self._tokens.logits(hidden)
        if self._logit_softcap is None:
            return logits
        return logits.div_(self._logit_softcap).tanh_().mul_(self._logit_softcap)
