"""The page tables of all slots, on the device. A step sends only the entries that have changed.

All tables lie in one array, so that one launch writes the changes of all layer types.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray

from engine.attention.backend import IntArray
from engine.batch import PageTableUpdate
from engine.memory.spec import PoolPlan

#: Rows begin at multiples of so many entries, an alignment that kernels can rely on.
_ALIGNED_ENTRIES = 16


class PageTables:
    """Page ids by layer type, slot and entry. Written between steps in the order in which they are launched."""

    def __init__(self, plan: PoolPlan, num_slots: int, max_model_len: int, device: torch.device) -> None:
        self._firsts: dict[str, int] = {}  # first entry of a type's tables in the array
        self._strides: dict[str, int] = {}  # entries of one row
        end = 0
        for kind in plan.types:
            num_entries = -(-max_model_len // kind.page_tokens)
            stride = -(-num_entries // _ALIGNED_ENTRIES) * _ALIGNED_ENTRIES
            self._firsts[kind.name], self._strides[kind.name] = end, stride
            end += num_slots * stride
        self._entries = torch.zeros(end, dtype=torch.int32, device=device)
        #: by layer type [num_slots, entries] int32
        self.tables = {
            name: self._entries[first : first + num_slots * self._strides[name]].view(num_slots, -1)
            for name, first in self._firsts.items()
        }

    def deltas(self, updates: Sequence[PageTableUpdate]) -> tuple[IntArray, NDArray[np.int32]]:
        """Indices of changed entries in the array of all tables, and the page ids that they get. If an entry has
        several updates, the last one counts; no index is returned twice."""
        count = len(updates)
        lengths = np.fromiter((len(update.page_ids) for update in updates), np.int64, count)
        firsts = np.fromiter((self._first_entry(update) for update in updates), np.int64, count)
        ends = np.cumsum(lengths)
        num_pages = int(ends[-1]) if count else 0
        entries = np.arange(num_pages) + np.repeat(firsts - ends + lengths, lengths)
        pages = np.fromiter(chain.from_iterable(update.page_ids for update in updates), np.int32, num_pages)
        entries, last = np.unique(entries[::-1], return_index=True)
        return entries, pages[num_pages - 1 - last]

    def write(self, entries: torch.Tensor, pages: torch.Tensor) -> None:
        """Write page ids into entries, in one launch. entries [n] int64 and pages [n] int32, both on the device."""
        self._entries.index_copy_(0, entries, pages)

    def _first_entry(self, update: PageTableUpdate) -> int:
        stride = self._strides[update.layer_type]
        assert update.start + len(update.page_ids) <= stride, "an update behind the end of its page table"
        return self._firsts[update.layer_type] + update.slot * stride + update.start
