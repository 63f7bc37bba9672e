"""Where recurrent states lie in the byte pool, and which page holds the running state of each sequence of a step.

Entry i of a sequence's page table is the page of tokens [i * k, (i + 1) * k), where k is the number of tokens between
two checkpoints. No step crosses a checkpoint, and before the first token after one the scheduler plans a copy of the
state into the next page. So a step reads and writes one page of each sequence in place.
"""

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import torch

from engine.attention.backend import IntArray, StateShape, StepLayout
from engine.attention.layout import num_small_pages
from engine.kernels.state_kernels import StatesInPlace
from engine.memory.spec import LayerType, PoolPlan


class StatePages:
    """The states of all recurrent layers. Owns the views on the pool; the pool belongs to the runner."""

    def __init__(self, plan: PoolPlan, pool: torch.Tensor, shapes: tuple[StateShape, ...], first_layer_id: int) -> None:
        """pool: bytes. shapes: by state id; state s is layer first_layer_id + s of the plan."""
        self._device = pool.device
        self._shapes = shapes
        self._types = {
            layer_id - first_layer_id: kind
            for kind in plan.types
            if kind.spec.kind == "recurrent"
            for layer_id in kind.layer_ids
        }
        self._views = [
            _view(plan, pool, self._types[state_id], shape, first_layer_id + state_id)
            for state_id, shape in enumerate(shapes)
        ]

    def begin(self, layout: StepLayout) -> "StatePagesStep":
        """The states of a step's sequences, looked up in page tables on the host."""
        pages = {}
        for kind in set(self._types.values()):
            rows = np.arange(len(layout.starts))
            page_ids = layout.page_tables[kind.name][rows, layout.starts // kind.page_tokens]
            pages[kind.name] = torch.from_numpy(page_ids).to(self._device)
        return StatePagesStep(self, layout, pages, self._device)

    def begin_on_device(
        self,
        slots: torch.Tensor,
        starts: torch.Tensor,
        query_starts: torch.Tensor,
        lengths: IntArray,
        tables: Mapping[str, torch.Tensor],
    ) -> "DeviceStatesStep":
        """As begin, but looked up in page tables on the device, without waiting for it. slots [B] int32, -1: padding;
        starts [B] and query_starts [B + 1] int32; lengths [B], or [1] if all are equal; tables by layer type [S,
        entries] int32."""
        rows, page_ids = slots.clamp(min=0).long(), {}
        for kind in set(self._types.values()):
            found = tables[kind.name][rows, (starts // kind.page_tokens).long()].long()
            page_ids[kind.name] = torch.where(slots < 0, -1, found)
        return DeviceStatesStep(self, lengths, page_ids, starts, query_starts)

    def read(self, state_id: int, step: "StatePagesStep") -> torch.Tensor:
        """Copies of the states [B, *shape] before the step; zeros for sequences that begin."""
        page_ids = step.page_ids[self._types[state_id].name]
        states = self._views[state_id].index_select(0, page_ids)
        # The page of a new sequence may hold what another layer type has left in it, even NaN.
        states.index_fill_(0, step.new_rows, 0)
        return states.view(-1, *self._shapes[state_id].shape)

    def write(self, state_id: int, states: torch.Tensor, step: "StatePagesStep") -> None:
        """Store states [B, *shape] in the sequences' pages."""
        page_ids = step.page_ids[self._types[state_id].name]
        self._views[state_id].index_copy_(0, page_ids, states.flatten(1))

    def in_place(self, state_id: int, step: "StatePagesStep | DeviceStatesStep") -> StatesInPlace:
        """The states in their pages, for state kernels."""
        return StatesInPlace(
            pages=_unflattened(self._views[state_id], self._shapes[state_id]),
            page_ids=step.page_ids[self._types[state_id].name],
            starts=step.starts,
            query_starts=step.query_starts,
            max_queries=int(step.lengths.max()),
        )


class StatePagesStep:
    """The StateStep of a step whose pages the host has looked up."""

    def __init__(
        self, owner: StatePages, layout: StepLayout, page_ids: Mapping[str, torch.Tensor], device: torch.device
    ) -> None:
        self._owner = owner
        self._layout = layout
        self._device = device
        self.lengths = layout.lengths
        self.page_ids = page_ids  #: by layer type: [B]

    @cached_property
    def new_rows(self) -> torch.Tensor:
        """Indices of sequences whose first token this step computes."""
        return torch.from_numpy(np.flatnonzero(self._layout.starts == 0)).to(self._device)

    @cached_property
    def starts(self) -> torch.Tensor:
        """[B] int32: position of each sequence's first token in the step."""
        return torch.from_numpy(self._layout.starts.astype(np.int32)).to(self._device)

    @cached_property
    def query_starts(self) -> torch.Tensor:
        """[B + 1] int32: row of each sequence's first token, and the number of rows."""
        bounds = np.zeros(len(self.lengths) + 1, np.int32)
        np.cumsum(self.lengths, out=bounds[1:])
        return torch.from_numpy(bounds).to(self._device)

    def read(self, state_id: int) -> torch.Tensor:
        """As StateStep.read."""
        return self._owner.read(state_id, self)

    def write(self, state_id: int, states: torch.Tensor) -> None:
        """As StateStep.write."""
        self._owner.write(state_id, states, self)

    def in_place(self, state_id: int) -> StatesInPlace:
        """As StateStep.in_place."""
        return self._owner.in_place(state_id, self)


class DeviceStatesStep:
    """The StateStep of a step whose pages the device has looked up. Only for operators with state kernels, which handle
    padding rows."""

    def __init__(
        self,
        owner: StatePages,
        lengths: IntArray,
        page_ids: Mapping[str, torch.Tensor],
        starts: torch.Tensor,
        query_starts: torch.Tensor,
    ) -> None:
        self._owner = owner
        self.lengths = lengths
        self.page_ids = page_ids  #: by layer type: [B], -1: padding
        self.starts = starts
        self.query_starts = query_starts

    def read(self, state_id: int) -> torch.Tensor:
        """Not supported: use in_place."""
        raise AssertionError("state kernels read states in place")

    def write(self, state_id: int, states: torch.Tensor) -> None:
        """Not supported: use in_place."""
        raise AssertionError("state kernels write states in place")

    def in_place(self, state_id: int) -> StatesInPlace:
        """As StateStep.in_place."""
        return self._owner.in_place(state_id, self)


def _unflattened(view: torch.Tensor, shape: StateShape) -> torch.Tensor:
    """View [pages, elements] as [pages, *shape]."""
    return view.view(view.shape[0], *shape.shape)


def _view(plan: PoolPlan, pool: torch.Tensor, kind: LayerType, shape: StateShape, layer_id: int) -> torch.Tensor:
    """[pages, elements]: the state of one layer in every small page."""
    item_bytes = shape.dtype.itemsize
    assert kind.small_page_bytes % item_bytes == 0 == plan.pool_bytes % item_bytes, "pages are not aligned"
    num_elements = kind.layer_page_bytes // item_bytes
    return pool.view(shape.dtype).as_strided(
        (num_small_pages(plan, kind), num_elements),
        (kind.small_page_bytes // item_bytes, 1),
        kind.layer_ids.index(layer_id) * num_elements,
    )
