"""A worker without an engine: speaks the internal protocol over real HTTP, registers and sends heartbeats.

Its tokens are a function of their position, so that a lost or doubled token shows: token i has the id 1000 + i and the
text "wi ". Fields set what it does wrong, and when.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx

from tests.controller.support.running import running_app
from wire.answers import ToolCallDelta
from wire.chat import FinishReason, Usage
from wire.embeddings import EmbedReply, EmbedRequest, packed
from wire.errors import ApiError, ErrorCode
from wire.ids import WorkerId
from wire.releases import RELEASE
from wire.served_models import ServedModel, ServedModels
from wire.sse import SseEvent, encode
from wire.workers import (
    Capacity,
    ChatForm,
    GenerateDelta,
    GenerateFailed,
    GenerateFinished,
    GenerateRequest,
    Load,
    ModelCard,
    PoolPicture,
    PoolView,
    Processor,
    RegisterRequest,
    TokensReply,
    WorkerState,
)

PICTURE = PoolPicture(layer_types=("main.full",), cells=((0, 50, 25), (None, 0, 0)))


def thoughts(num_tokens: int) -> str:
    """The text of so many tokens of thoughts."""
    return "".join(f"t{i} " for i in range(num_tokens))


def words(num_tokens: int, first: int = 0) -> str:
    """The text of tokens `first` to `num_tokens` - 1."""
    return "".join(f"w{i} " for i in range(first, num_tokens))


class FakeWorker:
    """An ASGI app that answers as a worker, with the task that keeps it registered."""

    def __init__(
        self, model: str, *, num_tokens: int = 5, delay_s: float = 0.0, max_running: int = 64, kv_bytes: int = 64
    ) -> None:
        self.model = model
        self.num_tokens = num_tokens
        self.delay_s = delay_s
        self.first_delay_s = 0.0
        self.max_running = max_running
        self.kv_bytes = kv_bytes
        self.context_length = 4096
        self.can_resume = True
        self.runs_on: Processor | None = None
        self.version: str | None = RELEASE
        self.chat: ChatForm = "template"
        self.state: WorkerState = "ready"
        self.wake_s = 0.0  #: what it reports of its last waking
        self.may_wake = asyncio.Event()  #: while it is cleared it does not wake
        self.may_wake.set()
        self.num_wakes = 0
        self.wake_refusal: ApiError | None = None
        self.refusal: ApiError | None = None  #: answered instead of a stream
        self.break_at: int | None = None  #: token number before which the stream breaks off
        self.fail_at: int | None = None  #: token number before which it sends `failed`
        self.hang_at: int | None = None  #: token number before which it stops sending
        self.may_speak = asyncio.Event()  #: while it is cleared no token is sent
        self.may_speak.set()
        self.failure = ApiError(ErrorCode.INTERNAL_ERROR, f"{model} at 10.1.2.3 ran out of pages")
        self.reply: str | None = None  #: one token of this text instead of words
        self.call: tuple[ToolCallDelta, ...] = ()  #: a tool call: a piece in each of the first tokens
        self.num_thoughts = 0  #: tokens that are thoughts: "t0 " and so on, before the words
        self.thought: str | None = None  #: instead of these
        self.has_token_ids = True
        self.pool = PoolView(
            kv_bytes_used=1, kv_bytes_evictable=0, kv_bytes_total=64, pages=(), picture=PICTURE
        ).model_dump_json()
        self.pool_delay_s = 0.0
        self.num_pool_looks = 0
        self.requests: list[GenerateRequest] = []
        self.embed_requests: list[EmbedRequest] = []
        self.clients: set[tuple[str, int]] = set()  #: client addresses of their connections
        self.num_open = 0
        self.num_aborted = 0
        self.token = ""
        self.url = ""
        self.worker_id = WorkerId("unregistered")
        self.epoch = 0
        self.boot_id = f"boot-{id(self)}"
        self.is_beating = True

    def heal(self) -> None:
        """Do nothing wrong from now on."""
        self.refusal = self.break_at = self.fail_at = self.hang_at = None

    async def app(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """The ASGI app."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        assert (b"authorization", f"Bearer {self.token}".encode()) in scope["headers"]
        if scope["path"] == "/internal/pool":
            await self._show_pool(send)
            return
        if scope["path"] == "/internal/tokens":
            reply = TokensReply(token_ids=(5, 6), text="ab", pieces=("a", "b"), context_length=4096)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": reply.model_dump_json().encode()})
            return
        if scope["path"] == "/internal/models/wake":
            await self._wake(send)
            return
        if scope["path"].startswith("/internal/models"):
            await self._serve_models(scope, send)
            return
        assert scope["path"] in ("/internal/generate", "/internal/embed"), scope["path"]
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message.get("more_body"):
                break
        is_generate = scope["path"] == "/internal/generate"
        request: Any = (GenerateRequest if is_generate else EmbedRequest).model_validate_json(body)
        (self.requests if is_generate else self.embed_requests).append(request)
        self.clients.add(tuple(scope["client"]))
        if request.epoch != self.epoch:
            await _send_json(send, ApiError(ErrorCode.STALE_EPOCH, "not me"))
            return
        if self.refusal is not None:
            await _send_json(send, self.refusal)
            return
        if is_generate:
            await self._stream(request, receive, send)
        else:
            await self._embed(request, send)

    async def _embed(self, request: EmbedRequest, send: Any) -> None:
        """The vector of an input is its length and 1."""
        vectors = tuple(packed((float(len(one)), 1.0)) for one in request.inputs)
        reply = EmbedReply(vectors=vectors, prompt_tokens=sum(map(len, request.inputs)))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": reply.model_dump_json().encode()})

    async def _serve_models(self, scope: dict[str, Any], send: Any) -> None:
        row = ServedModel(
            name=self.model,
            source=f"/models/{self.model}",
            residence="resident" if self.state == "ready" else "asleep",
            memory_bytes=0,
            wanted_bytes=0,
            running=0,
            waiting=0,
            idle_s=0.0,
        )
        view = ServedModels(models=(row,), memory_bytes=0) if scope["method"] == "GET" else row
        status = 202 if scope["path"] == "/internal/models" and scope["method"] == "POST" else 200
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": view.model_dump_json().encode()})

    async def _wake(self, send: Any) -> None:
        self.num_wakes += 1
        await self.may_wake.wait()
        if self.wake_refusal is not None:
            await _send_json(send, self.wake_refusal)
            return
        self.state = "ready"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def _show_pool(self, send: Any) -> None:
        self.num_pool_looks += 1
        await asyncio.sleep(self.pool_delay_s)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": self.pool.encode()})

    async def _stream(self, request: GenerateRequest, receive: Any, send: Any) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", b"text/event-stream")],
            }
        )
        self.num_open += 1
        gone = asyncio.create_task(_disconnected(receive))
        pump = asyncio.create_task(self._pump(request, send))
        try:
            await asyncio.wait((gone, pump), return_when=asyncio.FIRST_COMPLETED)
            if not pump.done():
                self.num_aborted += 1
        finally:
            self.num_open -= 1
            pump.cancel()
            gone.cancel()
            await asyncio.gather(gone, pump, return_exceptions=True)
        if pump.done() and not pump.cancelled() and pump.exception() is not None:
            raise ConnectionAbortedError  # the server drops the connection without an end

    async def _pump(self, request: GenerateRequest, send: Any) -> None:
        async for event in self._events(request):
            await send({"type": "http.response.body", "body": encode(event), "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _events(self, request: GenerateRequest) -> AsyncGenerator[SseEvent, None]:
        start = len(request.resume_token_ids)
        assert request.resume_token_ids == tuple(1000 + i for i in range(start))
        limit = min(self.num_tokens, request.sampling.max_tokens or self.num_tokens)
        texts = [self.reply] if self.reply is not None else [words(i + 1, i) for i in range(limit)]
        texts = [""] * self.num_thoughts + texts
        await asyncio.sleep(self.first_delay_s)
        num_samples, seq = request.num_samples, 0
        for i in range(start, len(texts)):
            if self.break_at == i:
                raise RuntimeError("broken")
            if self.fail_at == i:
                yield _event("failed", GenerateFailed(error=self.failure.body().error))
                return
            if self.hang_at == i:
                await asyncio.sleep(3600)
            await self.may_speak.wait()
            thoughts = "" if texts[i] else self.thought or f"t{i} "
            token_ids = (1000 + i,) if self.has_token_ids else ()
            for sample in range(num_samples):
                delta = GenerateDelta(
                    seq=seq,
                    text=texts[i],
                    token_ids=token_ids,
                    thoughts=thoughts,
                    tool_calls=self.call[i : i + 1],
                    index=sample,
                    finish_reason="stop" if num_samples > 1 and i == len(texts) - 1 else None,
                )
                yield _event("delta", delta)
                seq += 1
            await asyncio.sleep(self.delay_s)
        usage = Usage.counted(7, num_samples * len(texts), num_thoughts=self.num_thoughts)
        whole: FinishReason = "tool_calls" if self.call else "stop"
        reason: FinishReason = "length" if limit < self.num_tokens else whole
        yield _event("finished", GenerateFinished(finish_reason=reason, usage=usage))

    def card(self) -> ModelCard:
        """The model card of its registration."""
        return ModelCard(
            name=self.model,
            revision=f"rev-{self.model}",
            architecture="fake",
            num_parameters=1,
            dtype="float32",
            context_length=self.context_length,
            can_resume=self.can_resume,
            runs_on=self.runs_on,
            chat=self.chat,
        )

    def registration(self) -> RegisterRequest:
        """The registration of this start of the worker."""
        return RegisterRequest(
            boot_id=self.boot_id,
            url=self.url,
            card=self.card(),
            capacity=Capacity(max_running=self.max_running, max_queued=0, kv_tokens=10_000),
            state=self.state,
            version=self.version,
        )

    @contextlib.asynccontextmanager
    async def running(self, controller_url: str, token: str) -> AsyncGenerator["FakeWorker", None]:
        """Serves the worker, registered, until the block ends."""
        self.token = token
        async with (
            running_app(self.app) as self.url,
            httpx.AsyncClient(
                base_url=controller_url, headers={"Authorization": f"Bearer {token}"}, verify=False, trust_env=False
            ) as client,
        ):
            await self._register(client)
            beating = asyncio.create_task(self._beat(client))
            try:
                yield self
            finally:
                beating.cancel()
                await asyncio.gather(beating, return_exceptions=True)

    async def _register(self, client: httpx.AsyncClient) -> None:
        response = await client.post("/internal/workers", json=self.registration().model_dump(mode="json"))
        response.raise_for_status()
        self.worker_id, self.epoch = WorkerId(response.json()["worker_id"]), response.json()["epoch"]

    async def _beat(self, client: httpx.AsyncClient) -> None:
        while True:
            await asyncio.sleep(0.2)
            if not self.is_beating:
                continue
            load = Load(running=self.num_open, kv_bytes_total=self.kv_bytes, wake_s=self.wake_s)
            beat = {"epoch": self.epoch, "state": self.state, "load": load.model_dump()}
            with contextlib.suppress(httpx.HTTPError):
                response = await client.post(f"/internal/workers/{self.worker_id}/heartbeat", json=beat)
                if self.is_beating and response.status_code == 200 and not response.json()["known"]:
                    await self._register(client)


def _event(name: str, event: Any) -> SseEvent:
    return SseEvent(event.model_dump_json(), name)


async def _send_json(send: Any, error: ApiError) -> None:
    body = json.dumps(error.body().model_dump()).encode()
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _disconnected(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _lifespan(receive: Any, send: Any) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
