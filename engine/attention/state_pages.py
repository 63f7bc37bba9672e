"""Where recurrent states lie in the byte pool, and which page holds the running state of each sequence of a step.

Entry i of a sequence's page table is the page of tokens [i * k, (i + 1) * k), where k is the number of tokens between
two checkpoints. No step crosses a checkpoint, and before the first token after one the scheduler plans a copy of the
state into the next page. So a step reads and writes one page of each sequence in place.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from engine.attention.backend import StateShape, StepLayout
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
        page_ids = {}
        for kind in set(self._types.values()):
            rows = np.arange(len(layout.starts))
            found = layout.page_tables[kind.name][rows, layout.starts // kind.page_tokens]
            page_ids[kind.name] = torch.from_numpy(found).to(self._device)
        bounds = np.zeros(len(layout.lengths) + 1, np.int32)
        np.cumsum(layout.lengths, out=bounds[1:])
        starts, query_starts = (
            torch.from_numpy(rows).to(self._device) for rows in (layout.starts.astype(np.int32), bounds)
        )
        return StatePagesStep(self, page_ids, starts, query_starts, int(layout.lengths.max()))

    def begin_on_device(
        self,
        slots: torch.Tensor,
        starts: torch.Tensor,
        query_starts: torch.Tensor,
        max_queries: int,
        tables: Mapping[str, torch.Tensor],
    ) -> "StatePagesStep":
        """As begin, but looked up in page tables on the device, without waiting for it. slots [B] int32, -1: padding;
        starts [B] and query_starts [B + 1] int32; max_queries: most tokens of a sequence; tables by layer type [S,
        entries] int32."""
        rows, page_ids = slots.clamp(min=0).long(), {}
        for kind in set(self._types.values()):
            found = tables[kind.name][rows, (starts // kind.page_tokens).long()].long()
            page_ids[kind.name] = torch.where(slots < 0, -1, found)
        return StatePagesStep(self, page_ids, starts, query_starts, max_queries)

    def in_place(self, state_id: int, step: "StatePagesStep") -> StatesInPlace:
        """The states in their pages."""
        view = self._views[state_id]
        return StatesInPlace(
            pages=view.view(view.shape[0], *self._shapes[state_id].shape),
            page_ids=step.page_ids[self._types[state_id].name],
            starts=step.starts,
            query_starts=step.query_starts,
            max_queries=step.max_queries,
        )


@dataclass(frozen=True, slots=True)
class StatePagesStep:
    """The StateStep of a step whose pages have been looked up."""

    owner: StatePages
    page_ids: Mapping[str, torch.Tensor]  #: by layer type: [B], -1: padding
    starts: torch.Tensor
    query_starts: torch.Tensor
    max_queries: int

    def in_place(self, state_id: int) -> StatesInPlace:
        """As StateStep.in_place."""
        return self.owner.in_place(state_id, self)


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
