"""Runs one step of a loaded model: page tables, page copies, forward pass, sampling. StepPlan in, StepOutput out.

Owns every device tensor: weights, the page pool and the page tables of the running slots. Knows no requests and decides
nothing about pages. Used by exactly one thread.
"""

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch

from engine.attention import choose_backend
from engine.attention.backend import AttentionBackend, ForwardBatch, StepLayout
from engine.attention.layout import layer_specs, small_pages, state_specs
from engine.attention.state_pages import StatePages
from engine.batch import PageCopy, PageTableUpdate, SampledToken, ScheduledSequence, StepOutput, StepPlan
from engine.config import EngineConfig, ModelLimits, SamplingParams
from engine.errors import CheckpointError
from engine.host_mirror import HostMirror
from engine.kernels import choose_operators
from engine.kernels.operators import Operators
from engine.kernels.reference import copy_pages
from engine.kernels.torch_operators import TorchOperators
from engine.loader import Checkpoint, CheckpointWeights, DummyWeights, find_model_folder, read_config
from engine.machine import free_memory_bytes
from engine.memory.admission import AdmissionRule
from engine.memory.planner import choose_design, pool_bytes_for, pool_of
from engine.memory.spec import PoolPlan
from engine.memory.swap import mirror_plan
from engine.models.causal_lm import CausalLM
from engine.models.config_reader import ConfigReader
from engine.models.registry import Architecture, architecture_of
from engine.sampling.sampler import SamplingRow, sample
from engine.tokenizer import Tokenizer, read_eos_token_ids

_log = logging.getLogger(__name__)

#: On CPU a model whose weights take no more than this in float32 runs in float32: a step then costs little anyhow, and
#: greedy tokens do not depend on how a batch happens to be rounded. Larger ones read half the bytes in bfloat16.
FLOAT32_LIMIT_BYTES = 256 * 2**20
#: Weights that fit into one core's caches are read faster than two threads can meet: one thread is enough, and where
#: several models share a machine it is much better.
ONE_THREAD_LIMIT_BYTES = 32 * 2**20
_POOL_ALIGNMENT = 64  #: bytes: a cache line, and the widest vector load
#: Share of free memory that a page pool of unstated size may take. A CPU shares its memory with everything else.
_POOL_SHARE = {"cpu": 0.25, "cuda": 0.85}


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a server tells about the model it serves."""

    name: str
    architecture: str
    num_parameters: int
    dtype: str
    context_length: int  #: tokens, after the configured limit
    revision: str  #: short digest of the weights; "dummy" for random ones
    device: str
    operators: str = "torch"  #: what computes: "torch", or "cpp-" and the instruction set


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """Everything that the engine's core is built around."""

    runner: "Runner"
    tokenizer: Tokenizer  #: of bytes, for dummy weights without tokenizer.json
    limits: ModelLimits
    pool_plan: PoolPlan
    info: ModelInfo


class Runner:
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
    ) -> None:
        """max_running: slots; a plan names slots below it. mirror: layout of the host memory for pages that are swapped
        out. operators: those that the model was built with."""
        self.limits = limits
        self.pool_plan = plan
        self._model = model
        self._device = device
        pool = _zeroed_pool(plan.pool_bytes, device)
        self._pages = {t.name: small_pages(plan, t, pool) for t in plan.types}
        self._operators = operators or TorchOperators()
        self._backend: AttentionBackend = choose_backend(self._operators, plan, pool, model.attention_shapes, dtype)
        self._states = StatePages(plan, pool, model.state_shapes, len(model.attention_shapes))
        self.mirror_plan = mirror
        self._mirror: HostMirror | None = None
        if mirror is not None:
            self._mirror = HostMirror(mirror, _zeroed_pool(mirror.pool_bytes, torch.device("cpu")), self._pages)
        self._page_tokens = {t.name: t.page_tokens for t in plan.types}
        self._page_tables = {
            t.name: np.zeros((max_running, -(-limits.max_model_len // t.page_tokens)), dtype=np.int64)
            for t in plan.types
        }

    @property
    def operators_name(self) -> str:
        """What linears and the like run on, and what attention runs on where that is something else."""
        name, attention = self._operators.name, self._backend.name
        return name if name.startswith(attention) else f"{name}, attention {attention}"

    @torch.inference_mode()
    def run(self, plan: StepPlan) -> StepOutput:
        """Do what the plan says, in its order. Page tables keep their entries for the following steps."""
        started = time.perf_counter()
        self._update_page_tables(plan.page_table_updates)
        move_s = 0.0
        if plan.swap_outs or plan.swap_ins:
            assert self._mirror is not None, "pages are swapped only where there is a mirror"
            move_s = self._mirror.move(plan.swap_outs, plan.swap_ins)
        self._copy_pages(plan.copies)
        samples = self._sample(plan.sequences, self._forward(plan.sequences)) if plan.sequences else ()
        return StepOutput(plan.step, samples, time.perf_counter() - started - move_s, move_s)

    def close(self) -> None:
        """Give the memory back. The runner cannot be used afterwards."""
        del self._model, self._backend, self._states, self._mirror, self._pages, self._page_tables
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def warm_up(self, num_tokens: int) -> None:
        """Run a prompt of that many tokens and one decode on the null page, so that the first request pays no set-up.

        The null page is zeroed afterwards.
        """
        params = SamplingParams(temperature=0.0)
        prompt = ScheduledSequence(0, 0, (0,) * num_tokens, 0, 1, params, (0,), 0)
        decode = ScheduledSequence(0, 0, (0,), num_tokens - 1, 1, params, (0,), 1)
        for step, sequence in enumerate((prompt, decode)):
            self.run(StepPlan(step, (), (), (sequence,)))
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

    def _forward(self, sequences: tuple[ScheduledSequence, ...]) -> torch.Tensor:
        """Final hidden states of the last token of each sequence that draws, [rows, hidden]."""
        count = len(sequences)
        lengths = np.fromiter((len(s.token_ids) for s in sequences), np.int64, count)
        starts = np.fromiter((s.start for s in sequences), np.int64, count)
        slots = np.fromiter((s.slot for s in sequences), np.int64, count)
        token_ids = np.fromiter(chain.from_iterable(s.token_ids for s in sequences), np.int64, int(lengths.sum()))
        longest = int((starts + lengths).max())
        tables = {
            name: table[slots, : -(-longest // self._page_tokens[name])] for name, table in self._page_tables.items()
        }
        layout = StepLayout(starts, lengths, tables)
        batch = ForwardBatch(
            token_ids=torch.from_numpy(token_ids).to(self._device),
            positions=torch.from_numpy(layout.positions).to(self._device),
            attention=self._backend.begin(layout),
            states=self._states.begin(layout),
        )
        hidden = self._model.forward(batch)
        last_rows = np.cumsum(lengths) - 1
        wanted = np.fromiter((s.num_samples > 0 for s in sequences), np.bool_, count)
        return hidden.index_select(0, torch.from_numpy(last_rows[wanted]).to(self._device))

    def _sample(
        self, sequences: tuple[ScheduledSequence, ...], hidden: torch.Tensor
    ) -> tuple[tuple[SampledToken, ...], ...]:
        drawing = [sequence for sequence in sequences if sequence.num_samples > 0]
        if not drawing:
            return ((),) * len(sequences)
        logits = self._model.logits(hidden)
        rows = [SamplingRow(s.params, seed, s.output_index) for s in drawing for seed in s.seeds]
        if len(rows) > len(drawing):
            counts = torch.tensor([s.num_samples for s in drawing], device=self._device)
            logits = logits.repeat_interleave(counts, dim=0)
        tokens = iter(sample(logits, rows, self.limits.eos_token_ids, self._operators.argmax))
        return tuple(tuple(next(tokens) for _ in range(sequence.num_samples)) for sequence in sequences)


def load_runner(config: EngineConfig) -> LoadedModel:
    """Load a model folder or hub id: weights, tokenizer, page pool, one warm-up. Raises CheckpointError in one line."""
    started = time.perf_counter()
    device = _device(config.device)
    folder = find_model_folder(config.model)
    settings = ConfigReader(read_config(folder))
    architecture = architecture_of(settings)
    is_dummy = config.load_format == "dummy"
    checkpoint = None if is_dummy else Checkpoint(folder)
    num_parameters = (
        _count_parameters(architecture, settings, config) if checkpoint is None else checkpoint.num_parameters
    )
    dtype = _dtype(config.dtype, device, num_parameters, settings)
    if device.type == "cpu":
        torch.set_num_threads(config.num_threads or _num_threads(num_parameters * dtype.itemsize))
    operators = choose_operators(
        device,
        dtype,
        torch.get_num_threads(),
        allow_cpp=config.operators == "auto",
        has_int8_weights=config.weights == "int8",
    )
    model = _build(architecture, settings, config, checkpoint, dtype, device, operators)
    has_tokenizer = not is_dummy or (folder / "tokenizer.json").is_file()
    tokenizer = Tokenizer.from_folder(folder) if has_tokenizer else Tokenizer.of_bytes()
    limits = ModelLimits(
        max_model_len=_context_length(config, model),
        vocab_size=model.vocab_size,
        eos_token_ids=tokenizer.eos_token_ids | read_eos_token_ids(folder),
    )
    plan = _plan(config, model, limits, dtype, device)
    runner = Runner(
        model,
        plan=plan,
        limits=limits,
        max_running=config.max_running,
        dtype=dtype,
        device=device,
        mirror=mirror_plan(plan, config.swap_bytes),
        operators=operators,
    )
    runner.warm_up(min(16, limits.max_model_len))
    info = ModelInfo(
        name=Path(config.model).name,
        architecture=architecture.name,
        num_parameters=num_parameters,
        dtype=str(dtype).removeprefix("torch."),
        context_length=limits.max_model_len,
        revision="dummy" if checkpoint is None else checkpoint.revision,
        device=str(device),
        operators=runner.operators_name,
    )
    _log.info("loaded %s in %.1f s", info, time.perf_counter() - started)
    return LoadedModel(runner, tokenizer, limits, plan, info)


def _build(
    architecture: Architecture,
    settings: ConfigReader,
    config: EngineConfig,
    checkpoint: Checkpoint | None,
    dtype: torch.dtype,
    device: torch.device,
    operators: Operators,
) -> CausalLM:
    if checkpoint is None:
        dummy = DummyWeights(dtype=dtype, device=device, seed=config.seed, operators=operators)
        return architecture.build(settings, dummy, dtype, config.max_model_len)
    weights = CheckpointWeights(checkpoint, dtype=dtype, device=device, operators=operators)
    with torch.inference_mode():
        model = architecture.build(settings, weights, dtype, config.max_model_len)
    weights.check_all_taken(architecture.ignored)
    return model


def _count_parameters(architecture: Architecture, settings: ConfigReader, config: EngineConfig) -> int:
    counter = DummyWeights.counting()
    architecture.build(settings, counter, torch.float32, config.max_model_len)
    return counter.num_parameters


def _context_length(config: EngineConfig, model: CausalLM) -> int:
    if config.max_model_len is None:
        return model.max_positions
    if config.max_model_len > model.max_positions:
        raise CheckpointError(
            f"max_model_len {config.max_model_len} is more than the {model.max_positions} positions of {config.model}"
        )
    return config.max_model_len


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise CheckpointError("device cuda was asked for, but torch finds no CUDA device")
    return torch.device(name)


def _dtype(name: str, device: torch.device, num_parameters: int, settings: ConfigReader) -> torch.dtype:
    if name != "auto":
        return {"bfloat16": torch.bfloat16, "float32": torch.float32}[name]
    if device.type == "cpu":
        return torch.float32 if 4 * num_parameters <= FLOAT32_LIMIT_BYTES else torch.bfloat16
    own = settings.get("dtype", str, settings.get("torch_dtype", str, "bfloat16"))
    return torch.float32 if own == "float32" else torch.bfloat16


def _num_threads(weight_bytes: int) -> int:
    """Threads for a model on CPU where the configuration does not say."""
    return 1 if weight_bytes <= ONE_THREAD_LIMIT_BYTES else torch.get_num_threads()


def _zeroed_pool(num_bytes: int, device: torch.device) -> torch.Tensor:
    """Bytes that are zero, so that no page ever decodes to NaN unless somebody wrote one.

    On CPU the system hands out zeroed memory when it is first touched; torch.zeros would touch all of it at once.
    """
    if device.type != "cpu":
        return torch.zeros(num_bytes, dtype=torch.uint8, device=device)
    memory = np.zeros(num_bytes + _POOL_ALIGNMENT, dtype=np.uint8)
    first = -memory.ctypes.data % _POOL_ALIGNMENT
    return torch.from_numpy(memory[first : first + num_bytes])


def _plan(
    config: EngineConfig,
    model: CausalLM,
    limits: ModelLimits,
    dtype: torch.dtype,
    device: torch.device,
) -> PoolPlan:
    specs = layer_specs(model.attention_shapes, dtype, limits.max_model_len)
    specs += state_specs(model.state_shapes, config.checkpoint_tokens)
    design = choose_design(specs, page_tokens=config.page_tokens)
    pool_bytes = config.kv_cache_bytes
    if pool_bytes is None:
        enough = pool_bytes_for(
            design.types,
            num_tokens=limits.max_model_len,
            num_sequences=config.max_running,
            max_step_tokens=config.max_batched_tokens,
        )
        pool_bytes = min(enough, int(free_memory_bytes(device) * _POOL_SHARE[device.type]))
    plan = pool_of(design, pool_bytes)
    rule = AdmissionRule(plan, config.max_batched_tokens)
    _log.info(
        "page pool of %.1f MiB in pages of %s: one request of up to %d tokens, or %d of the full context of %d",
        plan.pool_bytes / 2**20,
        ", ".join(f"{len(kind.layer_ids)} {kind.name} x {kind.page_tokens} tokens" for kind in plan.types),
        rule.max_tokens(limits.max_model_len),
        rule.max_sequences(limits.max_model_len),
        limits.max_model_len,
    )
    return plan
