"""Builds the runner that serves a model: chooses its class, sizes the page pool, warms it up.

DeviceRunner serves CUDA if Triton can be imported and its kernels support the model. EagerRunner serves everything
else.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import torch

from engine.attention.device_backend import prompt_cases, unsupported_reason
from engine.config import EngineConfig, ModelLimits
from engine.errors import CheckpointError
from engine.kernels.operators import Operators, WorkTimer
from engine.kernels.prompt_libraries import PromptLibrary, open_libraries
from engine.kernels.step_kernels import StepKernels
from engine.layers.adapter_points import AdapterPoints
from engine.memory.swap import mirror_plan
from engine.models.causal_lm import CausalLM
from engine.parallel.group import Group
from engine.runner.device.cuda_timer import CudaTimer
from engine.runner.device.device_runner import DeviceRunner
from engine.runner.device.graphs import CudaGraphRecorder, GraphRecorder
from engine.runner.device.memory_profile import CudaGauge, MemoryGauge, profile_memory
from engine.runner.device.prompt_attention import PromptAttention, PromptChoice, StepBounds
from engine.runner.eager_runner import EagerRunner
from engine.runner.free_heap import keep_free_heap
from engine.runner.pool import GivenPool, design_of, plan_pool, smallest_pool

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """What every runner is made of; made by load_runner."""

    model: CausalLM
    config: EngineConfig
    limits: ModelLimits
    dtype: torch.dtype
    kv_dtype: torch.dtype  #: of keys and values in pages
    device: torch.device
    operators: Operators
    group: Group
    adapter_points: AdapterPoints | None = None  #: None: no adapter can be loaded
    pool: GivenPool | None = None  #: None: the runner allocates a pool of its own


@dataclass(frozen=True, slots=True)
class Machinery:
    """What DeviceRunner needs beside the model: kernels, CUDA graphs, memory figures. Tests pass others."""

    kernels: StepKernels
    name: str  #: of the kernels, for logs and metrics
    make_recorder: Callable[[], GraphRecorder]  #: graphs of one recorder share memory
    gauge: MemoryGauge
    timer: WorkTimer | None = None  #: measures products and prompt attention; None: they are not measured
    libraries: tuple[PromptLibrary, ...] = ()  #: which may attend prompts
    warms_up: bool = True  #: False: kernels are compiled when steps first need them; for tests


Builder = Callable[[Parts], EagerRunner | DeviceRunner]


def build_runner(parts: Parts) -> EagerRunner | DeviceRunner:
    """The runner for the device, warmed up. Raises CheckpointError if no memory is left for pages."""
    if parts.device.type == "cuda":
        _sum_products_in_float32()
        reason = _why_not_triton(parts)
        if reason is None:
            from engine.kernels import gpu  # without Triton not importable
            from engine.kernels.gpu import dependent_launch

            if not parts.config.dependent_launch:
                dependent_launch.turn_off(parts.device)
            stream = torch.cuda.Stream(parts.device)
            machinery = Machinery(
                gpu,
                "triton",
                partial(CudaGraphRecorder, parts.device, stream),
                CudaGauge(parts.device),
                CudaTimer(parts.device, stream),
                _libraries(parts),
            )
            return build_device_runner(parts, machinery)
        if parts.config.batch_invariant:
            raise CheckpointError(f"batch_invariant needs the Triton kernels on CUDA: {reason}")
        _log.warning("steps run on torch, operator by operator, which is several times slower: %s", reason)
    return build_eager_runner(parts)


def _sum_products_in_float32() -> None:
    """Forbid cuBLAS to add the parts of a product in 16 bits, as torch allows it: our own products add in float32. Set
    here alone, for the whole process, and never taken back: graphs and later steps are to compute the same."""
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def build_eager_runner(parts: Parts) -> EagerRunner:
    """An EagerRunner, warmed up. A pool of unstated size takes a share of the free memory."""
    config, pool = parts.config, parts.pool
    if parts.device.type == "cpu":
        keep_free_heap()
    if pool is None:
        plan = plan_pool(config, parts.model, parts.limits, parts.kv_dtype, parts.device, parts.group)
    else:
        plan = pool.plan
    runner = EagerRunner(
        parts.model,
        plan=plan,
        limits=parts.limits,
        max_running=config.step_limits.max_running,
        dtype=parts.dtype,
        device=parts.device,
        mirror=mirror_plan(plan, config.swap_bytes),
        operators=parts.operators,
        max_in_flight=2 if config.overlap else 1,
        adapter_points=parts.adapter_points,
        memory=None if pool is None else pool.memory,
        scratch=None if pool is None else pool.scratch,
    )
    runner.warm_up(min(16, parts.limits.max_model_len))
    return runner


def build_device_runner(parts: Parts, machinery: Machinery) -> DeviceRunner:
    """A DeviceRunner, its kernels compiled and its CUDA graphs captured. A pool of unstated size takes what measured
    steps and graphs leave of the device's memory. Raises CheckpointError if that is nothing."""
    config, model, limits = parts.config, parts.model, parts.limits
    step = config.step_limits
    with torch.inference_mode():
        parts.operators.choose_products(machinery.timer)
        prompt_attention = _choose_prompt_attention(parts, machinery)
    if parts.device.type == "cuda":
        torch._C._cuda_clearCublasWorkspaces()  # of the products that were measured; no graph has been captured yet
    make = partial(
        DeviceRunner,
        model,
        machinery.kernels,
        kernels_name=machinery.name,
        limits=limits,
        max_running=step.max_running,
        max_batched_tokens=step.max_batched_tokens,
        dtype=parts.dtype,
        device=parts.device,
        operators=parts.operators,
        max_in_flight=1 if config.overlap is False else 2,
        max_graph_rows=config.max_graph_batch,
        shares_prefixes=config.enable_prefix_caching and not config.batch_invariant,
        is_batch_invariant=config.batch_invariant,
        prompt_attention=prompt_attention,
        adapter_points=parts.adapter_points,
    )
    has_graphs = model.is_capturable and not config.enforce_eager
    room_bytes = None
    if config.kv_cache_bytes is None and parts.pool is None:
        smallest = smallest_pool(design_of(config, model, limits, parts.kv_dtype))
        profile = profile_memory(
            machinery.gauge,
            partial(make, plan=smallest),
            num_tokens=step.max_batched_tokens,
            recorder=machinery.make_recorder() if has_graphs else None,
        )
        room_bytes = profile.room_bytes(config.device_memory_share)
    memory = None
    if parts.pool is None:
        plan = plan_pool(config, model, limits, parts.kv_dtype, parts.device, parts.group, room_bytes)
    else:
        plan, memory = parts.pool.plan, parts.pool.memory
    runner = make(plan=plan, mirror=mirror_plan(plan, config.swap_bytes), memory=memory)
    if machinery.warms_up:
        runner.warm_up(step.max_batched_tokens)
    if has_graphs:
        runner.capture(machinery.make_recorder())
    elif not config.enforce_eager:
        _log.info("no CUDA graphs: this model decides on the host what its steps compute")
    return runner


def _libraries(parts: Parts) -> tuple[PromptLibrary, ...]:
    if parts.config.prompt_attention == "triton" or parts.config.batch_invariant:
        return ()
    return open_libraries(parts.device, torch.cuda.get_device_capability(parts.device))


def _choose_prompt_attention(parts: Parts, machinery: Machinery) -> PromptAttention:
    """The libraries that attend the prompts of the model's layers."""
    model, limits, step = parts.model, parts.limits, parts.config.step_limits
    plan = smallest_pool(design_of(parts.config, model, limits, parts.kv_dtype))
    choice = PromptChoice(
        machinery.kernels,
        machinery.timer,
        StepBounds(step.max_running, step.max_batched_tokens, limits.max_model_len),
        parts.device,
        has_other_pages=any(kind.spec.dtype != plan.types[0].spec.dtype for kind in plan.types),
    )
    cases = prompt_cases(plan, model.attention_shapes, parts.dtype)
    return choice.choose(parts.config.prompt_attention, cases, machinery.libraries)


def _why_not_triton(parts: Parts) -> str | None:
    """Why Triton kernels cannot serve the model; None: they can."""
    if find_spec("triton") is None:
        return "triton is not installed"
    design = design_of(parts.config, parts.model, parts.limits, parts.kv_dtype)
    return unsupported_reason(smallest_pool(design), parts.model.attention_shapes)
