"""Reads the rotary position embedding from a config.json: newer ones keep it in rope_parameters, older ones in
rope_theta and rope_scaling."""

from dataclasses import dataclass

from engine.errors import CheckpointError
from engine.json_files import quoted
from engine.layers.rotary import LinearScaling, Llama3Scaling, Rotary, RotaryScaling
from engine.models.config_reader import ConfigReader


@dataclass(frozen=True)
class Rope:
    """A rotary embedding as a config describes it."""

    base: float
    scaling: RotaryScaling = None
    share: float = 1.0  #: of each head's channels that rotate, from the first on

    def rotary(self, head_dim: int) -> Rotary:
        """The layer that computes it, for heads of that many channels. Raises CheckpointError for an odd number."""
        num_channels = int(head_dim * self.share)
        if num_channels % 2:
            raise CheckpointError(f"config.json: {num_channels} rotated channels of {head_dim} are no pairs")
        return Rotary(num_channels, self.base, self.scaling)


def read_rope(config: ConfigReader, *, default_base: float = 10_000.0, default_share: float = 1.0) -> Rope:
    """The rotary embedding of a model whose layers all rotate in the same way."""
    base = config.get("rope_theta", float, default_base)
    share = config.get("partial_rotary_factor", float, default_share)
    return rope_in(config.section("rope_parameters") or config.section("rope_scaling"), Rope(base, share=share))


def rope_in(section: ConfigReader | None, default: Rope) -> Rope:
    """The embedding that this object of config.json describes; missing values come from the default."""
    if section is None:
        return default
    base = section.get("rope_theta", float, default.base)
    share = section.get("partial_rotary_factor", float, default.share)
    return Rope(base, _scaling(section), share)


def _scaling(section: ConfigReader) -> RotaryScaling:
    kind = section.get("rope_type", str, section.get("type", str, "default"))
    match kind:
        case "default":
            return None
        case "linear":
            return LinearScaling(section.require("factor", float))
        case "llama3":
            low, high = section.require("low_freq_factor", float), section.require("high_freq_factor", float)
            if low >= high:
                raise CheckpointError(f"config.json: low_freq_factor {low} is not below high_freq_factor {high}")
            return Llama3Scaling(
                factor=section.require("factor", float),
                low_freq_factor=low,
                high_freq_factor=high,
                original_context=section.require("original_max_position_embeddings", int),
            )
        case _:
            raise CheckpointError(
                f"config.json: rope_type {quoted(kind)} is not supported (default, linear and llama3 are)"
            )
