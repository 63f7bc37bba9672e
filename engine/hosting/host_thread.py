"""The thread of a host: carries out what callers ask of its models, and steps them while there is work.

Owns every model, core, runner and page of the host. Callers put calls into a queue; weights are read in threads of
their own, so that a model that comes or wakes delays the others only while its runner is made. An error of one model
ends that model alone.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from engine.backend import Abort, Add, AddAdapter, Command, Drain, Picture, RemoveAdapter, Serving, Stop
from engine.constraints.compiler import GrammarCompiler
from engine.engine_loop import carry_out
from engine.errors import EngineDead, NoRoomInPool
from engine.hosting.host_core import Bounds, HostCore, check_floors
from engine.hosting.hosted_model import HostedModel, layers_of, read_weights
from engine.hosting.pool_report import ModelMemory, PoolReport
from engine.loaded_engine import engine_around
from engine.memory.admission import AdmissionRule
from engine.memory.pool_share import PoolShare
from engine.runner.free_heap import return_free_heap
from engine.stats import RATE_WINDOW_S

if TYPE_CHECKING:
    from engine.hosting.shared_pool import Cut
    from engine.runner.load import LoadedModel, ReadModel

_log = logging.getLogger(__name__)

_Call = Callable[[], None]
_T = TypeVar("_T")


class HostThread:
    """The thread and its queue. Public methods are for any thread and never block; `put` takes no lock."""

    def __init__(self, pool_bytes: int | None, num_threads: int | None) -> None:
        """Starts the thread. pool_bytes, num_threads: as EngineHost."""
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self.put = self._calls.put
        self._pool_bytes = pool_bytes
        self._num_threads = num_threads
        self._models: dict[str, HostedModel] = {}
        self._is_over = False
        threading.Thread(target=self._run, name="engine", daemon=True).start()

    # For any thread

    def start(self, model: HostedModel) -> None:
        """Load a model; its receiver is told how that went."""
        self.put(partial(self._start, model))

    def tell(self, model: HostedModel, command: Command) -> None:
        """A command of the model's AsyncEngine."""
        self.put(partial(self._carry_out, model, command))

    def sleep(self, model: HostedModel) -> "Future[None]":
        """See EngineHost.sleep."""
        return self._ask(partial(self._sleep, model))

    def wake(self, model: HostedModel) -> "Future[None]":
        """See EngineHost.wake."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        self.put(partial(self._wake, model, future))
        return future

    def report(self) -> "Future[PoolReport]":
        """See EngineHost.report."""
        return self._ask(self._report)

    def check_integrity(self) -> "Future[None]":
        """See EngineHost.check_integrity."""
        return self._ask(self._check_integrity)

    def end(self) -> "Future[None]":
        """End the thread; all models have ended."""
        return self._ask(self._end)

    def _ask(self, call: Callable[[], _T]) -> "Future[_T]":
        future: Future[_T] = Future()
        future.set_running_or_notify_cancel()

        def answer() -> None:
            try:
                future.set_result(call())
            except Exception as error:
                future.set_exception(error)

        self.put(answer)
        return future

    # The thread

    def _run(self) -> None:
        import torch

        from engine.hosting.shared_pool import SharedPool

        self._set_num_threads = torch.set_num_threads
        self._team = self._num_threads or torch.get_num_threads()
        self._set_num_threads(self._team)
        self._threads_now = self._team
        self._pool = SharedPool(self._pool_bytes)
        self._host = HostCore(self._on_turn)
        while not self._is_over:
            self._take_calls()
            if self._host.has_work:
                self._step()
            self._end_models()

    def _on_turn(self, name: str) -> None:
        """One team of threads computes for all models; small models use one of it."""
        num_threads = self._models[name].num_threads
        if num_threads != self._threads_now:
            self._set_num_threads(num_threads)
            self._threads_now = num_threads

    def _take_calls(self) -> None:
        if not self._host.has_work:
            self._check_idle()
            started_s = time.monotonic()
            self._wait()
            self._host.note_rest(time.monotonic() - started_s)
        while not self._is_over:
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                return
            call()

    def _wait(self) -> None:
        """Block until there is a call. After one rate window without any, publish that tokens_per_s is 0."""
        try:
            call = self._calls.get(timeout=RATE_WINDOW_S)
        except queue.Empty:
            for model in self._models.values():
                if model.core is not None:
                    model.receiver.on_step((), model.core.stats())
            call = self._calls.get()
        call()

    def _step(self) -> None:
        try:
            self._host.step()
        except Exception as error:
            self._publish()
            self._fail(self._models[self._host.stepping], error)
        self._publish()

    def _publish(self) -> None:
        for name, deltas in self._host.take_gained().items():
            model = self._models[name]
            with self._charged_to(model):
                model.receiver.on_step(deltas, model.running_core.stats())

    @contextmanager
    def _charged_to(self, model: HostedModel) -> Iterator[None]:
        """The time of what is done inside is this model's."""
        started_s = time.monotonic()
        yield
        self._host.charge(model.name, time.monotonic() - started_s)

    def _check_idle(self) -> None:
        for model in list(self._models.values()):
            if model.state != "resident" or not model.running_core.is_idle:
                continue
            try:
                model.running_core.check_idle()
            except AssertionError as error:
                self._fail(model, error)

    # Commands of one model

    def _carry_out(self, model: HostedModel, command: Command) -> None:
        if self._models.get(model.name) is not model:
            return  # it has ended
        match command:
            case Drain():
                model.is_draining = True
            case Stop():
                model.is_stopping = True
                if model.core is not None:
                    model.core.abort_all()
            case Add() | Abort() | Picture() | AddAdapter() | RemoveAdapter():
                assert model.core is not None, "only a model that has been loaded has an AsyncEngine"
                with self._charged_to(model):
                    carry_out(command, model.core, model.receiver)

    def _end_models(self) -> None:
        """End models that shall end and have nothing left to do. One that is being loaded ends afterwards."""
        for model in list(self._models.values()):
            if (model.is_draining or model.is_stopping) and model.core is not None and model.core.is_idle:
                self._close(model)

    def _close(self, model: HostedModel) -> None:
        core = model.running_core
        try:
            if model.state == "resident":
                core.release_runner()
            core.close()
        except Exception:  # e.g. a failed device; callers that await the end must not wait for ever
            _log.exception("%s could not be closed in order", model.name)
            core.abandon()
        self._forget(model)
        model.receiver.on_end()

    def _fail(self, model: HostedModel, error: Exception) -> None:
        """This model ends after an error; its pages go back to the pool."""
        _log.error("model %s has stopped after an error", model.name, exc_info=error)
        model.receiver.on_death(EngineDead(f"the engine has stopped after an error: {error!r}"))
        core = model.running_core
        core.abandon()
        try:
            core.close()
        except Exception:
            _log.exception("%s could not be closed in order", model.name)
        self._forget(model)
        model.receiver.on_end()

    def _forget(self, model: HostedModel) -> None:
        del self._models[model.name]
        if model.core is not None:
            self._host.remove(model.name)
        self._pool.leave(model.name)
        model.state, model.core, model.read, model.tokenizer = "ending", None, None, None
        model.settle(EngineDead("the model has been removed"))

    # Models come and go

    def _start(self, model: HostedModel) -> None:
        assert model.name not in self._models
        self._models[model.name] = model
        self._read(model, self._begin)

    def _read(self, model: HostedModel, then: "Callable[[HostedModel, ReadModel], None]") -> None:
        """Read the weights in a thread, and go on in this one."""

        def run() -> None:
            try:
                read, compiler = read_weights(model, self._team)
            except BaseException as error:
                self.put(partial(self._load_failed, model, error))
            else:
                self.put(partial(self._go_on, model, read, compiler, then))

        threading.Thread(target=run, name=f"load-{model.name}", daemon=True).start()

    def _go_on(
        self,
        model: HostedModel,
        read: "ReadModel",
        compiler: GrammarCompiler,
        then: "Callable[[HostedModel, ReadModel], None]",
    ) -> None:
        if self._models.get(model.name) is not model:
            return  # it was stopped while it slept
        model.compiler = compiler
        try:
            then(model, read)
        except BaseException as error:
            self._load_failed(model, error)

    def _load_failed(self, model: HostedModel, error: BaseException) -> None:
        """A new model is gone; one that slept goes on sleeping."""
        if self._models.get(model.name) is not model:
            return
        model.read = None
        if model.core is not None:
            model.state = "asleep"
            model.settle(error)
            return
        self._forget(model)
        model.receiver.on_load_error(error)
        model.receiver.on_end()

    def _begin(self, model: HostedModel, read: "ReadModel") -> None:
        """A new model has its weights: cut the pool for it and serve."""
        model.layers = layers_of(read, model.name)
        loaded = self._with_runner(model, read)
        engine = engine_around(
            loaded,
            compiler=model.compiler,
            share=self._share(model),
            reclaim=self._host.reclaim_for(model.name),
        )
        core = model.core = engine.core
        model.tokenizer = read.tokenizer
        self._host.add(model.name, core, self._bounds(model))
        self._become_resident(model, read)
        limits = (core.admission, core.limits, core.step_limits)
        model.receiver.on_loaded(Serving(*limits, loaded.info, loaded.tokenizer, core.stats(), core.compiler))
        if model.is_stopping:
            core.abort_all()

    def _resume(self, model: HostedModel, read: "ReadModel") -> None:
        """A model that slept has its weights again."""
        loaded = self._with_runner(model, read)
        model.running_core.adapters.use_rack(loaded.adapters)
        model.running_core.use_runner(loaded.runner, self._share(model))
        self._host.set_bounds(model.name, self._bounds(model))
        self._host.note_awake(model.name, True)
        self._become_resident(model, read)
        model.settle()

    def _become_resident(self, model: HostedModel, read: "ReadModel") -> None:
        model.read, model.num_threads, model.state = read, read.num_threads, "resident"
        return_free_heap()

    def _sleep(self, model: HostedModel) -> None:
        if model.state in ("asleep", "waking") or self._models.get(model.name) is not model:
            return
        if model.state != "resident":
            raise EngineDead(f"{model.name} is {model.state}: it cannot sleep")
        self._host.collect_all(model.name)
        self._publish()
        self._take_runner(model)
        model.read, model.state = None, "asleep"
        self._host.note_awake(model.name, False)
        return_free_heap()
        model.receiver.on_step((), model.running_core.stats())

    def _wake(self, model: HostedModel, future: "Future[None]") -> None:
        if self._models.get(model.name) is not model:
            future.set_exception(EngineDead(f"{model.name} has ended"))
            return
        if model.state == "resident":
            future.set_result(None)
            return
        model.waiting.append(future)
        if model.state == "asleep":
            model.state = "waking"
            self._read(model, self._resume)

    def _take_runner(self, model: HostedModel) -> None:
        model.running_core.release_runner()

    # The pool

    def _with_runner(self, model: HostedModel, read: "ReadModel") -> "LoadedModel":
        """The model with a runner over the pool, which is cut anew where its large pages do not suit. Raises
        CheckpointError or NoRoomInPool."""
        from engine.runner.build import build_runner

        parts = read.parts
        cut = self._pool.cut_with(model.name, model.layers, model.config.page_tokens, parts.device)
        self._check_room(model, read, cut)
        moved = [] if self._pool.is_present(cut) else self._residents()
        for other in moved:
            self._host.collect_all(other.name)
        self._publish()
        for other in moved:
            self._take_runner(other)
        self._pool.join(model.name, model.layers, model.config.page_tokens, cut)
        assert self._pool.large_pool is not None
        self._host.use_pool(self._pool.large_pool)
        if moved:
            _log.info("the page pool is cut anew, in large pages of %d bytes", cut.large_page_bytes)
        for other in moved:
            try:
                assert other.read is not None
                runner = build_runner(replace(other.read.parts, pool=self._pool.given(other.name)))
                other.running_core.use_runner(runner, self._share(other))
                self._host.set_bounds(other.name, self._bounds(other))
            except Exception as error:
                self._fail(other, error)
        self._threads_now = -1  # building steps with as many threads as the thread that read the weights
        self._set_num_threads(read.num_threads)
        return read.with_runner(build_runner(replace(parts, pool=self._pool.given(model.name))))

    def _check_room(self, model: HostedModel, read: "ReadModel", cut: "Cut") -> None:
        """Raise NoRoomInPool where a model could not serve what it promised, or floors exceed the pool."""
        bounds = []
        for other in self._models.values():
            if other.name not in cut.designs or (other.core is None and other is not model):
                continue
            plan = self._pool.plan_of(cut, other.name, read.parts.device)
            bounds.append(self._bounds(other, cut.large_page_bytes))
            rule = AdmissionRule(plan, self._step_tokens(other, read), bounds[-1].ceiling)
            if other.core is not None and not other.core.would_fit(rule):
                raise NoRoomInPool(
                    f"{model.name} needs other pages than the pool has, in which {other.name} would not fit"
                )
        try:
            check_floors(bounds, plan.num_usable_large_pages)
        except ValueError as error:
            raise NoRoomInPool(str(error)) from None

    @staticmethod
    def _step_tokens(model: HostedModel, read: "ReadModel") -> int:
        limits = read.parts.config.step_limits if model.core is None else model.core.step_limits
        return limits.max_batched_tokens

    def _residents(self) -> list[HostedModel]:
        return [model for model in self._models.values() if model.state == "resident"]

    def _share(self, model: HostedModel) -> PoolShare:
        assert self._pool.large_pool is not None
        return PoolShare(self._pool.large_pool, self._bounds(model).ceiling)

    def _bounds(self, model: HostedModel, large_page_bytes: int | None = None) -> Bounds:
        size = large_page_bytes or self._pool.large_page_bytes
        ceiling = None if model.ceiling_bytes is None else model.ceiling_bytes // size
        return Bounds(-(-model.floor_bytes // size), ceiling)

    def _report(self) -> PoolReport:
        large_pool = self._pool.large_pool
        large_page_bytes = 0 if large_pool is None else self._pool.large_page_bytes
        return PoolReport.of(self._pool.num_bytes, large_page_bytes, large_pool, self._memory_of_models())

    def _memory_of_models(self) -> tuple[ModelMemory, ...]:
        return tuple(
            ModelMemory.of(model.name, model.state, model.core, self._share_bytes(model))
            for model in self._models.values()
        )

    def _share_bytes(self, model: HostedModel) -> int:
        return 0 if model.core is None else self._host.share_of(model.name) * self._pool.large_page_bytes

    def _check_integrity(self) -> None:
        for model in self._residents():
            model.running_core.check_integrity()

    def _end(self) -> None:
        for model in list(self._models.values()):  # those that are being loaded
            self._load_failed(model, EngineDead("the host has ended"))
        self._is_over = True
