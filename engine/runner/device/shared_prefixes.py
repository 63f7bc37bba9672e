"""Which rows of a decode step begin with the same pages, and whether it is worth to read these once for all of them.

Pages are shared because a request found them in the prefix cache, or because samples were forked: either way the slot
gets a whole page table in which they stand already. So tables are kept as they come and compared only when somebody has
joined or left; a step of the same slots as the one before costs a look at two tuples. Knows page ids, and no tensors.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from engine.attention.backend import IntArray
from engine.batch import PageTableUpdate
from engine.memory.spec import PoolPlan
from engine.runner.device.buckets import LEAST_SHARING_ROWS, SHARED_SUFFIX
from engine.runner.device.step_inputs import Shares
from engine.runner.device.transfer import Upload

#: Groups of a step, the last of which holds all rows that share nothing; what more groups there are read by themselves.
#: One less than the rows of the smallest such graph, so that their bounds fit into a column.
MAX_GROUPS = LEAST_SHARING_ROWS - 1
#: A prefix is read once where that saves so many bytes in each layer: what a device reads (H200: 4 TB/s) in the time
#: of the launch that it takes, and of the wait between the two, some 4 us [estimated].
WORTH_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class SharedRows:
    """Rows of a step in an order in which those of a group are adjacent."""

    order: IntArray  #: [B]: which of the step's sequences each row is
    starts: IntArray  #: [groups + 1]: first row of each group
    prefixes: IntArray  #: [B] tokens that a row shares with its group

    @property
    def places(self) -> list[int]:
        """The row of each of the step's sequences."""
        places: list[int] = np.argsort(self.order).tolist()
        return places

    def send(self, upload: Upload, num_rows: int) -> None:
        """num_rows: with padding, which is in the last group that there is."""
        count = len(self.prefixes)
        starts, prefixes = upload.column("group_starts"), upload.column("prefix_lengths")
        starts[: len(self.starts) - 1], starts[len(self.starts) - 1 :] = self.starts[:-1], num_rows
        prefixes[:count], prefixes[count:num_rows] = self.prefixes, 0


class SharedPrefixes:
    def __init__(self, plan: PoolPlan) -> None:
        full = [kind for kind in plan.types if kind.spec.kind == "full"]
        self._page_tokens = {kind.name: kind.page_tokens for kind in full}
        self._token_bytes = sum(kind.small_page_bytes / kind.page_tokens for kind in full)
        self._worth_bytes = WORTH_BYTES * len({layer for kind in full for layer in kind.layer_ids})
        self._tables: dict[str, dict[int, list[int]]] = {name: {} for name in self._page_tokens}  # by type and slot
        self._version = 0  # of the tables, as far as they can be shared
        self._known: tuple[tuple[int, ...], int] | None = None  # what _found is for
        self._found: SharedRows | None = None

    def note(self, updates: Iterable[PageTableUpdate]) -> None:
        """Of every step, whatever it computes."""
        for update in updates:
            tables = self._tables.get(update.layer_type)
            if tables is None:
                continue
            table = tables.setdefault(update.slot, [])
            if update.start < len(table) or not update.start:
                self._version += 1  # else a page that no other row has
            table[update.start :] = update.page_ids

    def find(self, shares: Shares) -> SharedRows | None:
        """For a step of decodes; None where it is not worth it. What was found for the same slots earlier stays right:
        their contexts have only grown."""
        if len(shares.slots) < LEAST_SHARING_ROWS or not self._tables:
            return None
        now = tuple(shares.slots.tolist()), self._version
        if now != self._known:
            self._known, self._found = now, self._group(shares)
        found = self._found
        if found is None or int((shares.starts[found.order] + 1 - found.prefixes).max()) > SHARED_SUFFIX:
            return None
        return found

    def _group(self, shares: Shares) -> SharedRows | None:
        slots = shares.slots.tolist()
        first = next(iter(self._tables.values()))
        order = sorted(range(len(slots)), key=lambda row: first.get(slots[row], []))
        # Of each row with the next one in that order: those that share most are neighbours.
        common = [self._common_tokens(shares, a, b) for a, b in pairwise(order)]
        groups: list[tuple[int, int, int]] = []  # first and last place in `order`, tokens
        spans = [(0, len(common))]
        while spans and len(groups) < MAX_GROUPS - 1:
            begin, end = spans.pop(0)
            left, right, height = largest_rectangle(common[begin:end])
            if height:
                groups.append((begin + left, begin + right, height))
                sides = ((begin, begin + left - 1), (begin + right + 1, end))
                spans += [side for side in sides if side[0] < side[1]]
        saved = sum((last - start) * height for start, last, height in groups) * self._token_bytes
        if saved < self._worth_bytes:
            return None
        rows: list[int] = []
        starts, prefixes = [0], []
        for start, last, height in groups:
            rows += order[start : last + 1]
            starts.append(len(rows))
            prefixes += [height] * (last + 1 - start)
        rest = sorted(set(order) - set(rows))
        return SharedRows(
            np.array([*rows, *rest]), np.array([*starts, len(slots)]), np.array([*prefixes, *[0] * len(rest)])
        )

    def _common_tokens(self, shares: Shares, a: int, b: int) -> int:
        """Of two rows, in whole pages that lie before the token of either."""
        least = int(min(shares.starts[a], shares.starts[b]))
        counts = []
        for name, page_tokens in self._page_tokens.items():
            ours, others = (self._tables[name].get(int(shares.slots[row]), []) for row in (a, b))
            counts.append(min(_common_entries(ours, others), least // page_tokens) * page_tokens)
        return min(counts)


def _common_entries(ours: list[int], others: list[int]) -> int:
    equal, most = 0, min(len(ours), len(others))
    while equal < most:
        middle = (equal + most + 1) // 2
        if ours[equal:middle] == others[equal:middle]:
            equal = middle
        else:
            most = middle - 1
    return equal


def largest_rectangle(heights: Sequence[int]) -> tuple[int, int, int]:
    """First index, index behind the last, and height of the largest rectangle below these heights. Its area is what
    rows save that share so many tokens: the reading of all rows but one."""
    best, best_area = (0, 0, 0), 0
    open_ones: list[tuple[int, int]] = []  # where a rectangle began, and its height, ascending
    for index, height in enumerate([*heights, 0]):
        begin = index
        while open_ones and open_ones[-1][1] >= height:
            begin, tall = open_ones.pop()
            if (index - begin) * tall > best_area:
                best, best_area = (begin, index, tall), (index - begin) * tall
        open_ones.append((begin, height))
    return best
