"""Chooses and loads the engine of a model: another server for a hosted one, else what the settings name.

Only Agon's own engine imports torch.
"""

import asyncio
import gc
import importlib
import os

from engine.idle_threads import bounded_spinning
from model_worker.config import WorkerSettings
from model_worker.echo_engine import EchoEngine
from model_worker.engine_protocol import Description, Engine


def follow_if_told_to(settings: WorkerSettings) -> bool:
    """If torchrun has started this process as rank 1 or above: follow rank 0 until it ends, then return True.

    The process then exits. Otherwise return False at once. Raises BadCheckpoint, LoadFailed or EngineBroken.
    """
    if settings.engine != "paged" or settings.engine_config.tensor_parallel == 1:
        return False
    from model_worker.paged_loading import follow_leader_if_told_to

    gc.enable()  # __main__.py turned it off for the imports
    return follow_leader_if_told_to(settings)


async def load_engine(settings: WorkerSettings) -> Engine:
    """The engine, ready to serve. Raises BadCheckpoint, LoadFailed or BadSettings.

    Does not block the event loop, so probes are answered meanwhile.
    """
    if settings.is_hosted:
        from model_worker.remote import RemoteEngine

        return RemoteEngine.from_settings(settings)
    match settings.engine:
        case "echo":
            return _echo(settings)
        case "paged":
            # In a thread: importing torch takes seconds.
            await asyncio.to_thread(importlib.import_module, "model_worker.paged_loading")
            from model_worker.paged_loading import load_paged

            return await load_paged(settings)


async def describe_model(settings: WorkerSettings) -> Description:
    """What is known of the only model of `settings` without loading it. Raises StartError."""
    if settings.is_hosted:
        from model_worker.remote import RemoteEngine

        remote = RemoteEngine.from_settings(settings)
        await remote.shutdown()
        return Description(remote.card, remote.capacity, weights_bytes=0, pool_bytes=0)
    match settings.engine:
        case "paged":
            await asyncio.to_thread(importlib.import_module, "model_worker.paged_loading")
            from model_worker.paged_loading import describe_paged

            return await asyncio.to_thread(describe_paged, settings)
        case "echo":
            engine = _echo(settings)
            return Description(engine.card, engine.capacity, weights_bytes=0, pool_bytes=engine.load().kv_bytes_total)


def _echo(settings: WorkerSettings) -> EchoEngine:
    limits = settings.engine_config
    return EchoEngine(
        model_name=settings.model_name,
        tokens_per_s=settings.echo_tokens_per_s,
        num_tokens=settings.echo_num_tokens,
        fail_after=settings.echo_fail_after,
        context_length=limits.max_model_len or 4096,
        max_running=limits.step_limits.max_running,
        max_queued=limits.max_queued_requests,
        default_max_tokens=settings.default_max_tokens,
    )


def bound_spinning(settings: WorkerSettings) -> None:
    """Bound how long idle threads of Agon's own engine spin, where they leave no core free (engine/idle_threads.py).

    Call it in every process of the worker before torch is imported, because OpenMP reads its environment at that
    moment. A variable that is already set keeps its value.
    """
    num_cores = os.cpu_count() or 1
    if settings.engine == "paged":
        num_threads = (settings.engine_config.num_threads or num_cores) * max(1, len(settings.model))
        for name, value in bounded_spinning(num_threads, num_cores).items():
            os.environ.setdefault(name, value)
