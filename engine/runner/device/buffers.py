"""The buffers of decode steps on the device: one set for the largest batch. Graphs are captured over slices of them, so
no buffer is ever replaced.

B = rows, S = slots.
"""

from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import torch

from engine.kernels.adapters import AdapterTiles
from engine.kernels.step_kernels import SamplingColumns
from engine.runner.device.transfer import Upload

#: What the host sends for each row, or for groups of rows, with its numpy type.
COLUMNS: dict[str, type[np.generic]] = {
    "slots": np.int32,
    "starts": np.int32,
    "group_starts": np.int32,
    "prefix_lengths": np.int32,
    "tile_first_rows": np.int32,
    "tile_num_rows": np.int32,
    "tile_slots": np.int32,
}


@dataclass(frozen=True, slots=True)
class DecodeBuffers:
    """Inputs and results of a decode step, one element per row."""

    # Sent by the host
    slots: torch.Tensor  #: [B] int32; -1: padding
    starts: torch.Tensor  #: [B] int32
    group_starts: torch.Tensor  #: [B] int32: first row of each group that shares a prefix, in the first elements
    prefix_lengths: torch.Tensor  #: [B] int32: tokens that a row shares with its group
    tile_first_rows: torch.Tensor  #: [B] int32: AdapterTiles.first_rows
    tile_num_rows: torch.Tensor  #: [B] int32: AdapterTiles.num_rows
    tile_slots: torch.Tensor  #: [B] int32: AdapterTiles.slots
    # Computed from these on the device
    token_ids: torch.Tensor  #: [B] int64
    positions: torch.Tensor  #: [B] int64
    context_lengths: torch.Tensor  #: [B] int32
    next_tokens: torch.Tensor  #: [B] int64: the sampled tokens
    page_places: tuple[torch.Tensor, ...]  #: for each attention type [B] int64
    sampling: SamplingColumns

    @classmethod
    def allocate(cls, upload: Upload, num_rows: int, num_types: int, device: torch.device) -> Self:
        """The upload's columns, and zeroed buffers beside them. num_types: layer types with attention."""

        def numbers(kind: torch.dtype) -> torch.Tensor:
            return torch.zeros(num_rows, dtype=kind, device=device)

        return cls(
            **upload.columns,
            token_ids=numbers(torch.int64),
            positions=numbers(torch.int64),
            context_lengths=numbers(torch.int32),
            next_tokens=numbers(torch.int64),
            page_places=tuple(numbers(torch.int64) for _ in range(num_types)),
            sampling=SamplingColumns.allocate(num_rows, device),
        )

    @property
    def adapter_tiles(self) -> AdapterTiles:
        """One tile for each row at most."""
        return AdapterTiles(self.tile_first_rows, self.tile_num_rows, self.tile_slots)

    def first(self, num_rows: int) -> Self:
        """The first num_rows rows of every buffer, as views."""
        names = [field.name for field in fields(self) if field.name not in ("page_places", "sampling")]
        parts = {name: getattr(self, name)[:num_rows] for name in names}
        places = tuple(places[:num_rows] for places in self.page_places)
        return replace(self, **parts, page_places=places, sampling=self.sampling.first(num_rows))
