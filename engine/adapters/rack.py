"""The adapters of a loaded model: reads a folder, fits its matrices to the model's layers, and puts them into a slot.

Used by the engine thread, between steps. Knows no names of adapters: the core gives slots to them.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from engine.adapter_info import AdapterInfo
from engine.adapters.peft_folder import LayerMatrices, PeftFolder
from engine.errors import AdapterError
from engine.json_files import some_of
from engine.kernels.adapters import LowRank
from engine.layers.adapter_points import AdapterPoint, AdapterPoints, PointPart

#: (the checkpoint's name of a linear layer, outputs, inputs) -> its weight [outputs, inputs] float32
ReadWeight = Callable[[str, int, int], torch.Tensor]

#: Names that the same layer has in a language model alone and in one with an image encoder, older or newer.
_TEXT_MODEL = re.compile(r"(model\.language_model\.|language_model\.model\.|model\.)?(?P<rest>.+)")


class AdapterRack:
    """The slots [1, num_slots] of a model."""

    def __init__(self, points: AdapterPoints, read_weight: ReadWeight) -> None:
        """read_weight: for DoRA, which needs the lengths of the changed weights' rows."""
        self._points = points
        self._read_weight = read_weight

    @property
    def num_slots(self) -> int:
        """How many adapters can be loaded at a time."""
        return self._points.num_slots

    def load(self, slot: int, folder: Path) -> AdapterInfo:
        """Put the adapter of a PEFT folder into a slot. Raises AdapterError, and changes nothing then."""
        read = PeftFolder.read(folder)
        updates = self._fitted(read)
        rank = max(len(matrices.down) for matrices in read.layers.values())
        if rank > self._points.max_rank:
            raise AdapterError(f"the adapter has rank {rank}, more than max_adapter_rank {self._points.max_rank}")
        for point, parts in updates:
            point.product.place(slot, parts)
        num_parameters = sum(each.down.numel() + each.up.numel() for each in read.layers.values())
        kind = "DoRA" if read.config.is_dora else "rsLoRA" if read.config.is_rank_stabilised else "LoRA"
        num_bytes = self._points.bytes_of(num_parameters)
        return AdapterInfo(rank, num_parameters, num_bytes, read.digest.hex(), kind)

    def unload(self, slot: int) -> None:
        """Empty a slot. No request may use it."""
        for point in self._points.points:
            point.product.place(slot, ())

    def _fitted(self, read: PeftFolder) -> list[tuple[AdapterPoint, list[LowRank]]]:
        """The parts of each layer of the model; none where the adapter leaves it as it is."""
        left = {_plain(name): (name, matrices) for name, matrices in read.layers.items()}
        if len(left) != len(read.layers):
            raise AdapterError("the adapter has two names for one layer")
        taken: set[str] = set()
        updates: list[tuple[AdapterPoint, list[LowRank]]] = []
        for point in self._points.points:
            parts: list[LowRank] = []
            first_output = 0
            for part in point.parts:
                key = _plain(part.name) if _plain(part.name) in left else _plain(part.stored_name)
                if key in left:
                    name, matrices = left[key]
                    parts.append(self._update(point, part, first_output, name, matrices))
                    taken.add(key)
                first_output += part.num_outputs
            updates.append((point, parts))
        if rest := sorted(name for key, (name, _) in left.items() if key not in taken):
            raise AdapterError(f"the model has no linear layer that an adapter can change of the name {some_of(rest)}")
        return updates

    def _update(
        self, point: AdapterPoint, part: PointPart, first_output: int, name: str, matrices: LayerMatrices
    ) -> LowRank:
        down, up = matrices.down, matrices.up * matrices.scale
        if down.shape[1] != point.num_inputs or len(up) != part.num_outputs:
            raise AdapterError(
                f"{name}: the adapter is for {down.shape[1]} inputs and {len(up)} outputs, the model has "
                f"{point.num_inputs} and {part.num_outputs}"
            )
        gains = None
        if matrices.magnitudes is not None:
            changed = self._read_weight(part.stored_name, part.num_outputs, point.num_inputs).addmm_(up, down)
            gains = matrices.magnitudes / torch.linalg.vector_norm(changed, dim=1)
            if not bool(gains.isfinite().all()):
                raise AdapterError(f"{name}: the changed weight has a row of zeros, which no magnitude can scale")
            up = up * gains[:, None]
        if part.order is not None:
            up, gains = up[part.order], None if gains is None else gains[part.order]
        shifts = None
        if gains is not None and point.bias is not None:
            bias = point.bias[first_output : first_output + part.num_outputs].float().cpu()
            shifts = (1.0 - gains) * bias  # a bias is no part of the weight
        return LowRank(first_output, down, up, gains, shifts)


def _plain(name: str) -> str:
    match = _TEXT_MODEL.fullmatch(name)
    assert match is not None
    return match["rest"]


def layers_by_name(points: AdapterPoints) -> Mapping[str, tuple[int, int]]:
    """Inputs and outputs of every linear layer that adapters can change."""
    return {part.name: (point.num_inputs, part.num_outputs) for point in points.points for part in point.parts}
