"""adapter_config.json of a PEFT folder (peft.LoraConfig). What would change the computation and is not supported is
refused by name; no field is ignored that could."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import AdapterError
from engine.json_files import quoted, read_object

#: Fields that only matter while an adapter is trained, or say where it comes from.
_WITHOUT_EFFECT = frozenset(
    {
        "auto_mapping",
        "base_model_name_or_path",
        "corda_config",
        "ensure_weight_tying",
        "eva_config",
        "fan_in_fan_out",  # how the base stores its weight
        "inference_mode",
        "layers_pattern",  # beside layers_to_transform: the tensors say which layers these are
        "layers_to_transform",
        "exclude_modules",
        "loftq_config",
        "lora_dropout",
        "lora_ga_config",
        "peft_version",
        "qalora_group_size",
        "revision",
        "runtime_config",
        "target_modules",  # likewise
        "task_type",
    }
)
_READ = frozenset(
    {"alpha_pattern", "init_lora_weights", "lora_alpha", "peft_type", "r", "rank_pattern", "use_dora", "use_rslora"}
)
#: Ways to initialise an adapter that leave the base's weights as they are. The others (PiSSA, OLoRA, CorDA, LoftQ)
#: change them, so that the adapter does not belong to the checkpoint.
_PLAIN_STARTS = (True, False, "gaussian", "eva", "orthogonal")
_MAX_BYTES = 2**20
#: Patterns come from a file that may be anybody's, and Python's matching can take exponential time.
_SAFE_PATTERN = re.compile(r"[\w.^$|()\\\-]*")


@dataclass(frozen=True, slots=True)
class LoraConfig:
    """How an adapter's matrices are to be applied."""

    rank: int
    alpha: float
    rank_pattern: Mapping[str, int]
    alpha_pattern: Mapping[str, float]
    is_rank_stabilised: bool
    is_dora: bool

    @classmethod
    def read(cls, folder: Path) -> "LoraConfig":
        """Raises AdapterError, or CheckpointError for a file that is no JSON object."""
        fields = read_object(folder / "adapter_config.json", _MAX_BYTES)
        kind = fields.get("peft_type")
        if kind != "LORA":
            raise AdapterError(f"adapter_config.json: peft_type {quoted(kind)} is not supported, only LORA is")
        for name, value in fields.items():
            if name not in _READ and name not in _WITHOUT_EFFECT and not _is_off(name, value):
                raise AdapterError(f"adapter_config.json: {name} = {quoted(value)} is not supported")
        start = fields.get("init_lora_weights", True)
        if start not in _PLAIN_STARTS:
            raise AdapterError(
                f"adapter_config.json: init_lora_weights = {quoted(start)} changes the base's weights; convert the "
                "adapter to a plain one (save_pretrained with path_initial_model_for_weight_conversion)"
            )
        return cls(
            rank=_integer(fields, "r", 8),
            alpha=_number("lora_alpha", fields.get("lora_alpha", 8)),
            rank_pattern={key: _integer({key: n}, key) for key, n in _pattern(fields, "rank_pattern").items()},
            alpha_pattern={key: _number(key, n) for key, n in _pattern(fields, "alpha_pattern").items()},
            is_rank_stabilised=_truth(fields, "use_rslora"),
            is_dora=_truth(fields, "use_dora"),
        )

    def rank_of(self, layer: str) -> int:
        """The rank of the layer of that name."""
        return int(_of_layer(self.rank_pattern, layer, self.rank))

    def scale_of(self, layer: str) -> float:
        """The factor on up (down x): alpha / rank, or alpha / sqrt(rank) where it is rank-stabilised (Kalajdzievski
        2023)."""
        alpha, rank = _of_layer(self.alpha_pattern, layer, self.alpha), self.rank_of(layer)
        return alpha / math.sqrt(rank) if self.is_rank_stabilised else alpha / rank


def _is_off(name: str, value: object) -> bool:
    """Whether a field has the value with which PEFT does nothing of what the field is for."""
    return value in (None, False, "none", 0) or value in ([], {}) if name != "megatron_core" else True


def _of_layer(pattern: Mapping[str, float], layer: str, default: float) -> float:
    """As PEFT: the value of the first key that is the layer's name or the end of it after a dot; keys may be regular
    expressions."""
    for key, value in pattern.items():
        if re.fullmatch(rf"(.*\.)?({key})", layer):
            return value
    return default


def _pattern(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    pattern = fields.get(name) or {}
    if not isinstance(pattern, dict):
        raise AdapterError(f"adapter_config.json: {name} = {quoted(pattern)} is no object")
    for key in pattern:
        try:
            re.compile(key)
        except re.error:
            raise AdapterError(f"adapter_config.json: {name} has {quoted(key)}, no regular expression") from None
        if not _SAFE_PATTERN.fullmatch(key):
            raise AdapterError(f"adapter_config.json: the expression {quoted(key)} in {name} is not supported")
    return pattern


def _integer(fields: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = fields.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise AdapterError(f"adapter_config.json: {name} = {quoted(value)} is no rank")
    return value


def _number(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise AdapterError(f"adapter_config.json: {name} = {quoted(value)} is no number")
    return float(value)


def _truth(fields: Mapping[str, Any], name: str) -> bool:
    value = fields.get(name) or False
    if not isinstance(value, bool):
        raise AdapterError(f"adapter_config.json: {name} = {quoted(value)} is neither true nor false")
    return value
