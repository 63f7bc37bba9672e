"""What an engine is busy with, in wire types: its counters, and a picture of its page pool."""

import math
from collections.abc import Sequence

from engine.memory.ledger import PoolCell
from engine.stats import EngineStats
from wire.workers import Load, PageCounts, PoolPicture

MAX_CELLS = 256  #: cells of a picture of the page pool: 8 rows of 32, about 3 kB


def load_of(stats: EngineStats) -> Load:
    """The engine's counters."""
    return Load(
        running=stats.running,
        waiting=stats.waiting,
        swapped=stats.swapped,
        queued_tokens=stats.queued_tokens,
        tokens_per_s=stats.tokens_per_s,
        kv_bytes_used=stats.kv_bytes_used,
        kv_bytes_saved=stats.kv_bytes_saved,
        page_copies_total=stats.page_copies_total,
        kv_bytes_evictable=stats.kv_bytes_evictable,
        kv_bytes_total=stats.kv_bytes_total,
        mirror_bytes_used=stats.mirror_bytes_used,
        mirror_bytes_total=stats.mirror_bytes_total,
        steps_total=stats.steps_total,
        prompt_tokens_total=stats.prompt_tokens_total,
        generation_tokens_total=stats.generation_tokens_total,
        prefix_query_tokens_total=stats.prefix_query_tokens_total,
        prefix_hit_tokens_total=stats.prefix_hit_tokens_total,
        preemptions_total=stats.preemptions_total,
        swap_preemptions_total=stats.swap_preemptions_total,
        swapped_bytes_total=stats.swapped_bytes_total,
        draft_proposals_total=stats.draft_proposals_total,
        draft_tokens_total=stats.draft_tokens_total,
        accepted_draft_tokens_total=stats.accepted_draft_tokens_total,
        saved_steps_total=stats.saved_steps_total,
        pages=tuple(
            PageCounts(
                layer_type=entry.layer_type,
                used=entry.num_used,
                evictable=entry.num_evictable,
                empty=entry.num_empty + entry.num_in_empty_large,
                page_bytes=entry.small_page_bytes,
            )
            for entry in stats.types
        ),
    )


def pool_picture(cells: Sequence[PoolCell]) -> PoolPicture:
    """Cells of the engine in wire types: an index for the layer type, percent for shares."""
    layer_types = sorted({cell.layer_type for cell in cells if cell.layer_type is not None})
    index_of = {name: index for index, name in enumerate(layer_types)}
    return PoolPicture(
        layer_types=tuple(layer_types),
        cells=tuple(
            (
                None if cell.layer_type is None else index_of[cell.layer_type],
                used := _percent(cell.used),
                min(_percent(cell.evictable), 100 - used),
            )
            for cell in cells
        ),
    )


def _percent(share: float) -> int:
    """A share in percent, rounded up, except that rounding errors of a sum of fractions do not round it up."""
    return min(100, math.ceil(100 * share - 1e-6))
