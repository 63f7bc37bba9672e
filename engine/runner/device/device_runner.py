"""Runs steps on a device that works asynchronously: `launch` queues the step and returns, `collect` waits for its
tokens.

Steps of one token per sequence replay a CUDA graph, steps with prompts one for the part between two layers' attention;
other steps run kernel by kernel. All work over the same page tables. One copy brings a step's inputs to the device,
another one its tokens to the host, and only page moves wait for the device. StepPlan in, StepOutput out; knows no
requests. Used by exactly one thread.

T = tokens of a step, B = its sequences, S = slots.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from engine.attention.backend import ForwardBatch
from engine.attention.device_backend import DeviceBackend
from engine.attention.device_layout import DeviceLayout
from engine.attention.layout import small_pages
from engine.attention.state_pages import StatePages
from engine.batch import PageCopy, ScheduledSequence, StepOutput, StepPlan, TokenMasks
from engine.config import ModelLimits
from engine.kernels.adapters import AdapterRows
from engine.kernels.operators import Operators
from engine.kernels.step_kernels import SamplingWorkspace, StepKernels
from engine.layers.adapter_points import AdapterPoints
from engine.memory.spec import PoolPlan
from engine.models.causal_lm import CausalLM
from engine.runner.device.adapter_inputs import put_tiles
from engine.runner.device.buckets import MAX_GRAPH_ROWS, Bucket, Buckets
from engine.runner.device.buffers import COLUMNS, DecodeBuffers
from engine.runner.device.decode_graphs import DecodeGraphs
from engine.runner.device.decode_program import DecodeProgram
from engine.runner.device.draws import draws_of
from engine.runner.device.graphs import GraphRecorder
from engine.runner.device.page_tables import PageTables
from engine.runner.device.post_sampling import Drawn, Finish, PostSampling, download_bytes
from engine.runner.device.prompt_attention import PromptAttention
from engine.runner.device.prompt_graphs import PromptGraphs
from engine.runner.device.prompt_rows import PromptRows, RowsOnTheirWay
from engine.runner.device.shared_prefixes import SharedPrefixes
from engine.runner.device.slot_sampling import SlotSampling
from engine.runner.device.step_inputs import DecodeInputs, DrawInputs, DrawParameters, MixedInputs, Shares
from engine.runner.device.step_states import StepStates
from engine.runner.device.transfer import Download, StepClock, Upload
from engine.runner.host_mirror import HostMirror
from engine.runner.pool import zeroed_pool
from engine.runner.runner import run_step
from engine.runner.warm_up import warm_up_steps

_log = logging.getLogger(__name__)

#: Bytes of the upload beside what the tokens of a step need, mostly for changed entries of page tables. Larger arrays
#: (a long cached prefix in many tables at once) are sent in copies of their own.
_EXTRA_BYTES = 1 << 18
#: Token, position, slot, and two row indices, eight bytes each.
_BYTES_PER_TOKEN = 40


@dataclass(frozen=True, slots=True)
class _InFlight:
    """A step that was launched and not yet collected."""

    plan: StepPlan
    drawn: Drawn
    download: Download
    clock: StepClock
    move_s: float
    rows: RowsOnTheirWay | None  #: of prompts


@dataclass(frozen=True, slots=True)
class _Unmasked:
    """A step whose forward pass is queued, and nothing that follows it."""

    plan: StepPlan
    finish: Finish
    download: Download
    clock: StepClock
    move_s: float
    rows: RowsOnTheirWay | None


class DeviceRunner:
    """The Runner of CUDA devices: steps are queued, at most `max_in_flight` of them at once. On CPU, over kernels in
    plain torch, it runs in tests."""

    def __init__(
        self,
        model: CausalLM,
        kernels: StepKernels,
        *,
        kernels_name: str,
        plan: PoolPlan,
        limits: ModelLimits,
        max_running: int,
        max_batched_tokens: int,
        dtype: torch.dtype,
        device: torch.device,
        operators: Operators,
        mirror: PoolPlan | None = None,
        max_in_flight: int = 2,
        max_graph_rows: int = MAX_GRAPH_ROWS,
        shares_prefixes: bool = False,
        is_batch_invariant: bool = False,
        prompt_attention: PromptAttention | None = None,
        adapter_points: AdapterPoints | None = None,
        memory: torch.Tensor | None = None,
    ) -> None:
        """kernels_name: for logs and metrics. max_running: number of slots. mirror: layout of the host memory for pages
        that are swapped out. operators: the ones that the model was built with. shares_prefixes: sequences may begin
        with the same pages. is_batch_invariant: each token of a prompt is attended like a decode, so that its bits do
        not depend on the tokens that are computed with it. prompt_attention: the layers whose prompts a library
        attends; None: there are none. adapter_points: the model's; None: it has no adapters. memory: of a pool that
        other models share, [plan.pool_bytes] uint8; None: of its own."""
        self.limits = limits
        self.max_in_flight = max_in_flight
        self.pool_plan = plan
        self.mirror_plan = mirror
        self._is_batch_invariant = is_batch_invariant
        self._model = model
        self._adapter_points = adapter_points
        self._kernels = kernels
        self._kernels_name = kernels_name
        self._operators = operators
        self._dtype = dtype
        self._device = device
        self._enter_device()
        self._max_running = max_running
        pool = zeroed_pool(plan.pool_bytes, device) if memory is None else memory
        self._pages = {kind.name: small_pages(plan, kind, pool) for kind in plan.types}
        self._mirror = HostMirror.allocate(mirror, self._pages, kernels)
        self._tables = PageTables(plan, max_running, limits.max_model_len, device)
        self._states: StepStates | None = None
        if model.state_shapes:
            state_pages = StatePages(plan, pool, model.state_shapes, len(model.attention_shapes))
            self._states = StepStates(state_pages, self._tables, max_running)
        shapes = model.attention_shapes
        self._prompt_attention = prompt_attention or PromptAttention()
        self._backend = DeviceBackend(
            kernels,
            plan,
            pool,
            shapes,
            dtype,
            self._tables.tables,
            max_running,
            limits.max_model_len,
            self._prompt_attention.kernels,
        )
        extra_bytes = _EXTRA_BYTES + _BYTES_PER_TOKEN * (max_batched_tokens + max_running)
        self._upload = Upload(COLUMNS, max_running, extra_bytes, device)
        self._buffers = DecodeBuffers.allocate(self._upload, max_running, len(self._backend.page_tokens), device)
        #: Newest token of every slot; the last element takes tokens that are never read.
        self._last_tokens = torch.zeros(max_running + 1, dtype=torch.int64, device=device)
        self._slot_sampling = SlotSampling(max_running, device)
        workspace = SamplingWorkspace.allocate(max_running, model.vocab_size, device)
        self._post_sampling = PostSampling(
            kernels, max_running, model.vocab_size, limits.eos_token_ids, workspace, self._last_tokens
        )
        self._prompt_rows = PromptRows(kernels, model.logits, model.vocab_size, workspace)
        self._rows: RowsOnTheirWay | None = None  # of the step that is being launched
        self._program = DecodeProgram(
            model,
            kernels,
            self._backend,
            self._buffers,
            self._last_tokens,
            self._slot_sampling.parameters,
            workspace,
            None if self._states is None else self._states.of_decodes,
            adapter_points,
        )
        has_shared = shares_prefixes and self._backend.can_share_prefixes
        has_adapted = adapter_points is not None and adapter_points.is_capturable
        self.decode_graphs = DecodeGraphs(
            self._program,
            Buckets(max_running, max_graph_rows, has_shared=has_shared, has_adapted=has_adapted),
            self._upload,
            self._buffers,
            self._last_tokens,
            self._slot_sampling,
            self._post_sampling,
            SharedPrefixes(plan) if has_shared else None,
        )
        #: None: recurrent states are looked up for each step.
        self.prompt_graphs = None if model.state_shapes else PromptGraphs(model, max_batched_tokens, dtype, device)
        #: One pair for each step in flight, used in turn.
        num_bytes = download_bytes(max_running)
        self._downloads = [(Download(num_bytes, device), StepClock(device)) for _ in range(max_in_flight)]
        self._num_launched = 0
        self._in_flight: deque[_InFlight] = deque()
        self._unmasked: _Unmasked | None = None  # the step launched last, if it waits for its masks

    @property
    def operators_name(self) -> str:
        """The model's operators, those of attention if they differ, the library that attends prompts, and whether there
        are CUDA graphs. For logs and metrics."""
        name = self._operators.name
        parts = [name if name.startswith(self._kernels_name) else f"{name}, attention {self._kernels_name}"]
        parts += filter(None, [self._prompt_attention.summary])
        return ", ".join([*parts, "CUDA graphs"] if self.decode_graphs.are_captured else parts)

    def capture(self, recorder: GraphRecorder) -> None:
        """Record a graph for every bucket, and the pieces of steps with prompts; from now on steps replay them. The
        model must be capturable."""
        assert self._model.is_capturable
        self.decode_graphs.capture(recorder)
        if self.prompt_graphs is not None:
            self.prompt_graphs.capture(recorder)

    # Steps

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> None:
        """Queue the plan: page moves, page tables, page copies, forward pass, sampling, download of the tokens. Page
        tables keep their entries for the following steps."""
        assert len(self._in_flight) < self.max_in_flight
        self._enter_device()  # the model may have been loaded by another thread
        move_s = 0.0
        if plan.swap_outs or plan.swap_ins:
            assert self._mirror is not None, "pages are swapped only where there is a mirror"
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)  # steps in flight do not count as time of moves
            move_s = self._mirror.move(plan.swap_outs, plan.swap_ins)
        download, clock = self._downloads[self._num_launched % self.max_in_flight]
        clock.start()
        self._upload.begin()
        self.decode_graphs.note(plan.page_table_updates)
        self._slot_sampling.note(plan.page_table_updates)
        entries, pages = (self._upload.put(array) for array in self._tables.deltas(plan.page_table_updates))
        copies = self._send_copies(plan.copies)
        compute = self._send(plan.sequences) if plan.sequences else None
        self._upload.send()
        if len(entries):
            self._tables.write(entries, pages)
        for name, sources, destinations in copies:
            self._kernels.copy_pages(self._pages[name], sources, destinations)
        finish = compute() if compute is not None else lambda _: Drawn((), None, None, (self._buffers.next_tokens[:0],))
        self._num_launched += 1
        rows, self._rows = self._rows, None
        step = _Unmasked(plan, finish, download, clock, move_s, rows)
        if plan.needs_masks:
            self._unmasked = step
        else:
            self._finish(step, None)

    @torch.inference_mode()
    def supply_masks(self, masks: TokenMasks) -> None:
        """Queue the rest of the step launched last: masks, sampling, download."""
        unmasked, self._unmasked = self._unmasked, None
        assert unmasked is not None, "masks are for a step that was launched before"
        self._enter_device()
        self._finish(unmasked, masks)

    def _finish(self, step: _Unmasked, masks: TokenMasks | None) -> None:
        drawn = step.finish(masks)
        step.clock.stop()
        step.download.start(*drawn.tensors)  # last: when the download has arrived, the clock may be read
        self._in_flight.append(_InFlight(step.plan, drawn, step.download, step.clock, step.move_s, step.rows))

    def _enter_device(self) -> None:
        """Make the device the current one of this thread: events and streams that name no device belong to that one."""
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)

    def collect(self) -> StepOutput:
        """Wait for the tokens of the oldest step in flight."""
        step = self._in_flight.popleft()
        tokens = step.drawn.read(*step.download.wait())
        samples = step.drawn.by_sequence(tokens, step.plan.sequences)
        read = () if step.rows is None else step.rows.wait()
        return StepOutput(step.plan.step, samples, step.clock.elapsed_s, step.move_s, read)

    def _send_copies(self, copies: Sequence[PageCopy]) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
        by_type: dict[str, list[PageCopy]] = {}
        for copy in copies:
            by_type.setdefault(copy.layer_type, []).append(copy)
        return [
            (
                name,
                self._upload.put(np.array([copy.src for copy in group], np.int64)),
                self._upload.put(np.array([copy.dst for copy in group], np.int64)),
            )
            for name, group in by_type.items()
        ]

    def _send(self, sequences: tuple[ScheduledSequence, ...]) -> Callable[[], Finish]:
        """Put the step's inputs into the upload. The result queues the computation; call it once the upload has been
        sent."""
        shares = Shares.of(sequences)
        news = self._slot_sampling.send(self._upload, sequences)
        adapters = self._adapters_of(sequences, shares)
        compute = self.decode_graphs.send(sequences, shares, adapters) if shares.is_decode else None
        if compute is None:
            compute = self._send_launches(sequences, shares, adapters)

        def write_and_compute() -> Finish:
            self._slot_sampling.write(news)
            return compute()

        return write_and_compute

    def _send_launches(
        self, sequences: tuple[ScheduledSequence, ...], shares: Shares, adapters: AdapterRows | None
    ) -> Callable[[], Finish]:
        """As _send, for a step without a graph."""
        if adapters is not None:
            adapters = put_tiles(self._upload, adapters)
        if shares.is_decode:
            bucket = Bucket(len(sequences))
            decodes = DecodeInputs.send(self._upload, sequences, shares, len(sequences))
            forward = partial(self._forward_decode, decodes, bucket, adapters)
        else:
            mixed = MixedInputs.send(self._upload, sequences, shares)
            forward = partial(self._forward_mixed, mixed, shares, adapters)
        draws = draws_of(sequences)
        last_rows = (np.cumsum(shares.lengths) - 1).tolist()
        rows_read = [last_rows[draw.row] - draw.sequence.num_drafts + draw.place for draw in draws]
        inputs = DrawInputs.send(self._upload, rows_read, draws, self._max_running)
        parameters = DrawParameters.send(self._upload, draws, shares)
        special = draws if self._slot_sampling.has_special(sequences) else []
        post_sampling = self._post_sampling.send(self._upload, special, range(len(draws)))
        read_rows = self._prompt_rows.send(self._upload, sequences)

        def compute() -> Finish:
            hidden = forward()
            if read_rows is not None:
                self._rows = read_rows(hidden)
            rows = self._buffers.first(len(draws))
            if not draws:
                return partial(post_sampling, hidden, rows.next_tokens)
            logits = self._model.logits(hidden.index_select(0, inputs.rows))
            self._program.prepare_draws(parameters.slots, parameters.starts, rows)
            parameters.write_seeds(rows.sampling.seeds)
            self._program.sample(logits, rows)
            self._last_tokens.index_copy_(0, inputs.slots, rows.next_tokens.clamp(min=0))  # NO_TOKEN: any
            return partial(post_sampling, logits, rows.next_tokens)

        return compute

    def _adapters_of(self, sequences: tuple[ScheduledSequence, ...], shares: Shares) -> AdapterRows | None:
        if self._adapter_points is None:
            return None
        return AdapterRows.of(map(int, shares.lengths), (sequence.adapter for sequence in sequences))

    def _forward_decode(self, inputs: DecodeInputs, bucket: Bucket, adapters: AdapterRows | None) -> torch.Tensor:
        inputs.write_known(self._last_tokens)
        return self._program.forward(bucket, adapters)

    def _forward_mixed(self, inputs: MixedInputs, shares: Shares, adapters: AdapterRows | None) -> torch.Tensor:
        """Final hidden states of all tokens, [T, hidden]."""
        inputs.read_pending(self._last_tokens)
        backend = self._backend
        layout = DeviceLayout(
            slots=inputs.slots,
            context_lengths=inputs.context_lengths,
            page_places=[inputs.page_places(*t) for t in zip(backend.page_tables, backend.page_tokens, strict=True)],
            num_decodes=shares.num_decodes,
            query_starts=inputs.prompt_starts,
            max_queries=inputs.max_queries,
            max_context=shares.max_prompt_context,
            prompt_lengths=shares.prompt_lengths,
        )
        if self._is_batch_invariant:
            layout = replace(
                layout,
                slots=inputs.token_slots.to(torch.int32),
                context_lengths=(inputs.positions + 1).to(torch.int32),
                num_decodes=len(inputs.token_ids),
                query_starts=None,
            )
        attention = backend.begin(layout)
        if self._adapter_points is not None:
            self._adapter_points.begin(adapters)
        if adapters is None and self.prompt_graphs is not None:
            graph = self.prompt_graphs.find(inputs.token_ids, inputs.positions)
            if graph is not None:
                return graph(attention)
        states = None if self._states is None else self._states.of_mixed(inputs, shares)
        batch = ForwardBatch(inputs.token_ids, inputs.positions, attention, states, adapters=adapters)
        return self._model.forward(batch)

    # Before the first step, and after the last one

    def warm_up(self, num_tokens: int) -> None:
        """Run steps of many shapes on the null page, of up to num_tokens tokens. Afterwards all kernels are compiled,
        no later step takes more memory, and the null page is zeroed again."""
        layer_type = self.pool_plan.types[0].name
        plans = list(warm_up_steps(num_tokens, self._max_running, self.limits.max_model_len, layer_type))
        copies = tuple(PageCopy(kind.name, 0, 0) for kind in self.pool_plan.types)
        plans.append(StepPlan(0, (), copies, ()))  # a fork copies a page
        for number, plan in enumerate(plans, start=1):
            run_step(self, plan)
            _log.debug("ran %d of %d steps to warm up: %d tokens", number, len(plans), plan.num_tokens)
        for pages in self._pages.values():
            pages[0].zero_()

    def close(self) -> None:
        """Free the memory. The runner cannot be used afterwards."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # named, since this thread's current device may be another one
        del (
            self.decode_graphs,
            self.prompt_graphs,
            self._program,
            self._model,
            self._backend,
            self._states,
            self._mirror,
            self._pages,
            self._post_sampling,
        )
        del self._tables, self._buffers, self._upload
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
