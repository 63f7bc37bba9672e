"""Which rows of a decode step begin with the same pages, and whether reading these once for all of them is worth it.

Pages are shared because a request found them in the prefix cache, or because samples were forked. In both cases the
slot gets a whole page table that has the shared pages already. So page tables are kept here as they are sent, and
compared only when a sequence has joined or left the batch; for the same slots as in the step before, two tuples are
compared. Knows page ids, and no tensors.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from engine.attention.backend import IntArray
from engine.batch import PageTableUpdate
from engine.memory.spec import PoolPlan
from engine.runner.device.buckets import LEAST_SHARING_ROWS
from engine.runner.device.step_inputs import Shares
from engine.runner.device.transfer import Upload

#: Bound on the groups of a step. The last group holds all rows that share nothing; rows of further groups are put there
#: too. One less than the rows of the smallest such graph, so that the groups' bounds fit into a column.
MAX_GROUPS = LEAST_SHARING_ROWS - 1
#: Prefixes are read once if that saves so many bytes in each layer: as many as a device reads (H200: 4 TB/s) in the
#: time of the additional launch and of the wait between the launches, some 4 us [estimated].
WORTH_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class SharedRows:
    """The rows of a step in an order in which the rows of a group are adjacent."""

    order: IntArray  #: [B]: index of each row's sequence in the step
    starts: IntArray  #: [groups + 1]: first row of each group
    prefixes: IntArray  #: [B]: number of tokens that a row shares with its group

    @property
    def places(self) -> list[int]:
        """The row of each of the step's sequences."""
        places: list[int] = np.argsort(self.order).tolist()
        return places

    def send(self, upload: Upload, num_rows: int) -> None:
        """Write groups and prefixes into their columns. num_rows: with padding, which belongs to the last group."""
        count = len(self.prefixes)
        starts, prefixes = upload.column("group_starts"), upload.column("prefix_lengths")
        starts[: len(self.starts) - 1], starts[len(self.starts) - 1 :] = self.starts[:-1], num_rows
        prefixes[:count], prefixes[count:num_rows] = self.prefixes, 0


class SharedPrefixes:
    """The page tables of full-attention layer types, by slot, and the groups of the last batch."""

    def __init__(self, plan: PoolPlan) -> None:
        full = [kind for kind in plan.types if kind.spec.kind == "full"]
        self._page_tokens = {kind.name: kind.page_tokens for kind in full}
        self._token_bytes = sum(kind.small_page_bytes / kind.page_tokens for kind in full)
        self._worth_bytes = WORTH_BYTES * len({layer for kind in full for layer in kind.layer_ids})
        self._tables: dict[str, dict[int, list[int]]] = {name: {} for name in self._page_tokens}  # by type and slot
        self._version = 0  # grows with every change that may affect sharing
        self._known: tuple[tuple[int, ...], int] | None = None  # slots and version that _found is for
        self._found: SharedRows | None = None

    def note(self, updates: Iterable[PageTableUpdate]) -> None:
        """Keep the page tables up to date; call it for every step, of any kind."""
        for update in updates:
            tables = self._tables.get(update.layer_type)
            if tables is None:
                continue
            table = tables.setdefault(update.slot, [])
            if update.start < len(table) or not update.start:
                self._version += 1  # otherwise the table has only grown by new pages, which no other row has
            table[update.start :] = update.page_ids

    def find(self, shares: Shares) -> SharedRows | None:
        """The groups of a decode step; None: sharing is not worth it. Groups that were found for the same slots earlier
        stay valid, since their contexts have only grown."""
        if len(shares.slots) < LEAST_SHARING_ROWS or not self._tables:
            return None
        now = tuple(shares.slots.tolist()), self._version
        if now != self._known:
            self._known, self._found = now, self._group(shares)
        return self._found

    def _group(self, shares: Shares) -> SharedRows | None:
        slots = shares.slots.tolist()
        first = next(iter(self._tables.values()))
        order = sorted(range(len(slots)), key=lambda row: first.get(slots[row], []))
        # Tokens that neighbours in this order have in common. Rows that share most are neighbours.
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
        """Number of tokens that rows a and b share, in whole pages before the new token of both."""
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
    """First index, end index and height of the largest rectangle below these heights. Its area is the number of tokens
    that need not be read if these rows share `height` tokens: the tokens of all rows but one."""
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
