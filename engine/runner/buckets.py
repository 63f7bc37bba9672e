"""Which sizes of decode steps are captured as CUDA graphs. A graph has a fixed number of rows and a bound on contexts;
a step takes the smallest that holds it and pads the rest. Pure functions of numbers."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

#: Larger steps run without a graph: launching their kernels takes less time than running them.
MAX_GRAPH_ROWS = 512
#: Contexts up to here have graphs of their own where a model knows longer ones: an attention kernel divides a context
#: into parts by the bound that the host knows, and short contexts need few.
SHORT_CONTEXT = 4096


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    num_rows: int
    max_context: int  #: tokens that the longest sequence of a step may have, its new token included


def row_counts(max_running: int, max_rows: int = MAX_GRAPH_ROWS) -> tuple[int, ...]:
    """Ascending: 1, 2, 4, then by 8 to 32, by 16 to 256, by 64 to 512; and the largest batch itself, so that a full one
    has a graph. Padding costs at most a third of the rows from 8 on, and at most a fifth from 64 on."""
    largest = min(max_running, max_rows)
    ladder = (1, 2, 4, *range(8, 32, 8), *range(32, 256, 16), *range(256, MAX_GRAPH_ROWS + 1, 64))
    return (*(count for count in ladder if count < largest), largest)


def context_bounds(max_model_len: int) -> tuple[int, ...]:
    """Ascending; the last one holds every context."""
    return (SHORT_CONTEXT, max_model_len) if max_model_len > SHORT_CONTEXT else (max_model_len,)


class Buckets:
    def __init__(self, max_running: int, max_model_len: int, max_rows: int = MAX_GRAPH_ROWS) -> None:
        self._row_counts: Sequence[int] = row_counts(max_running, max_rows)
        self._bounds: Sequence[int] = context_bounds(max_model_len)

    @property
    def max_rows(self) -> int:
        return self._row_counts[-1]

    def all(self) -> tuple[Bucket, ...]:
        """Largest first: what the first graph takes of their common memory is enough for all."""
        return tuple(Bucket(rows, bound) for rows in reversed(self._row_counts) for bound in reversed(self._bounds))

    def bucket_for(self, num_rows: int, context: int) -> Bucket | None:
        """The smallest that holds a step; None: it has too many rows."""
        if num_rows > self._row_counts[-1]:
            return None
        return Bucket(self._row_counts[bisect_left(self._row_counts, num_rows)], self.context_bound(context))

    def context_bound(self, context: int) -> int:
        return self._bounds[bisect_left(self._bounds, context)]
