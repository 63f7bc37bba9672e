"""Which rows of a step are computed to the end: behind the last layer that stores anything, a prompt needs no more than
the rows after which tokens are sampled."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np
import torch

from engine.attention.backend import AttentionStep, ForwardBatch, IntArray, Narrowing, StepLayout

#: With fewer rows to save a step stays whole: narrowed layers run operator by operator, which costs as much.
MIN_ROWS_SAVED: Final = 64


def narrow(
    batch: ForwardBatch, layout: StepLayout, wanted: IntArray, begin: Callable[[StepLayout], AttentionStep]
) -> ForwardBatch:
    """The step with a narrowing to the last wanted[b] tokens of each sequence b; unchanged where that saves little, or
    where layers keep a budget of tokens or rows have adapters. wanted: [B]. begin: that of the attention backend."""
    num_saved = int(layout.lengths.sum() - wanted.sum())
    if num_saved < MIN_ROWS_SAVED or layout.prompt_lengths is not None or batch.adapters is not None:
        return batch
    rows = torch.from_numpy(rows_of(layout, wanted)).to(batch.token_ids.device)
    has_any = wanted > 0
    inner = None
    if has_any.any():
        starts = (layout.starts + layout.lengths - wanted)[has_any]
        tables = {name: table[has_any] for name, table in layout.page_tables.items()}
        attention = begin(StepLayout(starts, wanted[has_any], tables))
        token_ids, positions = batch.token_ids.index_select(0, rows), batch.positions.index_select(0, rows)
        inner = ForwardBatch(token_ids, positions, attention)
    return replace(batch, narrowing=Narrowing(rows, inner))


def rows_of(layout: StepLayout, wanted: IntArray) -> IntArray:
    """[R]: the rows of the last wanted[b] tokens of each sequence b among those of the step."""
    skipped = np.cumsum(layout.lengths - wanted)
    rows: IntArray = np.arange(wanted.sum()) + np.repeat(skipped, wanted)
    return rows
