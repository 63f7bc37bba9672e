"""From config.json to transformers' config and model class, with everything left out that could run other code."""

from collections.abc import Mapping
from typing import Any

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from engine.errors import CheckpointError
from engine.json_files import quoted
from engine.models.config_bounds import BOUNDS
from engine.models.config_reader import ConfigReader

#: Keys that name code of a checkpoint or of the hub, and keys that transformers keeps for itself.
_IGNORED = ("auto_map", "attn_implementation", "experts_implementation", "fusion_config", "transformers_weights")
#: Rotary embeddings whose frequencies depend on the longest sequence of the batch.
_BATCH_DEPENDENT = ("dynamic", "longrope")
_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")


#: Types of models whose scores get a bias by distance, whatever their config says.
_ALIBI = ("bloom", "mpt")
#: Kinds of layers whose states are keys and values alone, read as the layer's mask says.
_ATTENTION_KINDS = frozenset({"full_attention", "sliding_attention", "chunked_attention", "attention"})


def read_settings(config: ConfigReader, name: str) -> tuple[Any, Any]:
    """transformers' config and model class for the architecture of that name. Raises CheckpointError."""
    model_type = config.require("model_type", str)
    if "quantization_config" in config:
        raise CheckpointError(
            "config.json: quantization_config is not supported for models that transformers' code runs"
        )
    if model_type not in CONFIG_MAPPING:
        raise CheckpointError(f"transformers {transformers.__version__} has no model_type {quoted(model_type)}")
    _check_bounds(config.values, "config.json")
    settings = CONFIG_MAPPING[model_type].from_dict(_harmless(config.values))
    model_class: Any = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(settings), None)
    if getattr(model_class, "__name__", None) != name:
        raise CheckpointError(f"transformers has no decoder-only language model of that name and type {model_type}")
    if getattr(settings, "is_encoder_decoder", False) or getattr(settings, "add_cross_attention", False):
        raise CheckpointError("encoders and cross attention are not supported")
    if model_type in _ALIBI or getattr(settings, "alibi", False):
        raise CheckpointError("biases on attention scores by distance (alibi) are not supported")
    kinds = {str(kind) for kind in getattr(settings, "layer_types", None) or ()} - _ATTENTION_KINDS
    if kinds:
        raise CheckpointError(f"layers of type {quoted(sorted(kinds))} are not supported")
    return settings, model_class


def read_count(settings: Any, *, of_layers: bool) -> int:
    """The number of layers, or of positions. Raises CheckpointError if transformers' config has none."""
    for key in _LAYERS if of_layers else _POSITIONS:
        value = getattr(settings, key, None)
        if isinstance(value, int) and not isinstance(value, bool):
            least, most = BOUNDS["num_hidden_layers" if of_layers else "max_position_embeddings"]
            if not least <= value <= most:
                raise CheckpointError(f"config.json: {key} must be from {least} to {most}, got {value}")
            return value
    raise CheckpointError(f"config.json has no {(_LAYERS if of_layers else _POSITIONS)[0]}")


def check_modules(model: Any) -> None:
    """Raise CheckpointError where a token's position embedding depends on other sequences of its step, and where layers
    choose the tokens that they read."""
    for name, module in model.named_modules():
        if "indexer" in name:
            raise CheckpointError("its layers choose the tokens that they read (sparse attention)")
        kinds = getattr(module, "rope_type", None)
        for kind in kinds.values() if isinstance(kinds, Mapping) else (kinds,):
            if isinstance(kind, str) and any(name in kind for name in _BATCH_DEPENDENT):
                raise CheckpointError(f"rope_type {quoted(kind)} is not supported: it depends on the whole batch")


def _harmless(value: Any) -> Any:
    """The values without the keys that name code, at any depth; with infinity where transformers writes an object for
    it."""
    if isinstance(value, list):
        return [_harmless(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    if set(value) == {"__float__"}:
        return float(value["__float__"])
    return {
        key: _harmless(each)
        for key, each in value.items()
        if key not in _IGNORED and not key.startswith(("_attn", "_experts", "_commit", "_name"))
    }


def _check_bounds(values: Mapping[str, Any], name: str) -> None:
    """Raise CheckpointError for a number outside the bounds that config.json is held to, at any depth."""
    reader = ConfigReader(values, name)
    for key, value in values.items():
        if isinstance(value, Mapping):
            _check_bounds(value, f"{name}: {key}")
        elif key in BOUNDS and isinstance(value, int | float) and not isinstance(value, bool):
            reader.get(key, float, 0.0)
