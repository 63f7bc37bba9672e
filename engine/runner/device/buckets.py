"""Which sizes of decode steps are captured as CUDA graphs. A graph has a fixed number of rows and a bound on contexts;
a step replays the smallest graph that fits, with padding rows. Pure functions of numbers.

The bound decides into how many parts attention divides a context. Parts that a shorter context does not have end at
once, but each costs a program: with 64 rows of 8 key/value heads, graphs for 4k contexts launch 8,192 programs where 1k
contexts need 2,048, and some 400 empty ones end in a microsecond [estimated], beside the 62 us that reading takes.
"""

from bisect import bisect_left
from dataclasses import dataclass

#: Larger steps run without a graph: launching their kernels takes less time than running them.
MAX_GRAPH_ROWS = 512
#: Bounds on contexts below the model's own. Each is four times the one before: at worst three of four parts are empty.
CONTEXT_BOUNDS = (1024, 4096)
#: Steps of so few rows have one bound only: all their programs run at once, whatever the bound.
_FEW_ROWS = 2
#: Steps of LEAST_SHARING_ROWS rows or more have graphs that read a shared prefix once (shared_prefixes.py). In these a
#: row has at most SHARED_SUFFIX tokens after its prefix.
LEAST_SHARING_ROWS = 8
SHARED_SUFFIX = 4096


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """The size of a decode step, and of the graph that it replays."""

    num_rows: int  #: with padding
    max_context: int  #: tokens that the longest sequence of a step may have, its new token included
    is_shared: bool = False  #: tokens that the rows of a group share are read once for the group


def row_counts(max_running: int, max_rows: int = MAX_GRAPH_ROWS) -> tuple[int, ...]:
    """Ascending: 1, 2, 4, then by 8 to 32, by 16 to 256, by 64 to 512; and the largest batch itself, so that a full one
    has a graph. Padding is less than half of the rows, at most a third above 16 rows and a fifth above 64."""
    largest = min(max_running, max_rows)
    ladder = (1, 2, 4, *range(8, 32, 8), *range(32, 256, 16), *range(256, MAX_GRAPH_ROWS + 1, 64))
    return (*(count for count in ladder if count < largest), largest)


def context_bounds(max_model_len: int) -> tuple[int, ...]:
    """Bounds of graphs on contexts, in tokens, ascending; the last one is the longest context of the model."""
    return (*(bound for bound in CONTEXT_BOUNDS if bound < max_model_len), max_model_len)


class Buckets:
    """All sizes that have a graph, and the choice of one for a step."""

    def __init__(
        self,
        max_running: int,
        max_model_len: int,
        max_rows: int = MAX_GRAPH_ROWS,
        rows: range = range(1, MAX_GRAPH_ROWS + 1),
        *,
        has_shared: bool = False,
    ) -> None:
        """rows: numbers of rows that the model can be captured with. has_shared: there are graphs for shared prefixes
        too, for powers of two from 8 on.

        Long contexts have graphs for powers of two only: such steps mostly read keys and values, which padding rows
        have none of. So there are few more graphs than with two bounds: 21 for 64 rows, 47 for 256."""
        self._least_rows = rows.start
        counts = [count for count in row_counts(max_running, min(max_rows, max(rows.stop - 1, 1))) if count in rows]
        self.max_rows = max(counts, default=0)
        self._least_bound = context_bounds(max_model_len)[0]
        found = set()
        for bound in context_bounds(max_model_len):
            is_long, is_last = bound > CONTEXT_BOUNDS[-1], bound == max_model_len
            for count in counts:
                is_power = count & (count - 1) == 0
                if (is_power or count == self.max_rows or not is_long) and (count > _FEW_ROWS or is_last):
                    found.add(Bucket(count, bound))
                if has_shared and is_last and count >= LEAST_SHARING_ROWS and (is_power or count == self.max_rows):
                    found.add(Bucket(count, bound, is_shared=True))
        self._ascending = tuple(sorted(found))

    def all(self) -> tuple[Bucket, ...]:
        """All buckets, largest first: the memory of the first graph, which all graphs share, is then enough for all."""
        return self._ascending[::-1]

    def bucket_for(self, num_rows: int, context: int, *, is_shared: bool = False) -> Bucket | None:
        """The bucket for a step: the fewest rows that hold it, and among those the lowest bound on contexts. None: the
        step has too many rows, or too few."""
        if num_rows < self._least_rows:
            return None
        rest = self._ascending[bisect_left(self._ascending, Bucket(num_rows, context)) :]
        return next((b for b in rest if b.max_context >= context and b.is_shared == is_shared), None)

    def without_graph(self, num_rows: int, context: int) -> Bucket:
        """The bucket of a step that runs kernel by kernel. It has no more parts than needed, but at least the lowest
        bound of the graphs, so that the same kernels run."""
        return Bucket(num_rows, max(context, self._least_bound))
