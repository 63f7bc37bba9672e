"""Reads the rotary position embedding from a config.json: newer ones keep it in rope_parameters, older ones in
rope_theta and rope_scaling.

Scalings that transformers chooses by the length of a sequence cannot hold here, because keys are cached with their
rotation. They are chosen by the context that is served: `max_model_len`, or without one `max_position_embeddings`.
longrope takes its long factors for every sequence where that context is longer than the original one, else its short
factors. A sequence is computed as in transformers where it lies on the same side of the original context. "dynamic"
changes frequencies beyond `max_position_embeddings` only; no longer context is served, so it changes nothing.
"""

import math
from dataclasses import dataclass

from engine.errors import CheckpointError
from engine.json_files import quoted
from engine.layers.rotary import (
    LinearScaling,
    Llama3Scaling,
    LongScaling,
    QueryScaling,
    Rotary,
    RotaryScaling,
    YarnScaling,
)
from engine.models.config_reader import ConfigReader

_SUPPORTED = "default, linear, dynamic, llama3, yarn and longrope"


@dataclass(frozen=True)
class Rope:
    """A rotary embedding as a config describes it."""

    base: float
    scaling: RotaryScaling = None
    share: float = 1.0  #: of each head's channels that rotate, from the first on
    query_scaling: QueryScaling | None = None

    def rotary(self, head_dim: int) -> Rotary:
        """The layer that computes it, for heads of that many channels. Raises CheckpointError for an odd number, and
        for another number of factors."""
        num_channels = int(head_dim * self.share)
        if num_channels % 2:
            raise CheckpointError(f"config.json: {num_channels} rotated channels of {head_dim} are no pairs")
        num_factors = len(self.scaling.factors) if isinstance(self.scaling, LongScaling) else num_channels // 2
        if num_factors != num_channels // 2:
            raise CheckpointError(f"config.json: {num_factors} factors of longrope for {num_channels // 2} pairs")
        return Rotary(num_channels, self.base, self.scaling, self.query_scaling)


def read_rope(config: ConfigReader, *, default_base: float = 10_000.0, default_share: float = 1.0) -> Rope:
    """The rotary embedding of a model whose layers all rotate in the same way."""
    base = config.get("rope_theta", float, default_base)
    share = config.get("partial_rotary_factor", float, default_share)
    return rope_in(_rope_section(config), Rope(base, share=share))


def _rope_section(config: ConfigReader) -> ConfigReader | None:
    """The object with the embedding's settings. Where a config has both spellings, transformers reads the older one."""
    return config.section("rope_scaling") or config.section("rope_parameters")


def require_rope_section(config: ConfigReader) -> ConfigReader:
    """The object with the embedding's settings, for architectures whose checkpoints always have one."""
    section = _rope_section(config)
    if section is None:
        raise CheckpointError("config.json has no rope_parameters")
    return section


def read_ropes(config: ConfigReader, *, default_base: float, default_window_base: float) -> tuple[Rope, Rope]:
    """For layers with full attention, and for layers with a window, where these have an embedding of their own. Older
    configs scale only the former, and say the base of the latter in `rope_local_base_freq`."""
    rope = Rope(config.get("rope_theta", float, default_base))
    window_rope = Rope(config.get("rope_local_base_freq", float, default_window_base))
    sections = config.section("rope_parameters")
    if sections is None:
        return rope_in(config.section("rope_scaling"), rope), window_rope
    scaled_window_rope = rope_in(sections.section("sliding_attention"), window_rope)
    return rope_in(sections.section("full_attention"), rope), scaled_window_rope


def rope_in(section: ConfigReader | None, default: Rope) -> Rope:
    """The embedding that this object of config.json describes; missing values come from the default."""
    if section is None:
        return default
    base = section.get("rope_theta", float, default.base)
    share = section.get("partial_rotary_factor", float, default.share)
    return Rope(base, _scaling(section, base), share, default.query_scaling)


def original_context(section: ConfigReader) -> int:
    """Tokens of context before it was extended. As in transformers, the object around the section has precedence."""
    key = "original_max_position_embeddings"
    around = None if section.outer is None else section.outer.optional(key, int)
    return around or section.optional(key, int) or _context(section)


def _context(section: ConfigReader) -> int:
    """The config's max_position_embeddings; an object inside of it may repeat the key, which means nothing."""
    config = section
    while config.outer is not None:
        config = config.outer
        if "max_position_embeddings" in config:
            break
    return config.require("max_position_embeddings", int)


def _scaling(section: ConfigReader, base: float) -> RotaryScaling:
    kind = section.get("rope_type", str, section.get("type", str, "default"))
    if kind == "su" or (kind == "yarn" and "long_factor" in section):
        kind = "longrope"  # early checkpoints of Phi-3
    match kind:
        case "default" | "dynamic":
            return None
        case "linear":
            return LinearScaling(section.require("factor", float))
        case "llama3":
            low, high = section.require("low_freq_factor", float), section.require("high_freq_factor", float)
            if low > high:
                raise CheckpointError(f"config.json: low_freq_factor {low} is above high_freq_factor {high}")
            return Llama3Scaling(section.require("factor", float), low, high, original_context(section))
        case "yarn":
            return _yarn(section, base)
        case "longrope":
            return _longrope(section)
        case _:
            raise CheckpointError(f"config.json: rope_type {quoted(kind)} is not supported ({_SUPPORTED} are)")


def _yarn(section: ConfigReader, base: float) -> YarnScaling:
    original = original_context(section)
    factor = section.get("factor", float, _context(section) / original)
    fast, slow = section.get("beta_fast", float, 32.0), section.get("beta_slow", float, 1.0)
    if slow > fast or base <= 1.0:
        raise CheckpointError(f"config.json: yarn with beta_slow {slow}, beta_fast {fast} and base {base} has no blend")
    return YarnScaling(
        factor,
        original,
        beta_fast=fast,
        beta_slow=slow,
        is_truncated=section.get("truncate", bool, True),
        amplitude=section.get("attention_factor", float, _yarn_amplitude(section, factor)),
    )


def _yarn_amplitude(section: ConfigReader, factor: float) -> float:
    own, of_all = section.get("mscale", float, 0.0), section.get("mscale_all_dim", float, 0.0)

    def grown(weight: float) -> float:
        return 1.0 if factor <= 1.0 else 0.1 * weight * math.log(factor) + 1.0

    return grown(own) / grown(of_all) if own and of_all else grown(1.0)


def _longrope(section: ConfigReader) -> LongScaling:
    original, context = original_context(section), _context(section)
    factor = section.get("factor", float, context / original)
    served = section.served_context or context
    amplitude = section.optional("attention_factor", float)
    if amplitude is None:
        if factor > 1.0 and original < 2:
            raise CheckpointError(f"config.json: longrope from a context of {original} needs an attention_factor")
        amplitude = math.sqrt(1.0 + math.log(factor) / math.log(original)) if factor > 1.0 else 1.0
    factors = section.require("long_factor" if served > original else "short_factor", list)
    least, most = 1e-6, 1e6
    if not all(type(value) in (int, float) and least <= value <= most for value in factors):
        raise CheckpointError(f"config.json: factors of longrope must be numbers from {least} to {most}")
    return LongScaling(tuple(map(float, factors)), amplitude)
