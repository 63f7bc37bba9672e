"""A model's part in a page pool that several models share: the common large pages, and how many it may use."""

from dataclasses import dataclass

from engine.memory.large_pool import LargePool


@dataclass(frozen=True, slots=True)
class PoolShare:
    """Large pages in which a page cache cuts its small pages. One cache per model; all of one thread."""

    large_pool: LargePool
    max_large_pages: int | None = None  #: the most with a used small page at once; None: all
