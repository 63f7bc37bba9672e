"""Low-rank adapters of linear layers (LoRA, Hu et al. 2021, section 4.1): what an adapter adds to a layer's output, and
which rows of a step have which adapter.

Operators bind a layer's shape to an AdapterProduct, in which adapters come and go by slot. R = rows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray

from engine.batch import NO_ADAPTER


@dataclass(frozen=True, slots=True, eq=False)
class AdapterTiles:
    """The rows of a step that have adapters, cut into tiles of one adapter each. All int32 [tiles]."""

    MOST_ROWS: ClassVar[int] = 16  #: of a tile

    first_rows: torch.Tensor
    num_rows: torch.Tensor  #: 0: there is no such tile
    slots: torch.Tensor

    @classmethod
    def of(cls, runs: NDArray[np.int64]) -> Self:
        """runs: as AdapterRows.runs. On the host."""
        return cls(*map(torch.from_numpy, tile_columns(runs)))

    def to(self, device: torch.device) -> Self:
        """The same on a device."""
        return replace(
            self,
            first_rows=self.first_rows.to(device),
            num_rows=self.num_rows.to(device),
            slots=self.slots.to(device),
        )


def tile_columns(runs: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """First rows, numbers of rows and slots of the tiles of runs, [tiles] each. There are no more tiles than rows."""
    most = AdapterTiles.MOST_ROWS
    tiles = [
        (first + start, min(most, count - start), slot)
        for first, count, slot in runs.tolist()
        for start in range(0, count, most)
    ]
    columns = np.array(tiles, np.int32).reshape(len(tiles), 3)
    first_rows, num_rows, slots = (np.ascontiguousarray(column) for column in columns.T)
    return first_rows, num_rows, slots


@dataclass(frozen=True, slots=True, eq=False)
class AdapterRows:
    """The adapters of a step's rows."""

    runs: NDArray[np.int64]  #: [runs, 3], ascending: first row, number of rows, slot; rows in no run have no adapter
    num_rows: int  #: of the step
    tiles: AdapterTiles | None = None  #: the same on the device, where the runner has sent it

    @classmethod
    def of(cls, lengths: Iterable[int], slots: Iterable[int]) -> Self | None:
        """lengths, slots: of each sequence of the step. None: no sequence has an adapter."""
        runs: list[list[int]] = []
        row = 0
        for length, slot in zip(lengths, slots, strict=True):
            if slot != NO_ADAPTER:
                if runs and runs[-1][2] == slot and sum(runs[-1][:2]) == row:
                    runs[-1][1] += length
                else:
                    runs.append([row, length, slot])
            row += length
        return cls(np.array(runs, dtype=np.int64), row) if runs else None


@dataclass(frozen=True, slots=True, eq=False)
class LowRank:
    """The update of adjacent outputs of a layer: y = gains * y + shifts + up (down x)."""

    first_output: int
    down: torch.Tensor  #: [rank, in] float32
    up: torch.Tensor  #: [out, rank] float32, with the adapter's scale
    gains: torch.Tensor | None = None  #: [out] float32 (DoRA); None: 1
    shifts: torch.Tensor | None = None  #: [out] float32, with gains; None: 0


class AdapterProduct(Protocol):
    """The adapters of one linear layer, by slot. Used by the engine thread alone."""

    @property
    def is_capturable(self) -> bool:
        """Whether `add` reads AdapterRows.tiles on the device, and no number on the host."""
        ...

    def place(self, slot: int, parts: Sequence[LowRank]) -> None:
        """Put an adapter's update of this layer into a slot, in place of what was there. No parts: the adapter leaves
        the layer as it is."""
        ...

    def add(self, x: torch.Tensor, y: torch.Tensor, rows: AdapterRows) -> None:
        """Add to each row of y [R, out], the layer's output for x [R, in], the update of its adapter. A row's result
        depends on its own row and adapter only."""
        ...


def stacked_ranks(parts: Sequence[LowRank]) -> list[int]:
    """The first of each part's ranks where all parts' ranks lie one after another, each filled up to an even number,
    and at the end their number: what layouts in pairs need."""
    firsts = [0]
    for part in parts:
        firsts.append(firsts[-1] + len(part.down) + len(part.down) % 2)
    return firsts
