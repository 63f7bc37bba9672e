"""The page pool of a model: its size, its division into pages, and the zeroed memory itself."""

import logging
from dataclasses import dataclass

import numpy as np
import torch

from engine.config import EngineConfig, ModelLimits
from engine.kernels.cpu.scratch import Scratch
from engine.memory.admission import AdmissionRule
from engine.memory.planning.designs import Design
from engine.memory.planning.planner import choose_design, pool_bytes_for, pool_of
from engine.memory.planning.pyramid import with_budgets
from engine.memory.spec import NUM_NULL_LARGE_PAGES, LayerSpec, PoolPlan
from engine.models.causal_lm import CausalLM
from engine.models.stored_layers import stored_layers
from engine.parallel.group import Group
from engine.runner.free_memory import free_memory_bytes

_log = logging.getLogger(__name__)

_POOL_ALIGNMENT = 64  #: bytes: a cache line, and the widest vector load
#: Share of free memory that a page pool of unstated size takes for EagerRunner, which measures nothing beforehand. On a
#: CPU the memory is shared with all other processes.
_POOL_SHARE = {"cpu": 0.25, "cuda": 0.85}


@dataclass(frozen=True, slots=True)
class GivenPool:
    """A pool that several models share, as one of them sees it."""

    plan: PoolPlan
    memory: torch.Tensor  #: [plan.pool_bytes] uint8; the null page is zeros
    scratch: Scratch  #: for steps on CPU


def layers_of(config: EngineConfig, model: CausalLM, limits: ModelLimits, kv_dtype: torch.dtype) -> list[LayerSpec]:
    """What the model's layers store, under the configuration's budget."""
    layers = stored_layers(model, kv_dtype, limits.max_model_len, config.checkpoint_tokens)
    if config.kv_budget is not None:
        layers = with_budgets(layers, config.kv_budget, config.page_tokens, limits.max_model_len)
    return layers


def design_of(config: EngineConfig, model: CausalLM, limits: ModelLimits, kv_dtype: torch.dtype) -> Design:
    """How the model's pool is divided into pages, whatever its size."""
    return choose_design(layers_of(config, model, limits, kv_dtype), page_tokens=config.page_tokens)


def smallest_pool(design: Design) -> PoolPlan:
    """A pool of one large page beside the null page: for measuring what steps take."""
    return pool_of(design, (NUM_NULL_LARGE_PAGES + 1) * design.large_page_bytes)


def plan_pool(
    config: EngineConfig,
    model: CausalLM,
    limits: ModelLimits,
    kv_dtype: torch.dtype,
    device: torch.device,
    group: Group,
    room_bytes: int | None = None,
) -> PoolPlan:
    """The pool of config.kv_cache_bytes; or, if that is None, of what the memory allows and all running requests can
    use.

    Equal in all processes of the group, since one scheduler allocates the pages of all of them. room_bytes: what a pool
    of unstated size may take here; None: a share of the free memory.
    """
    design = design_of(config, model, limits, kv_dtype)
    pool_bytes = config.kv_cache_bytes
    if pool_bytes is None:
        enough = pool_bytes_for(
            design.types,
            num_tokens=limits.max_model_len,
            num_sequences=config.step_limits.max_running,
            max_step_tokens=config.step_limits.max_batched_tokens,
        )
        if room_bytes is None:
            room_bytes = share_of_free_memory(device)
            if device.type == "cpu":
                room_bytes //= group.place.local_size
        pool_bytes = min(enough, group.minimum(room_bytes))
    plan = pool_of(design, pool_bytes)
    rule = AdmissionRule(plan, config.step_limits.max_batched_tokens)
    _log.info(
        "page pool of %.1f MiB in pages of %s, keys and values in %s: one request of up to %d tokens, or %d of the "
        "full context of %d",
        plan.pool_bytes / 2**20,
        ", ".join(f"{len(kind.layer_ids)} {kind.name} x {kind.page_tokens} tokens" for kind in plan.types),
        str(kv_dtype).removeprefix("torch."),
        rule.max_tokens(limits.max_model_len),
        rule.max_sequences(limits.max_model_len),
        limits.max_model_len,
    )
    return plan


def share_of_free_memory(device: torch.device) -> int:
    """Bytes for a pool of unstated size where nothing was measured beforehand."""
    return int(free_memory_bytes(device) * _POOL_SHARE[device.type])


def zeroed_pool(num_bytes: int, device: torch.device) -> torch.Tensor:
    """num_bytes of zeros, so that no page reads as NaN unless a NaN was written to it.

    On CPU the system hands out zeroed memory when it is first touched; torch.zeros would touch all of it at once.
    """
    if device.type != "cpu":
        return torch.zeros(num_bytes, dtype=torch.uint8, device=device)
    memory = np.zeros(num_bytes + _POOL_ALIGNMENT, dtype=np.uint8)
    first = -memory.ctypes.data % _POOL_ALIGNMENT
    return torch.from_numpy(memory[first : first + num_bytes])
