"""Loads Agon's own engines: describes a checkpoint, loads it, and says why that failed. The only module of the worker
that loads torch; it is imported once a model needs it."""

import asyncio

import torch

from engine.async_engine import AsyncEngine
from engine.config import EngineConfig
from engine.errors import (
    CheckpointError,
    CheckpointUnavailable,
    EngineDead,
    InvalidRequest,
    NotDivisible,
    OperatorsUnavailable,
    RankLost,
)
from engine.hosting import EngineHost
from engine.json_files import read_object
from engine.loader import find_model_folder
from engine.model_info import ModelInfo
from engine.runner import choose_device, describe_checkpoint, follow_if_told_to, share_of_free_memory
from engine.stats import EngineStats
from model_worker.config import WorkerSettings
from model_worker.engine_protocol import Description
from model_worker.errors import BadCheckpoint, EngineBroken, LoadFailed, StartError, one_line
from model_worker.paged_engine import PagedEngine
from model_worker.translate import SamplingDefaults
from wire.workers import Capacity, ModelCard

#: Loading failed for a reason that may pass, or for one that lies in the model or its settings.
_MAY_PASS = (CheckpointUnavailable, MemoryError, torch.OutOfMemoryError, OSError)
_LOAD_ERRORS = (*_MAY_PASS, CheckpointError, NotDivisible, OperatorsUnavailable, ValueError)


def follow_leader_if_told_to(settings: WorkerSettings) -> bool:
    """If torchrun has started this process as rank 1 or above: follow rank 0 until it ends, then return True. Raises
    BadCheckpoint, LoadFailed or EngineBroken."""
    try:
        return follow_if_told_to(settings.engine_config)
    except RankLost as error:
        raise EngineBroken(one_line(error)) from None
    except _LOAD_ERRORS as error:
        raise _start_error(settings, error) from None


def describe_paged(settings: WorkerSettings) -> Description:
    """What is known of the model without loading it. Reads files. Raises BadCheckpoint or LoadFailed."""
    try:
        found = describe_checkpoint(settings.engine_config)
    except _LOAD_ERRORS as error:
        raise _start_error(settings, error) from None
    capacity = Capacity(
        max_running=found.config.step_limits.max_running,
        max_queued=found.config.max_queued_requests,
        kv_tokens=0,
    )
    card = _card(settings, found.info, found.info.context_length)
    return Description(card, capacity, found.weights_bytes, found.pool_bytes)


async def load_paged(settings: WorkerSettings, host: EngineHost | None = None) -> PagedEngine:
    """Load the model, in `host`, in a thread or in a process of its own. Raises BadCheckpoint or LoadFailed."""
    try:
        config = settings.engine_config
        defaults = await asyncio.to_thread(_sampling_defaults, config.model)
        if host is not None:
            engine = await host.add(settings.model_name, config)
        elif await asyncio.to_thread(has_own_process, settings):  # the driver of a GPU takes its time to answer
            engine = await AsyncEngine.in_own_process(config, "model_worker.engine_process")
        else:
            engine = await AsyncEngine.from_config(config)
    except (*_LOAD_ERRORS, RankLost, EngineDead, InvalidRequest) as error:
        raise _start_error(settings, error) from None
    info, stats = engine.info, engine.stats()
    return PagedEngine(
        engine,
        card=_card(settings, info, engine.limits.max_model_len),
        capacity=Capacity(
            max_running=engine.step_limits.max_running,
            max_queued=config.max_queued_requests,
            kv_tokens=_pool_tokens(stats, config.page_tokens),
        ),
        defaults=defaults,
        default_max_tokens=settings.default_max_tokens,
        chat_template_kwargs=settings.chat_template_kwargs,
        tool_format=settings.tool_format,
    )


async def wake_hosted(host: EngineHost, settings: WorkerSettings) -> None:
    """Wake the model of `settings`. Raises BadCheckpoint or LoadFailed; it sleeps on then."""
    try:
        await host.wake(settings.model_name)
    except (*_LOAD_ERRORS, EngineDead) as error:
        raise _start_error(settings, error) from None


def most_pool_bytes(config: EngineConfig) -> int:
    """The most that a page pool of unstated size takes of the memory that is free now."""
    return share_of_free_memory(choose_device(config.device))


def has_own_process(settings: WorkerSettings) -> bool:
    """Whether the engine gets a process of its own: on a GPU every microsecond of the interpreter that the HTTP side
    takes delays a step; on a CPU the operators compute without the interpreter, and a process only costs memory."""
    if settings.engine_process == "auto":
        return settings.engine_config.device != "cpu" and torch.cuda.is_available()
    return settings.engine_process == "on"


def _card(settings: WorkerSettings, info: ModelInfo, context_length: int) -> ModelCard:
    return ModelCard(
        name=settings.model_name,
        revision=info.revision,
        architecture=info.architecture,
        num_parameters=info.num_parameters,
        dtype=info.precision,
        context_length=context_length,
        runs_on="cpu" if info.device == "cpu" else "gpu",
        chat="template" if info.has_chat_template else "plain" if settings.plain_chat else "none",
    )


def _sampling_defaults(model: str) -> SamplingDefaults:
    file = find_model_folder(model) / "generation_config.json"
    return SamplingDefaults.from_generation_config(read_object(file)) if file.is_file() else SamplingDefaults()


def _start_error(settings: WorkerSettings, error: Exception) -> StartError:
    kind = LoadFailed if isinstance(error, (*_MAY_PASS, RankLost, EngineDead)) else BadCheckpoint
    return kind(f"cannot load {settings.model_path}: {one_line(error)}")


def _pool_tokens(stats: EngineStats, page_tokens: int) -> int:
    """Tokens that fit into an empty pool when every layer type keeps all of them."""
    if not stats.types:
        return 0
    pool_bytes = stats.types[0].num_in_empty_large * stats.types[0].small_page_bytes
    return pool_bytes * page_tokens // sum(entry.small_page_bytes for entry in stats.types)
