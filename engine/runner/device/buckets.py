"""Which sizes of decode steps are captured as CUDA graphs. A graph has a fixed number of rows; a step replays the
smallest graph that fits, with padding rows. Pure functions of numbers.

Contexts may have any length: the programs of attention take parts of a row in turn, as many as it has, so their number
does not depend on a bound.
"""

from bisect import bisect_left
from dataclasses import dataclass

#: Larger steps run without a graph: launching their kernels takes less time than running them.
MAX_GRAPH_ROWS = 512
#: Steps of LEAST_SHARING_ROWS rows or more have graphs that read a shared prefix once (shared_prefixes.py).
LEAST_SHARING_ROWS = 8


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """The size of a decode step, and of the graph that it replays."""

    num_rows: int  #: with padding
    is_shared: bool = False  #: tokens that the rows of a group share are read once for the group
    is_adapted: bool = False  #: some rows have adapters


def row_counts(max_running: int, max_rows: int = MAX_GRAPH_ROWS) -> tuple[int, ...]:
    """Ascending: 1, 2, 4, then by 8 to 32, by 16 to 256, by 64 to 512; and the largest batch itself, so that a full one
    has a graph. Padding is less than half of the rows, at most a third above 16 rows and a fifth above 64."""
    largest = min(max_running, max_rows)
    ladder = (1, 2, 4, *range(8, 32, 8), *range(32, 256, 16), *range(256, MAX_GRAPH_ROWS + 1, 64))
    return (*(count for count in ladder if count < largest), largest)


class Buckets:
    """All sizes that have a graph, and the choice of one for a step."""

    def __init__(
        self,
        max_running: int,
        max_rows: int = MAX_GRAPH_ROWS,
        *,
        has_shared: bool = False,
        has_adapted: bool = False,
    ) -> None:
        """has_shared: there are graphs for shared prefixes too, for powers of two from 8 on. There are 9 graphs for 64
        rows and 21 for 256, and 4 and 6 for prefixes. has_adapted: and for rows with adapters, for powers of two."""
        counts = row_counts(max_running, max_rows)
        self.max_rows = counts[-1]
        sharing = [
            count
            for count in counts
            if count >= LEAST_SHARING_ROWS and (count & (count - 1) == 0 or count == self.max_rows)
        ]
        self._plain = tuple(map(Bucket, counts))
        powers = [count for count in counts if count & (count - 1) == 0 or count == self.max_rows]
        self._adapted = tuple(Bucket(count, is_adapted=True) for count in powers) if has_adapted else ()
        self._shared = tuple(Bucket(count, is_shared=True) for count in sharing) if has_shared else ()

    def all(self) -> tuple[Bucket, ...]:
        """All buckets, largest first: the memory of the first graph, which all graphs share, is then enough for all."""
        return tuple(sorted((*self._plain, *self._shared, *self._adapted), reverse=True))

    def bucket_for(self, num_rows: int, *, is_shared: bool = False, is_adapted: bool = False) -> Bucket | None:
        """The bucket for a step, the smallest that holds it. None: the step has too many rows."""
        buckets = self._adapted if is_adapted else self._shared if is_shared else self._plain
        place = bisect_left(buckets, Bucket(num_rows, is_shared, is_adapted))
        return buckets[place] if place < len(buckets) else None
