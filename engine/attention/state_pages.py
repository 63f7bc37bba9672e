"""Where recurrent states lie in the byte pool, and which page holds the running state of each sequence of a step.

Entry i of a sequence's table runs through the tokens [i * k, (i + 1) * k), k the tokens between two checkpoints. No
step crosses a checkpoint, and before the first token behind one the page table's owner has the state copied into the
next page; so a step reads and writes one page of each sequence in place.
"""

from collections.abc import Mapping

import numpy as np
import torch

from engine.attention.backend import IntArray, StateShape, StepLayout
from engine.attention.layout import num_small_pages
from engine.memory.spec import LayerType, PoolPlan


class StatePages:
    """Owns the views on the pool; the pool itself belongs to the runner."""

    def __init__(self, plan: PoolPlan, pool: torch.Tensor, shapes: tuple[StateShape, ...], first_layer_id: int) -> None:
        """pool: bytes; shapes by state id; state s is layer first_layer_id + s of the plan."""
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
        pages = {}
        for kind in set(self._types.values()):
            rows = np.arange(len(layout.starts))
            page_ids = layout.page_tables[kind.name][rows, layout.starts // kind.page_tokens]
            pages[kind.name] = torch.from_numpy(page_ids).to(self._device)
        is_new = torch.from_numpy(np.flatnonzero(layout.starts == 0)).to(self._device)
        return StatePagesStep(self, layout.lengths, pages, is_new)

    def read(self, state_id: int, step: "StatePagesStep") -> torch.Tensor:
        page_ids = step.page_ids[self._types[state_id].name]
        states = self._views[state_id].index_select(0, page_ids)
        # A page may hold what another type left in it, also NaN: nothing of it is used.
        states.index_fill_(0, step.new_rows, 0)
        return states.view(-1, *self._shapes[state_id].shape)

    def write(self, state_id: int, states: torch.Tensor, step: "StatePagesStep") -> None:
        page_ids = step.page_ids[self._types[state_id].name]
        self._views[state_id].index_copy_(0, page_ids, states.flatten(1))


class StatePagesStep:
    def __init__(
        self, owner: StatePages, lengths: IntArray, page_ids: Mapping[str, torch.Tensor], new_rows: torch.Tensor
    ) -> None:
        self._owner = owner
        self.lengths = lengths
        self.page_ids = page_ids  #: by layer type: [B]
        self.new_rows = new_rows  #: sequences whose first token this step computes

    def read(self, state_id: int) -> torch.Tensor:
        return self._owner.read(state_id, self)

    def write(self, state_id: int, states: torch.Tensor) -> None:
        self._owner.write(state_id, states, self)


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
