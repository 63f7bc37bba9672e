"""Where a step finds the recurrent states of its sequences: on the device, or looked up by the host.

The host looks them up where the operators have no kernels for states. Models without recurrent layers have none.
"""

import numpy as np
import torch

from engine.attention.backend import StateStep, StepLayout
from engine.attention.state_pages import StatePages
from engine.runner.device.buffers import DecodeBuffers
from engine.runner.device.page_tables import PageTables
from engine.runner.device.step_inputs import MixedInputs, Shares


class StepStates:
    """Begins the StateStep of each step of a model with recurrent layers."""

    def __init__(self, pages: StatePages, tables: PageTables, max_rows: int, *, has_kernels: bool) -> None:
        """has_kernels: the device looks the states up."""
        self._pages = pages
        self._tables = tables
        self.has_kernels = has_kernels
        self._all_rows = torch.arange(max_rows + 1, dtype=torch.int32, device=next(iter(tables.tables.values())).device)

    def of_decodes(self, rows: DecodeBuffers) -> StateStep:
        """States of a decode step, on the device; it may be part of a graph."""
        query_starts = self._all_rows[: len(rows.slots) + 1]
        return self._pages.begin_on_device(
            rows.slots, rows.starts, query_starts, np.ones(1, np.int64), self._tables.tables
        )

    def of_mixed(self, inputs: MixedInputs, shares: Shares) -> StateStep:
        """States of a step with prompts."""
        if not self.has_kernels:
            return self.by_host(shares)
        rows = inputs.slots, inputs.starts, inputs.query_starts
        return self._pages.begin_on_device(*rows, shares.lengths, self._tables.tables)

    def by_host(self, shares: Shares) -> StateStep:
        """States of any step, looked up on the host."""
        tables = {name: table[shares.slots] for name, table in self._tables.host_tables.items()}
        return self._pages.begin(StepLayout(shares.starts, shares.lengths, tables))
