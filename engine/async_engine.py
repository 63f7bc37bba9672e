"""The engine for a server: one thread owns the core, all other code talks to it by a queue.

The thread loads the model, steps while there is work, sleeps while there is none, and closes the runner when it ends.
Callers run in event loops. Each request has a small buffer, in which deltas that have not been fetched are merged, so
that a slow consumer costs no more memory than its own output. Knows no HTTP.
"""

import asyncio
import logging
import queue
import threading
import uuid
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from engine.config import EngineConfig, ModelLimits, SamplingParams, StepLimits
from engine.core import EngineCore, LoadedEngine, load_engine
from engine.errors import EngineDead, InvalidRequest
from engine.memory.ledger import PoolCell
from engine.request import RequestDelta, merge_deltas
from engine.stats import RATE_WINDOW_S, EngineStats

if TYPE_CHECKING:
    from engine.runner import ModelInfo
    from engine.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

#: Most unmerged deltas of a sample; merging each delta at once would copy a long unread output again and again.
_MAX_UNMERGED = 64


class RequestStream(AsyncIterator[RequestDelta]):
    """The deltas of one request; ends after the last sample has finished.

    A consumer that leaves early aborts the request within one engine step and frees its pages: by `aclose()` (or `async
    with`), by cancelling the task that waits in it, or by dropping the last reference. A stream has one consumer, in
    the event loop that made it.
    """

    def __init__(
        self, request_id: str, num_samples: int, loop: asyncio.AbstractEventLoop, abort: Callable[[str], None]
    ) -> None:
        self.request_id = request_id
        self._loop = loop
        self._ready = asyncio.Event()
        self._abort = abort
        self._lock = threading.Lock()  # guards what follows: the engine thread fills, the event loop empties
        self._pending: dict[int, list[RequestDelta]] = {}  # by sample
        self._num_open = num_samples
        self._error: EngineDead | None = None
        self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RequestDelta:
        while True:
            with self._lock:
                if self._pending:
                    delta = merge_deltas(self._pending.pop(next(iter(self._pending))))
                    self._num_open -= delta.finish_reason is not None
                    self._is_over = self._num_open == 0
                    return delta
                if self._is_over:
                    raise StopAsyncIteration
                if self._error is not None:
                    self._is_over = True
                    raise self._error
                self._ready.clear()
            try:
                await self._ready.wait()
            except asyncio.CancelledError:
                self._leave()
                raise

    async def aclose(self) -> None:
        """Abort the request if it still runs; its pages are free before the engine's next step."""
        self._leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leave()

    def __del__(self) -> None:
        self._leave()

    def _leave(self) -> None:
        with self._lock:
            was_over, self._is_over = self._is_over, True
            self._pending.clear()
        if not was_over:
            self._ready.set()
            self._abort(self.request_id)

    def put(self, delta: RequestDelta) -> None:
        """Engine thread only: add a delta to the buffer. The consumer is woken by `wake`."""
        with self._lock:
            if not self._is_over:
                waiting = self._pending.setdefault(delta.index, [])
                waiting.append(delta)
                if len(waiting) == _MAX_UNMERGED:
                    waiting[:] = [merge_deltas(waiting)]

    def fail(self, error: EngineDead) -> None:
        """Engine thread only: end the stream with an error after what it already holds."""
        with self._lock:
            self._error = error

    @staticmethod
    def wake(streams: Iterable["RequestStream"]) -> None:
        """Engine thread only: one call into each event loop wakes all its consumers."""
        by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Event]] = {}
        for stream in streams:
            by_loop.setdefault(stream._loop, []).append(stream._ready)
        for loop, events in by_loop.items():
            try:
                loop.call_soon_threadsafe(_set_all, events)
            except RuntimeError:  # that loop is closed; its streams abort their requests when their last reference goes
                logger.warning("an event loop was closed with %d open streams", len(events))


def _set_all(events: list[asyncio.Event]) -> None:
    for event in events:
        event.set()


@dataclass(frozen=True, slots=True)
class _Add:
    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    resume_token_ids: tuple[int, ...]
    cache_salt: bytes


@dataclass(frozen=True, slots=True)
class _Abort:
    request_id: str


@dataclass(frozen=True, slots=True)
class _Picture:
    """Look at the page pool between two steps."""

    max_cells: int
    answer: "Future[tuple[PoolCell, ...]]"


@dataclass(frozen=True, slots=True)
class _Drain:
    """End the thread when there is nothing left to do."""


@dataclass(frozen=True, slots=True)
class _Stop:
    """End the thread now; what still runs is aborted."""


_Command = _Add | _Abort | _Picture | _Drain | _Stop


class AsyncEngine:
    """A running engine. Made by `await AsyncEngine.from_config(config)`, ended by `await engine.shutdown()`.

    `generate`, `abort` and `picture` may be called from any event loop of the process, `stats` and `is_alive` from any
    thread.
    """

    def __init__(self, load: Callable[[], LoadedEngine]) -> None:
        """Start the thread, which runs `load` and then serves. Use from_config or start, which wait until it serves."""
        self._inbox: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards _streams and _refusal
        self._streams: dict[str, weakref.ref[RequestStream]] = {}
        self._refusal: EngineDead | None = None  # why generate refuses: dead, or shutting down
        self._is_draining = False  # engine thread only
        self._loaded: Future[LoadedEngine] = Future()
        self._ended: Future[None] = Future()
        self._stats = EngineStats()
        self._thread = threading.Thread(target=self._run, args=(load,), name="engine", daemon=True)
        self._thread.start()

    @classmethod
    async def from_config(cls, config: EngineConfig) -> Self:
        """Load a model in the engine thread, without blocking the event loop, and return when it can serve."""
        return await cls.start(lambda: load_engine(config))

    @classmethod
    async def start(cls, load: Callable[[], LoadedEngine]) -> Self:
        """As from_config, with a core that the caller composes; `load` runs in the engine thread."""
        engine = cls(load)
        await asyncio.wrap_future(engine._loaded)
        return engine

    def generate(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams,
        *,
        request_id: str | None = None,
        resume_token_ids: Sequence[int] = (),
        cache_salt: bytes = b"",
    ) -> RequestStream:
        """Submit a request and return the stream of its deltas. Call it inside an event loop.

        Raises before any work: InvalidRequest (or ContextTooLong), QueueFull, EngineDead. `resume_token_ids` are
        output tokens that the request already has from another replica: they count as output, their text is not sent
        again. Requests share cached prefixes only with requests of the same salt.
        """
        request_id = request_id if request_id is not None else uuid.uuid4().hex
        loop = asyncio.get_running_loop()
        core = self._loaded.result(timeout=0).core
        prompt, resume = tuple(prompt_token_ids), tuple(resume_token_ids)
        core.admission.check_request(prompt, params, resume)
        with self._lock:
            if self._refusal is not None:
                raise self._refusal
            if request_id in self._streams:
                raise InvalidRequest(f"request id {request_id!r} is in use", param="request_id")
            core.admission.reserve_place(len(prompt) + len(resume))
            stream = RequestStream(request_id, params.n, loop, self.abort)
            self._streams[request_id] = weakref.ref(stream)
            # Inside the lock: a thread that dies now has either seen the stream or refused the request.
            self._inbox.put(_Add(request_id, prompt, params, resume, cache_salt))
        return stream

    def abort(self, request_id: str) -> None:
        """End a request within one step, waiting or running; its open samples finish with "abort".

        Unknown and finished ids are ignored: an abort may cross the finish.
        """
        self._inbox.put(_Abort(request_id))

    def stats(self) -> EngineStats:
        """Counters as of the end of the last step."""
        return self._stats

    async def picture(self, max_cells: int = 256) -> tuple[PoolCell, ...]:
        """The page pool in address order, between two steps. Raises EngineDead after the engine has stopped.

        Each call costs the engine thread O(large pages): a server that shows it to many clients should call it once.
        """
        answer: Future[tuple[PoolCell, ...]] = Future()
        with self._lock:
            if self._refusal is not None:
                raise self._refusal
            self._inbox.put(_Picture(max_cells, answer))
        return await asyncio.wrap_future(answer)

    @property
    def is_alive(self) -> bool:
        """Whether new requests are served. False after an error in the engine thread, once shutdown has begun, and once
        another process of the model has ended, even before a step has failed on it."""
        if self._refusal is not None or self._ended.done():
            return False
        return not self._loaded.done() or self._loaded.result().is_alive()

    @property
    def tokenizer(self) -> "Tokenizer":
        """The model's tokenizer; safe from any thread. Raises InvalidRequest where it has none."""
        return self._loaded.result(timeout=0).text_tokenizer

    @property
    def info(self) -> "ModelInfo":
        """Architecture, parameters, dtypes and operators of the loaded model."""
        return self._loaded.result(timeout=0).info

    @property
    def limits(self) -> ModelLimits:
        """Limits of one request; max_model_len is the model's context or, if smaller, what the page pool holds."""
        return self._loaded.result(timeout=0).core.limits

    @property
    def step_limits(self) -> StepLimits:
        """What fits into one step."""
        return self._loaded.result(timeout=0).core.step_limits

    async def shutdown(self, drain_s: float = 0.0) -> None:
        """Refuse new requests, let running ones finish for up to drain_s seconds, abort the rest, end the thread."""
        with self._lock:
            if self._refusal is None:
                self._refusal = EngineDead("the engine is shutting down")
        if drain_s > 0:
            self._inbox.put(_Drain())
            await asyncio.wait([asyncio.wrap_future(self._ended)], timeout=drain_s)
        self._inbox.put(_Stop())
        await asyncio.wrap_future(self._ended)

    # The engine thread.

    def _run(self, load: Callable[[], LoadedEngine]) -> None:
        try:
            loaded = load()
        except BaseException as error:
            self._refusal = EngineDead("the engine failed to start")
            self._ended.set_result(None)
            self._loaded.set_exception(error)
            return
        core = loaded.core
        self._stats = core.stats()
        self._loaded.set_result(loaded)
        try:
            self._serve(core)
        except Exception as error:
            logger.exception("the engine thread has died")
            self._die(error)
        finally:
            try:
                core.close()
            except Exception:  # e.g. a failed device; callers that await the end must not wait for ever
                logger.exception("the engine could not be closed in order")
            self._refuse_the_rest()
            self._ended.set_result(None)

    def _serve(self, core: EngineCore) -> None:
        while self._take_commands(core):
            self._step(core)
        core.abort_all()
        while not core.is_idle:  # also steps in flight
            self._step(core)

    def _step(self, core: EngineCore) -> None:
        deltas = core.step()
        self._stats = core.stats()  # before the deltas: a consumer that has seen one sees its step counted
        self._deliver(core, deltas)

    def _take_commands(self, core: EngineCore) -> bool:
        """Execute queued commands, sleeping while there is no work; false when the thread shall end."""
        if core.is_idle:
            if self._is_draining:
                return False
            core.check_idle()
            if not self._apply(core, self._sleep(core)):
                return False
        while True:
            try:
                command = self._inbox.get_nowait()
            except queue.Empty:
                return True
            if not self._apply(core, command):
                return False

    def _sleep(self, core: EngineCore) -> _Command:
        """Block until there is a command. After one rate window without any, publish that tokens_per_s is 0."""
        try:
            return self._inbox.get(timeout=RATE_WINDOW_S)
        except queue.Empty:
            self._stats = core.stats()
            return self._inbox.get()

    def _apply(self, core: EngineCore, command: _Command) -> bool:
        match command:
            case _Add():
                core.submit_reserved(
                    command.request_id,
                    command.prompt_token_ids,
                    command.params,
                    resume_token_ids=command.resume_token_ids,
                    cache_salt=command.cache_salt,
                )
            case _Abort(request_id):
                core.abort(request_id)
            case _Picture(max_cells, answer):
                if answer.set_running_or_notify_cancel():  # else the caller has been cancelled
                    answer.set_result(core.picture(max_cells))
            case _Drain():
                self._is_draining = True
            case _Stop():
                return False
        return True

    def _deliver(self, core: EngineCore, deltas: Sequence[RequestDelta]) -> None:
        touched: dict[str, RequestStream | None] = {}
        for delta in deltas:
            request_id = delta.request_id
            if request_id not in touched:
                touched[request_id] = self._streams[request_id]()
            stream = touched[request_id]
            if stream is not None:
                stream.put(delta)
        with self._lock:
            for request_id in touched:
                if not core.is_open(request_id):
                    del self._streams[request_id]
        RequestStream.wake(stream for stream in touched.values() if stream is not None)

    def _refuse_the_rest(self) -> None:
        """Fail the commands that no thread will execute any more. `generate` and `picture` refuse new ones by now."""
        while True:
            try:
                command = self._inbox.get_nowait()
            except queue.Empty:
                return
            if isinstance(command, _Picture) and command.answer.set_running_or_notify_cancel():
                assert self._refusal is not None
                command.answer.set_exception(self._refusal)

    def _die(self, cause: Exception) -> None:
        error = EngineDead(f"the engine has stopped after an error: {cause!r}")
        with self._lock:
            self._refusal = error
            references, self._streams = list(self._streams.values()), {}
        streams = [stream for reference in references if (stream := reference()) is not None]
        for stream in streams:
            stream.fail(error)
        RequestStream.wake(streams)
