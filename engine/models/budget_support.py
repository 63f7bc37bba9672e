"""Where layers may keep a budget of tokens (`kv_budget`): every other case is refused by a sentence."""

import torch

from engine.attention.backend import AttentionShape
from engine.attention.layout import is_quantised
from engine.errors import CheckpointError
from engine.models.causal_lm import CausalLM
from engine.models.registry import Architecture


def check_budget(
    architecture: Architecture, model: CausalLM, device: torch.device, kv_dtype: torch.dtype, num_processes: int
) -> None:
    """Raise CheckpointError where kv_budget is not supported: on CUDA, in several processes, beside quantised keys and
    values, and for models with other layers than full attention of the plain kind. A plan asks for one process on CPU.
    """
    reason = None
    if device.type != "cpu":
        reason = f"is for CPU, not for {device}"
    elif num_processes > 1:
        reason = "is for one process, not for tensor_parallel"
    elif is_quantised(kv_dtype):
        reason = "does not go with keys and values of 8 bits (kv_dtype)"
    elif architecture.code != "agon":
        reason = f"is not for {architecture.name}, which runs through transformers"
    elif model.state_shapes or not all(map(_is_plain, model.attention_shapes)):
        reason = f"is for models with full attention in all layers, which {architecture.name} has not"
    if reason is not None:
        raise CheckpointError(f"kv_budget {reason}")


def _is_plain(shape: AttentionShape) -> bool:
    options = shape.window, shape.chunk, shape.softcap, shape.sinks, shape.shares_with, shape.value_dim
    return all(option is None for option in options)
