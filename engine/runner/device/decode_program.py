"""The launches of one decode step, from slots and positions to sampled tokens. CUDA graphs are captured from it.

Reads and writes buffers of fixed addresses only, and never reads a number on the host: its launches depend on the
bucket alone. B = rows, S = slots, V = vocabulary.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from engine.attention.backend import ForwardBatch, StateStep
from engine.attention.device_backend import DeviceBackend
from engine.attention.device_layout import DeviceLayout, SharedPrefix
from engine.kernels.adapters import AdapterRows
from engine.kernels.step_kernels import SamplingWorkspace, StepKernels
from engine.layers.adapter_points import AdapterPoints
from engine.models.causal_lm import CausalLM
from engine.runner.device.buckets import Bucket
from engine.runner.device.buffers import DecodeBuffers
from engine.runner.device.shared_prefixes import MAX_GROUPS

#: No runs of rows: their adapters are known to the device alone.
_NO_RUNS = np.empty((0, 3), np.int64)


class DecodeProgram:
    """Queues a decode step over DecodeBuffers, whose columns have been uploaded."""

    def __init__(
        self,
        model: CausalLM,
        kernels: StepKernels,
        backend: DeviceBackend,
        buffers: DecodeBuffers,
        last_tokens: torch.Tensor,
        parameters: torch.Tensor,
        sampling: SamplingWorkspace,
        begin_states: Callable[[DecodeBuffers], StateStep] | None,
        adapter_points: AdapterPoints | None = None,
    ) -> None:
        """last_tokens [S + 1] int64: newest token of every slot; the last element takes tokens that are never read.
        parameters [S, SAMPLING_WORDS] int32: sampling parameters of every slot. begin_states: looks up the pages of
        recurrent states; None: there are no recurrent layers. adapter_points: the model's; None: it has no adapters."""
        self._model = model
        self._kernels = kernels
        self._backend = backend
        self._buffers = buffers
        self._last_tokens = last_tokens
        self._parameters = parameters
        self._sampling = sampling
        self._begin_states = begin_states
        self._adapter_points = adapter_points

    def __call__(self, bucket: Bucket) -> torch.Tensor:
        """The whole step. Its tokens are written to next_tokens, and to last_tokens for the following step. Returns the
        logits [B, V]."""
        logits = self._model.logits(self.forward(bucket))
        rows = self._buffers.first(bucket.num_rows)
        columns = (*rows.sampling.all, rows.next_tokens, self._sampling)
        self._kernels.sample(logits, *columns, rows.slots, self._last_tokens)
        return logits

    def forward(self, bucket: Bucket, adapters: AdapterRows | None = None) -> torch.Tensor:
        """Final hidden states [B, hidden]. adapters: of the rows; None: those in the columns if the bucket is adapted,
        else none."""
        rows = self._buffers.first(bucket.num_rows)
        if bucket.is_adapted:
            adapters = AdapterRows(_NO_RUNS, bucket.num_rows, rows.adapter_tiles)
        if self._adapter_points is not None:
            self._adapter_points.begin(adapters)
        self._kernels.prepare_decode(
            rows.slots,
            rows.starts,
            self._last_tokens,
            self._backend.page_tables,
            self._backend.page_tokens,
            self._parameters,
            rows.token_ids,
            rows.positions,
            rows.context_lengths,
            rows.page_places,
            rows.sampling,
        )
        states = None if self._begin_states is None else self._begin_states(rows)
        layout = DeviceLayout(
            slots=rows.slots,
            context_lengths=rows.context_lengths,
            page_places=rows.page_places,
            num_decodes=bucket.num_rows,
            query_starts=None,
            max_queries=1,
            max_context=0,
            shared=None,
        )
        if bucket.is_shared:
            groups = rows.group_starts[: MAX_GROUPS + 1]
            layout = replace(layout, shared=SharedPrefix(groups, rows.prefix_lengths))
        attention = self._backend.begin(layout)
        batch = ForwardBatch(rows.token_ids, rows.positions, attention, states, adapters=adapters)
        return self._model.forward(batch)

    def prepare_draws(self, slots: torch.Tensor, starts: torch.Tensor, rows: DecodeBuffers) -> None:
        """Look up the sampling columns of draws that are not the rows of a decode step. slots, starts [R] int32: slot
        and position of the token that each draw follows. Overwrites the other buffers that `forward` computes."""
        outputs = (rows.token_ids, rows.positions, rows.context_lengths, (), rows.sampling)
        self._kernels.prepare_decode(slots, starts, self._last_tokens, (), (), self._parameters, *outputs)

    def sample(self, logits: torch.Tensor, rows: DecodeBuffers) -> None:
        """Sample a token for each row of logits [R, V] into rows.next_tokens, by the first R rows of the sampling
        columns."""
        self._kernels.sample(logits, *rows.sampling.all, rows.next_tokens, self._sampling)
