"""Where a step finds the recurrent states of its sequences. Models without recurrent layers have none."""

import torch

from engine.attention.backend import StateStep
from engine.attention.state_pages import StatePages
from engine.runner.device.buffers import DecodeBuffers
from engine.runner.device.page_tables import PageTables
from engine.runner.device.step_inputs import MixedInputs, Shares


class StepStates:
    """Begins the StateStep of each step of a model with recurrent layers. The device looks the pages up."""

    def __init__(self, pages: StatePages, tables: PageTables, max_rows: int) -> None:
        self._pages = pages
        self._tables = tables
        self._all_rows = torch.arange(max_rows + 1, dtype=torch.int32, device=next(iter(tables.tables.values())).device)

    def of_decodes(self, rows: DecodeBuffers) -> StateStep:
        """States of a decode step; it may be part of a graph."""
        query_starts = self._all_rows[: len(rows.slots) + 1]
        return self._pages.begin_on_device(rows.slots, rows.starts, query_starts, 1, self._tables.tables)

    def of_mixed(self, inputs: MixedInputs, shares: Shares) -> StateStep:
        """States of a step with prompts."""
        rows = inputs.slots, inputs.starts, inputs.query_starts
        return self._pages.begin_on_device(*rows, int(shares.lengths.max()), self._tables.tables)
