"""Decode steps as CUDA graphs: one for each bucket."""

import logging
import time
from collections.abc import Callable

from engine.runner.device.buckets import Bucket, Buckets
from engine.runner.device.graphs import Replay

_log = logging.getLogger(__name__)


class DecodeGraphs:
    """The captured graphs, by bucket."""

    def __init__(self, buckets: Buckets, record: Callable[[Bucket], Replay]) -> None:
        """Records every bucket once, and logs the progress."""
        self._buckets = buckets
        self._replays: dict[Bucket, Replay] = {}
        started = time.perf_counter()
        order = buckets.all()
        for count, bucket in enumerate(order, start=1):
            self._replays[bucket] = record(bucket)
            _log.info(
                "captured graph %d of %d: %d rows%s, %.1f s so far",
                count,
                len(order),
                bucket.num_rows,
                ", behind shared prefixes" if bucket.is_shared else ", with adapters" if bucket.is_adapted else "",
                time.perf_counter() - started,
            )

    def find(self, num_rows: int, *, is_shared: bool, is_adapted: bool = False) -> tuple[Bucket, Replay] | None:
        """The graph for a step of num_rows rows; None: there is none. is_shared: a graph that reads shared prefixes
        once. is_adapted: a graph for rows with adapters."""
        bucket = self._buckets.bucket_for(num_rows, is_shared=is_shared, is_adapted=is_adapted)
        return None if bucket is None else (bucket, self._replays[bucket])
