"""Runs steps operator by operator: page tables, page copies, forward pass, sampling. StepPlan in, StepOutput out.

Serves CPU, and CUDA without Triton. Owns every device tensor: weights, the page pool and the page tables of the running
slots. Knows no requests and decides nothing about pages. Used by exactly one thread.
"""

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch

from engine.attention import choose_backend
from engine.attention.backend import AttentionBackend, ForwardBatch, StepLayout
from engine.attention.layout import small_pages
from engine.attention.narrowing import narrow, rows_of
from engine.attention.state_pages import StatePages
from engine.batch import (
    PENDING_TOKEN,
    PageCopy,
    PageTableUpdate,
    SampledToken,
    ScheduledSequence,
    StepOutput,
    StepPlan,
    TokenMasks,
)
from engine.config import ModelLimits
from engine.kernels import reference
from engine.kernels.adapters import AdapterRows
from engine.kernels.cpu.scratch import Scratch
from engine.kernels.operators import Operators
from engine.kernels.reference.pages import copy_pages
from engine.kernels.torch_operators import TorchOperators
from engine.layers.adapter_points import AdapterPoints
from engine.memory.spec import PoolPlan
from engine.models.causal_lm import CausalLM
from engine.prompt_reading import RowsRead
from engine.runner.host_mirror import HostMirror
from engine.runner.pool import zeroed_pool
from engine.runner.runner import run_step
from engine.sampling.prompt_rows import any_read, read_rows
from engine.sampling.sampler import SamplingRow, sample
from engine.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class _Unsampled:
    """A step whose forward pass is done."""

    plan: StepPlan
    hidden: torch.Tensor | None  #: [rows, hidden]; None: the step has no sequences
    read: tuple[RowsRead | None, ...]
    compute_s: float
    move_s: float


class EagerRunner:
    """The Runner whose `launch` computes the whole step before it returns."""

    def __init__(
        self,
        model: CausalLM,
        *,
        plan: PoolPlan,
        limits: ModelLimits,
        max_running: int,
        dtype: torch.dtype,
        device: torch.device,
        mirror: PoolPlan | None = None,
        operators: Operators | None = None,
        max_in_flight: int = 1,
        adapter_points: AdapterPoints | None = None,
        memory: torch.Tensor | None = None,
        scratch: Scratch | None = None,
    ) -> None:
        """max_running: number of slots; a plan names slots below it. mirror: layout of the host memory for pages that
        are swapped out. operators: the ones that the model was built with. max_in_flight: how many steps may be
        launched and not yet collected; more than one gains no time here, since a launch computes at once, but serves
        tests. adapter_points: the model's; None: it has no adapters. memory: of a pool that other models share,
        [plan.pool_bytes] uint8; None: of its own. scratch: likewise."""
        self.limits = limits
        self.max_in_flight = max_in_flight
        self._outputs: deque[StepOutput] = deque()
        self._unsampled: _Unsampled | None = None  # a step that waits for its masks
        self._newest_tokens = np.full(max_running, PENDING_TOKEN, dtype=np.int64)  # last one drawn in each slot
        self._histories: dict[int, list[int]] = {}  # tokens by slot, only if the parameters need them
        self.pool_plan = plan
        self._model = model
        self._adapter_points = adapter_points
        self._device = device
        pool = zeroed_pool(plan.pool_bytes, device) if memory is None else memory
        self._pages = {t.name: small_pages(plan, t, pool) for t in plan.types}
        self._operators = operators or TorchOperators()
        self._backend: AttentionBackend = choose_backend(
            self._operators, plan, pool, model.attention_shapes, dtype, scratch
        )
        self._states = StatePages(plan, pool, model.state_shapes, len(model.attention_shapes))
        self.mirror_plan = mirror
        self._mirror = HostMirror.allocate(mirror, self._pages, None if device.type == "cpu" else reference)
        self._page_tokens = {t.name: t.page_tokens for t in plan.types}
        self._page_tables = {
            t.name: np.zeros((max_running, -(-limits.max_model_len // t.page_tokens)), dtype=np.int64)
            for t in plan.types
        }

    @property
    def operators_name(self) -> str:
        """The model's operators, and those of attention if they differ. For logs and metrics."""
        name, attention = self._operators.name, self._backend.name
        return name if name.startswith(attention) else f"{name}, attention {attention}"

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> None:
        """Execute the plan: page tables, page moves, page copies, forward pass, sampling. Page tables keep their
        entries for the following steps."""
        assert len(self._outputs) < self.max_in_flight
        started = time.perf_counter()
        self._update_page_tables(plan.page_table_updates)
        move_s = 0.0
        if plan.swap_outs or plan.swap_ins:
            assert self._mirror is not None, "pages are swapped only where there is a mirror"
            move_s = self._mirror.move(plan.swap_outs, plan.swap_ins)
        self._copy_pages(plan.copies)
        sampling: torch.Tensor | None = None
        read: tuple[RowsRead | None, ...] = ()
        if plan.sequences:
            sampling, read = self._forward(plan.sequences)
        unsampled = _Unsampled(plan, sampling, read, time.perf_counter() - started - move_s, move_s)
        if plan.needs_masks:
            self._unsampled = unsampled
        else:
            self._finish(unsampled, None)

    @torch.inference_mode()
    def supply_masks(self, masks: TokenMasks) -> None:
        """Sample the step launched last under these masks."""
        unsampled, self._unsampled = self._unsampled, None
        assert unsampled is not None, "masks are for a step that was launched before"
        self._finish(unsampled, masks)

    def _finish(self, step: _Unsampled, masks: TokenMasks | None) -> None:
        started = time.perf_counter()
        samples = () if step.hidden is None else self._sample(step.plan.sequences, step.hidden, masks)
        compute_s = step.compute_s + time.perf_counter() - started
        self._outputs.append(StepOutput(step.plan.step, samples, compute_s, step.move_s, step.read))

    def collect(self) -> StepOutput:
        """The output of the oldest step that was launched and not yet collected; never waits."""
        return self._outputs.popleft()

    def close(self) -> None:
        """Free the memory. The runner cannot be used afterwards."""
        del self._model, self._backend, self._states, self._mirror, self._pages, self._page_tables
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def warm_up(self, num_tokens: int) -> None:
        """Run a prompt of num_tokens tokens and one decode on the null page, so that the first request pays no set-up.
        The null page is zeroed afterwards."""
        params = SamplingParams(temperature=0.0)
        prompt = ScheduledSequence(0, 0, (0,) * num_tokens, 0, 1, params, (0,), 0, None, num_tokens)
        decode = ScheduledSequence(0, 0, (0,), num_tokens - 1, 1, params, (0,), 1, None, num_tokens - 1)
        for step, sequence in enumerate((prompt, decode)):
            run_step(self, StepPlan(step, (), (), (sequence,)))
        for pages in self._pages.values():
            pages[0].zero_()

    def _update_page_tables(self, updates: Iterable[PageTableUpdate]) -> None:
        for update in updates:
            row = self._page_tables[update.layer_type][update.slot]
            row[update.start : update.start + len(update.page_ids)] = update.page_ids

    def _copy_pages(self, copies: Iterable[PageCopy]) -> None:
        by_type: dict[str, list[PageCopy]] = {}
        for copy in copies:
            by_type.setdefault(copy.layer_type, []).append(copy)
        for name, group in by_type.items():
            sources = torch.tensor([copy.src for copy in group], device=self._device)
            destinations = torch.tensor([copy.dst for copy in group], device=self._device)
            copy_pages(self._pages[name], sources, destinations)

    def _forward(self, sequences: tuple[ScheduledSequence, ...]) -> tuple[torch.Tensor, tuple[RowsRead | None, ...]]:
        """Final hidden states of the rows after which tokens are sampled, [rows, hidden]: the last token of each
        sequence that samples, and those before its proposed tokens. And what is read of prompts."""
        count = len(sequences)
        lengths = np.fromiter((len(s.token_ids) for s in sequences), np.int64, count)
        starts = np.fromiter((s.start for s in sequences), np.int64, count)
        slots = np.fromiter((s.slot for s in sequences), np.int64, count)
        token_ids = np.fromiter(chain.from_iterable(s.token_ids for s in sequences), np.int64, int(lengths.sum()))
        if self.max_in_flight > 1:
            last_rows = np.cumsum(lengths) - 1
            last = token_ids[last_rows]
            token_ids[last_rows] = np.where(last == PENDING_TOKEN, self._newest_tokens[slots], last)
        longest = int((starts + lengths).max())
        tables = {
            name: table[slots, : -(-longest // self._page_tokens[name])] for name, table in self._page_tables.items()
        }
        prompt_lengths = None
        if self.pool_plan.smallest_budget is not None:
            prompt_lengths = np.fromiter((s.num_prompt_tokens for s in sequences), np.int64, count)
        layout = StepLayout(starts, lengths, tables, prompt_lengths)
        adapters = None
        if self._adapter_points is not None:
            adapters = AdapterRows.of(map(int, lengths), (s.adapter for s in sequences))
            self._adapter_points.begin(adapters)
        batch = ForwardBatch(
            token_ids=torch.from_numpy(token_ids).to(self._device),
            positions=torch.from_numpy(layout.positions).to(self._device),
            attention=self._backend.begin(layout),
            states=self._states.begin(layout),
            adapters=adapters,
        )
        wanted = np.fromiter((s.num_drafts + 1 if s.num_samples else 0 for s in sequences), np.int64, count)
        if self._model.narrows and not any_read(sequences):
            batch = narrow(batch, layout, wanted, self._backend.begin)
        hidden = self._model.forward(batch)
        if batch.narrowing is not None:
            return hidden, ()
        rows = torch.from_numpy(rows_of(layout, wanted)).to(self._device)
        return hidden.index_select(0, rows), read_rows(sequences, hidden, self._model.logits)

    def _sample(
        self, sequences: tuple[ScheduledSequence, ...], hidden: torch.Tensor, masks: TokenMasks | None
    ) -> tuple[tuple[SampledToken, ...], ...]:
        drawing = [sequence for sequence in sequences if sequence.num_samples > 0]
        if not drawing:
            return ((),) * len(sequences)
        logits = self._model.logits(hidden)
        rows = [row for sequence in drawing for row in self._rows_of(sequence)]
        if len(rows) > len(logits):  # parallel samples of one row
            counts = [count for s in drawing for count in ([1] * s.num_samples if s.num_drafts else [s.num_samples])]
            logits = logits.repeat_interleave(torch.tensor(counts, device=self._device), dim=0)
        eos, operators = self.limits.eos_token_ids, self._operators
        tokens = iter(sample(logits, rows, eos, operators.argmax, operators.draw, operators.forbid, masks))
        samples = tuple(tuple(next(tokens) for _ in range(sequence.num_samples)) for sequence in sequences)
        for sequence, drawn in zip(sequences, samples, strict=True):
            if sequence.has_own_newest_token:
                newest = max(drawn[0].token_id, 0)  # NO_TOKEN: any
                self._newest_tokens[sequence.slot] = newest
                if sequence.params.needs_history:
                    self._histories[sequence.slot].append(newest)
        return samples

    def _rows_of(self, sequence: ScheduledSequence) -> list[SamplingRow]:
        """What the samples of a sequence depend on. After proposed tokens these count as output."""
        params, first, history = sequence.params, sequence.output_index, self._history(sequence)
        if not sequence.num_drafts:
            return [SamplingRow(params, seed, first, history, sequence.banned_token_ids) for seed in sequence.seeds]
        drafts = sequence.drafts
        return [
            SamplingRow(params, seed, first + place, None if history is None else [*history, *drafts[:place]])
            for place, seed in enumerate(sequence.seeds)
        ]

    def _history(self, sequence: ScheduledSequence) -> list[int] | None:
        if not sequence.params.needs_history:
            return None
        if sequence.history is not None:
            self._histories[sequence.slot] = list(sequence.history)
        return self._histories[sequence.slot]
