"""The config.json of a GGUF file's model, from its settings."""

from collections.abc import Mapping
from typing import Any

from engine.formats.gguf.architectures import architecture_in, named_in
from engine.formats.gguf.families.shared import Architecture
from engine.formats.gguf.file import GgufFile
from engine.formats.gguf.settings import FileSettings, resolved

#: Factors by which frequencies are divided; for contexts that are longer than the original one, and for others.
_FACTORS, _LONG, _SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"
_END_TOKENS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")


def config_of(file: GgufFile) -> dict[str, Any]:
    """The values of config.json. Raises CheckpointError for models that are not served."""
    architecture = architecture_in(file)
    settings = FileSettings(file, named_in(file)[0])
    heads, hidden = settings.most("attention.head_count"), settings.require("embedding_length", int)
    if heads < 1 or hidden < 1:
        raise settings.error(f"{heads} heads and {hidden} channels are no model")
    head_dim = settings.get("attention.key_length", int, hidden // heads)
    if not architecture.is_latent:
        settings.expect("attention.value_length", head_dim)
    settings.expect("attention.causal", True)
    for key, value in architecture.refuses.items():
        settings.expect(key, value)
    if "sliding_window" not in architecture.settings:
        settings.expect("attention.sliding_window", 0)
    config = {
        "architectures": [architecture.model],
        "vocab_size": settings.rows("token_embd.weight"),
        "hidden_size": hidden,
        "intermediate_size": settings.most("feed_forward_length") if "feed_forward_length" in settings else None,
        "num_hidden_layers": settings.num_layers,
        "num_attention_heads": heads,
        "num_key_value_heads": settings.most("attention.head_count_kv")
        if "attention.head_count_kv" in settings
        else heads,
        "head_dim": head_dim,
        "max_position_embeddings": settings.require("context_length", int),
        "rms_norm_eps": settings.norm_eps,
        "hidden_act": "silu",
        "tie_word_embeddings": not settings.has("output.weight"),
        "dtype": "bfloat16",
        "eos_token_id": [file.settings[key] for key in _END_TOKENS if key in file.settings] or None,
        **{key: resolved(setting, settings) for key, setting in architecture.settings.items()},
    }
    if architecture.is_latent:
        del config["head_dim"]
    return {**config, "rope_parameters": _rope(settings, architecture, head_dim)}


def _rope(settings: FileSettings, architecture: Architecture, head_dim: int) -> Mapping[str, Any]:
    """The embedding of positions, as in config.json."""
    num_rotated = head_dim if architecture.is_latent else settings.get("rope.dimension_count", int, head_dim)
    if num_rotated != head_dim and not architecture.rotates_part:
        raise settings.error(f"rope.dimension_count {num_rotated} is not supported, only {head_dim}")
    share = {} if num_rotated == head_dim else {"partial_rotary_factor": num_rotated / head_dim}
    base = settings.get("rope.freq_base", float, 10_000.0)
    own = {key: resolved(setting, settings) for key, setting in architecture.rope.items()}
    rope = {"rope_theta": base, **_scaling(settings), **share}
    rope |= {key: value for key, value in own.items() if value is not None}
    if architecture.window_base is None:
        settings.expect("rope.freq_base_swa", base)
        return rope
    window_base = settings.get("rope.freq_base_swa", float, architecture.window_base)
    return {"full_attention": rope, "sliding_attention": {"rope_type": "default", "rope_theta": window_base, **share}}


def _scaling(settings: FileSettings) -> Mapping[str, Any]:
    """How positions are scaled."""
    original = settings.optional("rope.scaling.original_context_length", int)
    known = {} if original is None else {"original_max_position_embeddings": original}
    amplitude = settings.get("rope.scaling.attn_factor", float, 1.0)
    if settings.has(_FACTORS):
        factors = settings.numbers(_FACTORS)
        return {"rope_type": "longrope", "long_factor": factors, "short_factor": factors, "attention_factor": amplitude}
    if settings.has(_LONG) and settings.has(_SHORT):
        long, short = settings.numbers(_LONG), settings.numbers(_SHORT)
        scaled = {"rope_type": "longrope", "long_factor": long, "short_factor": short}
        return {**scaled, **known, "attention_factor": amplitude}
    match settings.get("rope.scaling.type", str, "none"):
        case "none":
            return {"rope_type": "default"}
        case "linear":
            return {"rope_type": "linear", "factor": settings.require("rope.scaling.factor", float)}
        case "yarn":
            return {"rope_type": "yarn", **known, **_yarn(settings)}
        case kind:
            raise settings.error(f"positions scaled by {kind!r} are not served in GGUF files")


def _yarn(settings: FileSettings) -> Mapping[str, Any]:
    """As in config.json; llama.cpp knows the factor on rotated channels by `mscale_all_dim`."""
    names = {"beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow", "attention_factor": "yarn_attn_factor"}
    found = {name: settings.optional(f"rope.scaling.{key}", float) for name, key in names.items()}
    settings.expect("rope.scaling.yarn_ext_factor", 1.0)
    of_all = settings.get("rope.scaling.yarn_log_multiplier", float, 0.0)
    scales = {"mscale": 1.0, "mscale_all_dim": of_all} if of_all else {}
    factor = {"factor": settings.require("rope.scaling.factor", float)}
    return {**factor, **scales, **{name: value for name, value in found.items() if value is not None}}
