"""The weights of a model that transformers' own code runs, from Agon's checked weight source.

Every tensor of the checkpoint is read by the source, which checks its data type and its values. transformers maps names
(old spellings, experts that are stored one by one, tied weights). What is missing, left over or of another shape raises
CheckpointError; nothing is initialised at random.
"""

import re
from collections.abc import Iterable
from typing import Any

import torch

from engine.errors import CheckpointError
from engine.layers.weights import ListsTensors, WeightSource
from engine.models.through_transformers.attention import SERVED

#: Buffers that old checkpoints carry; transformers computes them.
_BUFFERS = re.compile(r"(rotary_emb\.inv_freq|\.attn\.(masked_)?bias|\.position_ids|\.embed_positions\.weights)$")


def load(model_class: Any, settings: Any, empty: Any, weights: WeightSource) -> Any:
    """The model with its weights. empty: the same model on the meta device."""
    state = _stored(empty, weights) if isinstance(weights, ListsTensors) else _own(empty, weights)
    loaded, report = model_class.from_pretrained(
        None,
        config=settings,
        state_dict=state,
        dtype=weights.dtype,
        attn_implementation=SERVED,
        experts_implementation="eager",
        ignore_mismatched_sizes=True,
        output_loading_info=True,
    )
    for name, found, expected in sorted(report["mismatched_keys"]):
        raise CheckpointError(f"tensor {name} has shape {list(found)}, the config says {list(expected)}")
    if report["missing_keys"]:
        raise CheckpointError(f"the checkpoint has no tensor {_some(report['missing_keys'])}")
    if report["unexpected_keys"]:
        names = _some(report["unexpected_keys"])
        raise CheckpointError(f"the checkpoint has tensors that this architecture does not use: {names}")
    for message in report.get("error_msgs") or ():
        raise CheckpointError(str(message).splitlines()[0])
    device = next(iter(state.values())).device
    return loaded.to(device).eval().requires_grad_(False)


def take_shapes(empty: Any, weights: WeightSource) -> bool:
    """Whether the source has no values: then every tensor of the model has been taken from it, to be counted."""
    if isinstance(weights, ListsTensors):
        return False
    (name, first), *others = _own_tensors(empty).items()
    if not weights.take_matrix(name, *first.shape).is_meta:
        return False
    for name, tensor in others:
        weights.take_matrix(name, *tensor.shape)
    return True


def _own_tensors(empty: Any) -> dict[str, torch.Tensor]:
    """The model's tensors, without values, by its own names: parameters, tied ones once, and buffers that are saved."""
    saved = empty.state_dict().keys()
    buffers = {name: buffer for name, buffer in empty.named_buffers() if name in saved}
    return {**dict(empty.named_parameters()), **buffers}


def _own(empty: Any, weights: WeightSource) -> dict[str, torch.Tensor]:
    """The model's own tensors, for a source that makes up any."""
    return {name: weights.take(name, *tensor.shape) for name, tensor in _own_tensors(empty).items()}


def _stored(empty: Any, weights: ListsTensors) -> dict[str, torch.Tensor]:
    """The checkpoint's tensors. Raises CheckpointError for a config that describes a larger model: transformers would
    make up the rest."""
    shapes = weights.tensor_shapes
    own, prefix = empty.state_dict().keys(), empty.base_model_prefix
    patterns = [re.compile(pattern) for pattern in empty._keys_to_ignore_on_load_unexpected or ()]
    # transformers, too, leaves out buffers that it computes, and parts that it does not build.
    names = [
        name
        for name in shapes
        if name in own or f"{prefix}.{name}" in own or not any(p.search(name) for p in (_BUFFERS, *patterns))
    ]
    held, described = sum(torch.Size(shapes[name]).numel() for name in names), _num_parameters(empty)
    if described > held:
        raise CheckpointError(f"the config describes {described} parameters, the checkpoint holds {held}")
    return {name: weights.take(name, *shapes[name]) for name in sorted(names)}


def _num_parameters(model: Any) -> int:
    """Elements of all parameters, tied ones once."""
    return sum(parameter.numel() for parameter in model.parameters())


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:3]) + (f" and {len(ordered) - 3} more" if len(ordered) > 3 else "")
