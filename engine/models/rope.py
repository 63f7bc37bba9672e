"""Reads the rotary position embedding of a checkpoint: newer configs keep all of it in rope_parameters, older ones in
rope_theta and rope_scaling."""

from dataclasses import dataclass

from engine.errors import CheckpointError
from engine.layers.rotary import LinearScaling, Llama3Scaling, RotaryScaling
from engine.models.config_reader import ConfigReader


@dataclass(frozen=True)
class Rope:
    base: float
    scaling: RotaryScaling = None


def read_rope(config: ConfigReader) -> Rope:
    """Of a model whose layers all rotate alike."""
    config.expect("partial_rotary_factor", 1.0)
    base = config.get("rope_theta", float, 10000.0)
    return rope_in(config.section("rope_parameters") or config.section("rope_scaling"), base)


def rope_in(section: ConfigReader | None, base: float) -> Rope:
    """What this object of config.json says; base: where it has no rope_theta."""
    if section is None:
        return Rope(base)
    section.expect("partial_rotary_factor", 1.0)
    base = section.get("rope_theta", float, base)
    kind = section.get("rope_type", str, section.get("type", str, "default"))
    match kind:
        case "default":
            return Rope(base)
        case "linear":
            return Rope(base, LinearScaling(section.require("factor", float)))
        case "llama3":
            return Rope(
                base,
                Llama3Scaling(
                    factor=section.require("factor", float),
                    low_freq_factor=section.require("low_freq_factor", float),
                    high_freq_factor=section.require("high_freq_factor", float),
                    original_context=section.require("original_max_position_embeddings", int),
                ),
            )
        case _:
            raise CheckpointError(f"config.json: rope_type {kind!r} is not supported (default, linear and llama3 are)")
