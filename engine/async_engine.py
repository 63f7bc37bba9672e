"""The engine for a server: requests from event loops, answers as streams. A backend computes, in a thread of this
process or in a process of its own; both serve alike.

Each request has a small buffer, in which deltas that have not been fetched are merged, so that a slow consumer costs no
more memory than its own output. Knows no HTTP.
"""

import asyncio
import itertools
import logging
import threading
import uuid
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from engine.adapter_info import AdapterInfo
from engine.backend import Abort, Add, AddAdapter, Backend, Drain, Picture, Receiver, RemoveAdapter, Serving, Stop
from engine.config import EngineConfig, ModelLimits, StepLimits
from engine.engine_process.parent import EngineProcess
from engine.engine_thread import EngineThread
from engine.errors import AdapterError, EngineDead, EngineError, InvalidRequest
from engine.loaded_engine import LoadedEngine, load_engine
from engine.memory.ledger import PoolCell
from engine.request import Embedding, RequestDelta, gather_delta, merge_deltas
from engine.sampling_params import NO_OUTPUT, PoolingParams, SamplingParams
from engine.stats import EngineStats

if TYPE_CHECKING:
    from engine.model_info import ModelInfo
    from engine.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


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
        self._lock = threading.Lock()  # guards what follows: the backend fills, the event loop empties
        self._pending: dict[int, list[RequestDelta]] = {}  # by sample
        self._num_open = num_samples
        self._error: EngineError | None = None
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
        """Backend's thread only: add a delta to the buffer, or the error with which the engine has failed the request.
        The consumer is woken by `wake`."""
        if delta.error:
            self.fail(delta.failure())
            return
        with self._lock:
            if not self._is_over:
                gather_delta(self._pending.setdefault(delta.index, []), delta)

    def fail(self, error: EngineError) -> None:
        """Backend's thread only: end the stream with an error after what it already holds."""
        with self._lock:
            self._error = error

    @staticmethod
    def wake(streams: Iterable["RequestStream"]) -> None:
        """Backend's thread only: one call into each event loop wakes all its consumers."""
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


@dataclass(slots=True)
class _Open:
    """A request that the backend has."""

    stream: "weakref.ref[RequestStream]"
    num_samples: int  #: without their last delta


class AsyncEngine:
    """A running engine. Made by `await AsyncEngine.from_config(config)`, ended by `await engine.shutdown()`.

    `generate`, `abort` and `picture` may be called from any event loop of the process, `stats` and `is_alive` from any
    thread.
    """

    def __init__(self, make_backend: Callable[[Receiver], Backend]) -> None:
        """Begin to load. Use from_config, in_own_process or start, which wait until it serves."""
        self._lock = threading.Lock()  # guards _open, _pictures, _adapters, _adapter_answers and _refusal
        self._open: dict[str, _Open] = {}
        self._pictures: dict[int, Future[tuple[PoolCell, ...]]] = {}  # by ticket
        self._adapters: dict[str, AdapterInfo] = {}  # that take requests
        self._adapter_answers: dict[int, tuple[str, Future[AdapterInfo | None]]] = {}  # name and answer, by ticket
        self._tickets = itertools.count()
        self._refusal: EngineDead | None = None  # why generate refuses: dead, or shutting down
        self._loaded: Future[Serving] = Future()
        self._ended: Future[None] = Future()
        for future in (self._loaded, self._ended):
            future.set_running_or_notify_cancel()  # a caller that is cancelled while it waits cancels only its waiting
        self._stats = EngineStats()
        self._backend = make_backend(self)

    @classmethod
    async def from_config(cls, config: EngineConfig) -> Self:
        """Load a model in a thread, without blocking the event loop, and return when it can serve."""
        return await cls.start(lambda: load_engine(config))

    @classmethod
    async def in_own_process(
        cls, config: EngineConfig, module: str, read_tokenizer: Callable[[EngineConfig], "Tokenizer"] | None = None
    ) -> Self:
        """As from_config, in a process of its own, `python -m MODULE FD`, which calls `serve_parent`: there all work of
        a step is done, so that its time does not depend on what this process does.

        read_tokenizer: reads the tokenizer for this process; None: that of the model. Raises what loading raises, and
        EngineDead if the process ends meanwhile.
        """
        return await cls.over(lambda receiver: EngineProcess(config, module, receiver, read_tokenizer))

    @classmethod
    async def start(cls, load: Callable[[], LoadedEngine]) -> Self:
        """As from_config, with a core that the caller composes; `load` runs in the engine thread."""
        return await cls.over(lambda receiver: EngineThread(load, receiver))

    @classmethod
    async def over(cls, make_backend: Callable[[Receiver], Backend]) -> Self:
        """As from_config, over any backend."""
        engine = cls(make_backend)
        try:
            await asyncio.wrap_future(engine._loaded)
        except asyncio.CancelledError:
            engine._backend.kill()
            raise
        return engine

    def generate(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams,
        *,
        request_id: str | None = None,
        resume_token_ids: Sequence[int] = (),
        cache_salt: bytes = b"",
        adapter: str = "",
    ) -> RequestStream:
        """Submit a request and return the stream of its deltas. Call it inside an event loop.

        Raises before any work: InvalidRequest (or ContextTooLong), QueueFull, EngineDead. `resume_token_ids` are
        output tokens that the request already has from another replica: they count as output, their text is not sent
        again. Requests share cached prefixes only with requests of the same salt and adapter. adapter: the name of a
        loaded one; empty: the base alone.
        """
        add = Add("", tuple(prompt_token_ids), params, tuple(resume_token_ids), cache_salt, adapter=adapter)
        return self._submit(request_id, add)

    async def embed(
        self,
        prompt_token_ids: Sequence[int],
        params: PoolingParams,
        *,
        request_id: str | None = None,
        cache_salt: bytes = b"",
        adapter: str = "",
    ) -> Embedding:
        """One vector of a prompt's final hidden states. A caller that is cancelled aborts the request.

        Raises what `generate` raises, and InvalidRequest for more dimensions than the model's vectors have.
        """
        add = Add("", tuple(prompt_token_ids), NO_OUTPUT, (), cache_salt, params, adapter)
        async with self._submit(request_id, add) as stream:
            return Embedding.of_delta(await anext(stream), params)

    def _submit(self, request_id: str | None, request: Add) -> RequestStream:
        """request: without its id."""
        request_id = request_id if request_id is not None else uuid.uuid4().hex
        loop = asyncio.get_running_loop()
        admission = self._serving.admission
        prompt, resume = request.prompt_token_ids, request.resume_token_ids
        self.check_request(prompt, request.params, resume)
        num_samples = request.params.n
        with self._lock:
            if self._refusal is not None:
                raise self._refusal
            if request.adapter and request.adapter not in self._adapters:
                raise InvalidRequest(f"no adapter {request.adapter!r} is loaded", param="adapter")
            if request_id in self._open:
                raise InvalidRequest(f"request id {request_id!r} is in use", param="request_id")
            admission.reserve_place(len(prompt) + len(resume))
            stream = RequestStream(request_id, num_samples, loop, self.abort)
            self._open[request_id] = _Open(weakref.ref(stream), num_samples)
            # Inside the lock: a backend that dies now has either seen the stream or refused the request.
            self._backend.send(replace(request, request_id=request_id))
        return stream

    def check_request(
        self, prompt_token_ids: tuple[int, ...], params: SamplingParams, resume_token_ids: tuple[int, ...] = ()
    ) -> None:
        """Raise InvalidRequest (or ContextTooLong) for a request that can never be served, or whose constraint or
        thinking budget cannot be. It compiles a new constraint, which may take half a second: call it in a thread
        before `generate`, which checks again and then finds it compiled."""
        self._serving.admission.check_request(prompt_token_ids, params, resume_token_ids)
        self._serving.compiler.check(params, self._serving.limits.max_model_len - len(prompt_token_ids))

    def abort(self, request_id: str) -> None:
        """End a request within one step, waiting or running; its open samples finish with "abort".

        Unknown and finished ids are ignored: an abort may cross the finish.
        """
        self._backend.send(Abort(request_id))

    def stats(self) -> EngineStats:
        """Counters as of the end of the last step."""
        return self._stats

    async def picture(self, max_cells: int = 256) -> tuple[PoolCell, ...]:
        """The page pool in address order, between two steps. Raises EngineDead after the engine has stopped.

        Each call costs the engine's loop O(large pages): a server that shows it to many clients should call it once.
        """
        answer: Future[tuple[PoolCell, ...]] = Future()
        ticket = next(self._tickets)
        with self._lock:
            if self._refusal is not None:
                raise self._refusal
            self._pictures[ticket] = answer
            self._backend.send(Picture(ticket, max_cells))
        return await asyncio.wrap_future(answer)

    async def add_adapter(self, name: str, folder: str) -> AdapterInfo:
        """Load the LoRA adapter in a PEFT folder between two steps, beside running answers; requests name it from now
        on. Raises AdapterError, and EngineDead after the engine has stopped."""
        info = await self._adapter_answer(name, lambda ticket: AddAdapter(ticket, name, folder))
        assert info is not None
        return info

    async def remove_adapter(self, name: str) -> None:
        """Refuse new requests for an adapter, wait until its running ones have ended, and unload it.

        Raises AdapterError for one that is not loaded, and EngineDead after the engine has stopped.
        """
        with self._lock:
            if self._adapters.pop(name, None) is None:
                raise AdapterError(f"no adapter {name!r} is loaded")
        await self._adapter_answer(name, lambda ticket: RemoveAdapter(ticket, name))

    async def _adapter_answer(
        self, name: str, command: Callable[[int], AddAdapter | RemoveAdapter]
    ) -> AdapterInfo | None:
        answer: Future[AdapterInfo | None] = Future()
        ticket = next(self._tickets)
        with self._lock:
            if self._refusal is not None:
                raise self._refusal
            self._adapter_answers[ticket] = name, answer
            self._backend.send(command(ticket))
        return await asyncio.wrap_future(answer)

    @property
    def adapters(self) -> dict[str, AdapterInfo]:
        """The adapters that take requests, by name."""
        with self._lock:
            return dict(self._adapters)

    @property
    def is_alive(self) -> bool:
        """Whether new requests are served. False after an error in the engine, once shutdown has begun, and once a
        process of the model has ended, even before a step has failed on it."""
        if self._refusal is not None or self._ended.done():
            return False
        return not self._loaded.done() or self._backend.is_alive()

    @property
    def tokenizer(self) -> "Tokenizer":
        """The model's tokenizer; safe from any thread. Raises InvalidRequest where it has none."""
        if self._serving.tokenizer is None:
            raise InvalidRequest("this model was loaded without a tokenizer: use token ids")
        return self._serving.tokenizer

    @property
    def info(self) -> "ModelInfo":
        """Architecture, parameters, dtypes and operators of the loaded model."""
        return self._serving.info

    @property
    def limits(self) -> ModelLimits:
        """Limits of one request; max_model_len is the model's context or, if smaller, what the page pool holds."""
        return self._serving.limits

    @property
    def step_limits(self) -> StepLimits:
        """What fits into one step."""
        return self._serving.step_limits

    async def shutdown(self, drain_s: float = 0.0) -> None:
        """Refuse new requests, let running ones finish for up to drain_s seconds, abort the rest, end the backend."""
        with self._lock:
            if self._refusal is None:
                self._refusal = EngineDead("the engine is shutting down")
        if drain_s > 0:
            self._backend.send(Drain())
            await asyncio.wait([asyncio.wrap_future(self._ended)], timeout=drain_s)
        self._backend.send(Stop())
        await asyncio.wrap_future(self._ended)

    @property
    def _serving(self) -> Serving:
        return self._loaded.result(timeout=0)

    # A Receiver: in the backend's thread.

    def on_loaded(self, serving: Serving) -> None:
        """See Receiver."""
        self._stats = serving.stats
        self._loaded.set_result(serving)

    def on_load_error(self, error: BaseException) -> None:
        """See Receiver."""
        self._refusal = EngineDead("the engine failed to start")
        self._loaded.set_exception(error)

    def on_step(self, deltas: Sequence[RequestDelta], stats: EngineStats) -> None:
        """See Receiver."""
        self._stats = stats  # before the deltas: a consumer that has seen one sees its step counted
        touched: dict[str, RequestStream | None] = {}
        finished = []
        for delta in deltas:
            request_id = delta.request_id
            if request_id not in touched:
                touched[request_id] = self._open[request_id].stream()
            stream = touched[request_id]
            if stream is not None:
                stream.put(delta)
            if delta.finish_reason is not None:
                finished.append(request_id)
        if finished:
            with self._lock:
                for request_id in finished:
                    entry = self._open[request_id]
                    entry.num_samples -= 1
                    if entry.num_samples == 0:
                        del self._open[request_id]
        RequestStream.wake(stream for stream in touched.values() if stream is not None)

    def on_picture(self, ticket: int, cells: tuple[PoolCell, ...]) -> None:
        """See Receiver."""
        with self._lock:
            answer = self._pictures.pop(ticket)
        if answer.set_running_or_notify_cancel():  # else the caller has been cancelled
            answer.set_result(cells)

    def on_adapter(self, ticket: int, info: AdapterInfo | None, refusal: str) -> None:
        """See Receiver."""
        with self._lock:
            name, answer = self._adapter_answers.pop(ticket)
            if info is not None:
                self._adapters[name] = info  # even if the caller has been cancelled meanwhile
        if not answer.set_running_or_notify_cancel():  # it has been
            return
        if refusal:
            answer.set_exception(AdapterError(refusal))
        else:
            answer.set_result(info)

    def on_death(self, error: EngineDead) -> None:
        """See Receiver."""
        with self._lock:
            self._refusal = error
            entries, self._open = list(self._open.values()), {}
        streams = [stream for entry in entries if (stream := entry.stream()) is not None]
        for stream in streams:
            stream.fail(error)
        RequestStream.wake(streams)

    def on_end(self) -> None:
        """See Receiver: fail what no backend will answer any more. `generate` and `picture` refuse new calls by now."""
        with self._lock:
            assert self._refusal is not None
            refusal = self._refusal
            unanswered: list[Future[Any]] = [*self._pictures.values()]
            unanswered += [answer for _, answer in self._adapter_answers.values()]
            self._pictures.clear()
            self._adapter_answers.clear()
        for answer in unanswered:
            if answer.set_running_or_notify_cancel():
                answer.set_exception(refusal)
        self._ended.set_result(None)
