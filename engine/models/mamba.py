"""Mamba and Falcon Mamba: no attention at all; each layer keeps two states of fixed size, whatever the length of the
sequence."""

from collections.abc import Callable
from dataclasses import replace

import torch

from engine.attention.backend import AttentionShape, ForwardBatch, StateShape
from engine.layers.embedding import TokenEmbedding
from engine.layers.mamba import Mamba, MambaSizes, MambaWeights
from engine.layers.mixer import Mixer
from engine.layers.norm import RMSNorm
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader

#: States have no positions, so the architecture sets no limit; this one bounds the prompts.
_CONTEXT = 131_072

#: (index of a layer, its name) -> its mixer, whose states have the ids 2 * index and 2 * index + 1
MixerLoader = Callable[[int, str], Mixer]


def mamba(config: ConfigReader, weights: WeightSource) -> "MambaLM":
    """Builds the first generation of Mamba."""
    sizes = _sizes(config)

    def load(index: int, name: str) -> Mamba:
        return Mamba(2 * index, 2 * index + 1, MambaWeights.load(weights, name, sizes))

    return MambaLM(config, weights, sizes.state_shapes(weights.dtype), load)


def falcon_mamba(config: ConfigReader, weights: WeightSource) -> "MambaLM":
    """Builds Falcon Mamba: dt, B and C are divided by their root mean square."""
    sizes, eps = _sizes(config), config.get("mixer_rms_eps", float, 1e-6)

    def load(index: int, name: str) -> Mamba:
        loaded = MambaWeights.load(weights, name, sizes)
        dt, b, c = (
            RMSNorm(weights.operators.rms_norm(loaded.d.new_ones(size), eps))
            for size in (sizes.rank, sizes.num_states, sizes.num_states)
        )
        return Mamba(2 * index, 2 * index + 1, replace(loaded, norms=(dt, b, c)))

    return MambaLM(config, weights, sizes.state_shapes(weights.dtype), load)


class MambaLM:
    """A CausalLM without attention layers."""

    attention_shapes: tuple[AttentionShape, ...] = ()

    def __init__(
        self,
        config: ConfigReader,
        weights: WeightSource,
        layer_states: tuple[StateShape, ...],
        load_mixer: MixerLoader,
        *,
        is_tied: bool = True,
    ) -> None:
        """layer_states: states of one layer. is_tied: whether the output head is the token embedding, if the config
        does not say."""
        config.expect("hidden_act", "silu")
        hidden, num_layers = config.require("hidden_size", int), config.require("num_hidden_layers", int)
        eps = config.get("layer_norm_epsilon", float, 1e-5)
        self.vocab_size = config.require("vocab_size", int)
        self.max_positions = config.get("max_position_embeddings", int, _CONTEXT)
        self.state_shapes = num_layers * layer_states
        self.is_capturable = weights.operators.state_kernels.is_capturable
        self.narrows = False  # the last layer of such a model needs all rows for nearly all of its work
        self._dtype = weights.dtype
        self._residual_dtype = torch.float32 if config.get("residual_in_fp32", bool, True) else weights.dtype
        name = "embeddings" if "backbone.embeddings.weight" in weights else "embedding"  # newer and older checkpoints
        head = None if config.get("tie_word_embeddings", bool, is_tied) else "lm_head"
        self._tokens = TokenEmbedding.load(weights, f"backbone.{name}", self.vocab_size, hidden, head=head)
        self._layers = [
            (
                RMSNorm.load(weights, f"backbone.layers.{i}.norm", hidden, eps),
                load_mixer(i, f"backbone.layers.{i}.mixer"),
            )
            for i in range(num_layers)
        ]
        self._norm = RMSNorm.load(weights, "backbone.norm_f", hidden, eps)

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        """Final hidden states of the step's tokens, [T, hidden]; writes their states."""
        residual = self._tokens(batch.token_ids).to(self._residual_dtype)
        for norm, mixer in self._layers:
            residual = residual + mixer(norm(residual.to(self._dtype)), None, batch)
        return self._norm(residual.to(self._dtype))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [rows, hidden] -> [rows, vocab_size]."""
        return self._tokens.logits(hidden)


def _sizes(config: ConfigReader) -> MambaSizes:
    hidden = config.require("hidden_size", int)
    return MambaSizes(
        hidden=hidden,
        num_channels=config.get("expand", int, 2) * hidden,
        num_states=config.get("state_size", int, 16),
        num_taps=config.get("conv_kernel", int, 4),
        rank=read_rank(config, "time_step_rank", hidden),
        has_bias=config.get("use_bias", bool, False),
        has_conv_bias=config.get("use_conv_bias", bool, True),
    )


def read_rank(config: ConfigReader, key: str, hidden: int) -> int:
    """The rank of the time step: a number, or "auto" for a sixteenth of the hidden size."""
    if config.get(key, object, "auto") == "auto":
        return -(-hidden // 16)
    return config.require(key, int)
