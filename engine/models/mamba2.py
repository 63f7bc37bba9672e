"""Mamba-2 without attention (Codestral Mamba too): Mamba, but with heads that share one decay per token."""

from engine.layers.mamba2 import Mamba2, Mamba2Sizes, Mamba2Weights
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.hybrid import checked_mamba2_sizes, read_step_limits
from engine.models.mamba import MambaLM


def mamba2(config: ConfigReader, weights: WeightSource) -> MambaLM:
    """Builds Mamba-2."""
    hidden, has_bias = config.require("hidden_size", int), config.get("use_bias", bool, False)
    sizes = Mamba2Sizes(
        hidden=hidden,
        num_heads=config.get("num_heads", int, 128),
        head_dim=config.get("head_dim", int, 64),
        num_groups=config.get("n_groups", int, 8),
        num_states=config.get("state_size", int, 128),
        num_taps=config.get("conv_kernel", int, 4),
        step_limits=read_step_limits(config),
        norm_eps=config.get("layer_norm_epsilon", float, 1e-5),
        has_bias=has_bias,
        has_output_bias=has_bias,
        has_conv_bias=config.get("use_conv_bias", bool, True),
    )
    checked_mamba2_sizes(sizes, config.get("expand", int, 2) * hidden)

    def load(index: int, name: str) -> Mamba2:
        return Mamba2(2 * index, 2 * index + 1, sizes, Mamba2Weights.load(weights, name, sizes))

    return MambaLM(config, weights, sizes.state_shapes(weights.dtype), load, is_tied=False)
