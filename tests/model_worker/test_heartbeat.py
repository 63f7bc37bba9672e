"""The worker's side of registration, against a small controller that keeps its register in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from model_worker.app import create_app
from model_worker.config import WorkerSettings
from model_worker.echo_engine import EchoEngine
from model_worker.heartbeat import Heartbeat, controller_client
from model_worker.models import Models
from model_worker.worker import Worker
from wire.chat import SamplingOptions
from wire.errors import ApiError, ErrorCode
from wire.ids import WorkerId
from wire.workers import GenerateRequest, HeartbeatReply, HeartbeatRequest, Load, RegisterReply, RegisterRequest

TOKEN = "worker-token-for-tests"


class Register:
    """What controllers share: the truth about one worker."""

    def __init__(self) -> None:
        self.boot_id: str | None = None
        self.epoch = 0
        self.registrations: list[RegisterRequest] = []
        self.beats: list[HeartbeatRequest] = []
        self.is_failing = False
        self.num_failures = 0
        self.left = False

    def forget(self) -> None:
        self.boot_id = None


def controller_over(register: Register) -> FastAPI:
    app = FastAPI()

    def check(request: Request) -> Response | None:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return JSONResponse(ApiError(ErrorCode.UNAUTHORIZED, "no").body().model_dump(), status_code=401)
        if register.is_failing:
            register.num_failures += 1
            return Response("<html>not even JSON</html>", status_code=503)
        return None

    @app.post("/internal/workers", response_model=None)
    async def add(request: Request) -> Response | RegisterReply:
        if (refusal := check(request)) is not None:
            return refusal
        body = RegisterRequest.model_validate_json(await request.body())
        register.registrations.append(body)
        if body.boot_id != register.boot_id:
            register.boot_id, register.epoch = body.boot_id, register.epoch + 1
        return RegisterReply(worker_id=WorkerId("w-1"), epoch=register.epoch, heartbeat_s=0.05, lease_s=1.0)

    @app.post("/internal/workers/{worker_id}/heartbeat", response_model=None)
    async def beat(request: Request, worker_id: str) -> Response | HeartbeatReply:
        if (refusal := check(request)) is not None:
            return refusal
        body = HeartbeatRequest.model_validate_json(await request.body())
        if register.boot_id is not None and body.epoch != register.epoch:
            error = ApiError(ErrorCode.STALE_EPOCH, "fenced off")
            return JSONResponse(error.body().model_dump(), status_code=error.status)
        register.beats.append(body)
        return HeartbeatReply(known=register.boot_id is not None)

    @app.delete("/internal/workers/{worker_id}")
    async def leave(worker_id: str, epoch: int) -> None:
        register.left = epoch == register.epoch

    return app


Beating = Callable[..., Any]


@pytest.fixture
def beating(make_settings: Callable[..., WorkerSettings]) -> Beating:
    @asynccontextmanager
    async def start(
        *urls: str, engine: EchoEngine | None = None, **given: Any
    ) -> AsyncIterator[tuple[Worker, Heartbeat]]:
        worker = Worker(make_settings(controller_urls=urls, **given), engine or EchoEngine(tokens_per_s=100))
        async with controller_client(TOKEN) as client:
            heartbeat = Heartbeat(worker, client, url="http://127.0.0.1:1", boot_id="boot-0001")
            heartbeat.start()
            try:
                yield worker, heartbeat
            finally:
                await heartbeat.stop()

    return start


async def test_worker_registers_and_beats(serve_app: Any, beating: Beating, eventually: Any) -> None:
    register = Register()
    async with serve_app(controller_over(register)) as url, beating(url) as (worker, _):
        await eventually(lambda: len(register.beats) >= 3)
        assert worker.epochs == {1}
    assert len(register.registrations) == 1
    assert register.registrations[0].card.name == "echo"
    assert register.registrations[0].url == "http://127.0.0.1:1"
    assert {beat.state for beat in register.beats} == {"ready"}


async def test_heartbeats_carry_the_load(serve_app: Any, beating: Beating, eventually: Any, chat_body: Any) -> None:
    register = Register()
    engine = EchoEngine(tokens_per_s=20)
    async with serve_app(controller_over(register)) as url, beating(url, engine=engine) as (worker, _):
        answer = worker.answer(
            GenerateRequest(request_id="r", prompt="a b c", sampling=SamplingOptions(ignore_eos=True, max_tokens=50))
        )
        await anext(answer)
        await anext(answer)
        await eventually(lambda: any(beat.load.running == 1 and beat.load.kv_bytes_used for beat in register.beats))
        await answer.aclose()


async def test_every_controller_is_told(serve_app: Any, beating: Beating, eventually: Any) -> None:
    register = Register()
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(serve_app(controller_over(register))) for _ in range(2)]
        worker, _ = await stack.enter_async_context(beating(*urls))
        await eventually(lambda: len(register.registrations) == 2 and len(register.beats) >= 2)
        assert worker.epochs == {1}


async def test_one_dead_controller_does_not_disturb_the_other(
    serve_app: Any, beating: Beating, eventually: Any
) -> None:
    register = Register()
    async with serve_app(controller_over(register)) as url, beating("http://127.0.0.1:9", url) as (worker, _):
        await eventually(lambda: len(register.beats) >= 3)
        assert worker.epochs == {1}


async def test_forgotten_worker_registers_again_at_once(serve_app: Any, beating: Beating, eventually: Any) -> None:
    register = Register()
    async with serve_app(controller_over(register)) as url, beating(url) as (worker, _):
        await eventually(lambda: len(register.beats) >= 1)
        register.forget()
        await eventually(lambda: worker.epochs == {2})
        assert len(register.registrations) == 2


async def test_fenced_off_worker_gets_a_new_epoch(serve_app: Any, beating: Beating, eventually: Any) -> None:
    register = Register()
    async with serve_app(controller_over(register)) as url, beating(url) as (worker, _):
        await eventually(lambda: worker.epochs == {1})
        register.boot_id, register.epoch = "another-boot", 7
        await eventually(lambda: worker.epochs == {8})


async def test_controller_that_comes_back_is_found_again(serve_app: Any, beating: Beating, eventually: Any) -> None:
    register = Register()
    async with serve_app(controller_over(register)) as url, beating(url) as (worker, _):
        await eventually(lambda: len(register.beats) >= 1)
        register.is_failing = True
        await eventually(lambda: register.num_failures >= 2)
        register.forget()
        register.is_failing = False
        await eventually(lambda: worker.epochs == {2})


class _LostOnce(httpx.AsyncBaseTransport):
    """Raises once what uvloop raises for a connection that was reset, and httpx does not map."""

    def __init__(self, lost_at: int) -> None:
        self._inner = httpx.AsyncHTTPTransport()
        self._lost_at = lost_at
        self._num_requests = 0
        self.may_go_on = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._num_requests += 1
        if self._num_requests == self._lost_at:
            raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")
        if self._num_requests > self._lost_at:
            await self.may_go_on.wait()
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


async def test_an_error_that_nothing_maps_does_not_end_a_link(
    serve_app: Any, make_settings: Any, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, the link goes on, and until it does the worker is not ready."""
    register = Register()
    lost = _LostOnce(3)
    async with serve_app(controller_over(register)) as url:
        worker = Worker(make_settings(controller_urls=(url,)), EchoEngine(tokens_per_s=100))
        client = controller_client(TOKEN, lost)
        heartbeat = Heartbeat(worker, client, url="http://127.0.0.1:1", boot_id="boot-0001")
        heartbeat.start()
        await eventually(lambda: not worker.is_ready)
        lost.may_go_on.set()
        num_beats = len(register.beats)
        await eventually(lambda: worker.is_ready and len(register.beats) > num_beats + 1)
        await heartbeat.stop()
        await client.aclose()
    assert "link_failed" in caplog.messages


async def test_controller_that_is_not_there_yet_is_waited_for(
    serve_app: Any, beating: Beating, eventually: Any
) -> None:
    register = Register()
    register.is_failing = True
    async with serve_app(controller_over(register)) as url, beating(url) as (worker, _):
        await eventually(lambda: register.num_failures >= 2)
        assert worker.epochs == frozenset()
        register.is_failing = False
        await eventually(lambda: worker.epochs == {1})


async def test_draining_is_announced_at_once_and_leaving_too(serve_app: Any, beating: Beating, eventually: Any) -> None:
    register = Register()
    async with serve_app(controller_over(register)) as url:
        async with beating(url) as (worker, heartbeat):
            await eventually(lambda: len(register.beats) >= 1)
            worker.begin_draining()
            heartbeat.announce()
            await eventually(lambda: register.beats[-1].state == "draining")
        assert register.left
        assert worker.epochs == frozenset()


async def test_stalled_engine_falls_silent(serve_app: Any, beating: Beating, eventually: Any) -> None:
    class Watched(EchoEngine):
        num_looks = 0

        def load(self) -> Load:
            self.num_looks += 1
            return super().load()

    register = Register()
    engine = Watched(tokens_per_s=0.01)
    async with (
        serve_app(controller_over(register)) as url,
        beating(url, engine=engine, stalled_step_s=0.2) as (worker, _),
    ):
        answer = worker.answer(GenerateRequest(request_id="r", prompt="a"))
        await anext(answer)
        await eventually(lambda: not worker.is_healthy())
        num_looks = engine.num_looks
        await eventually(lambda: engine.num_looks >= num_looks + 2)  # a beat that was on its way has arrived
        num_beats = len(register.beats)
        await eventually(lambda: engine.num_looks >= num_looks + 4)
        assert len(register.beats) == num_beats
        await answer.aclose()


async def test_wrong_token_is_tried_again_and_never_logged(
    serve_app: Any, make_settings: Any, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="model_worker")
    register = Register()
    async with serve_app(controller_over(register)) as url:
        worker = Worker(make_settings(controller_urls=(url,)), EchoEngine())
        client = controller_client("a-wrong-token")
        heartbeat = Heartbeat(worker, client, url="http://127.0.0.1:1", boot_id="boot-0001")
        heartbeat.start()
        await eventually(lambda: len(caplog.records) > 0)
        await heartbeat.stop()
        await client.aclose()
    assert register.registrations == []
    [first] = caplog.records[:1]
    assert (first.message, first.levelname) == ("registration_refused", "WARNING")
    assert "refuses the worker token" in first.fields["reason"]  # type: ignore[attr-defined]
    assert "a-wrong-token" not in str([vars(record) for record in caplog.records])


async def test_a_refused_registration_is_a_warning_and_a_worker_that_is_not_ready(
    serve_app: Any, make_settings: Any, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="model_worker")
    sentence = "Workers on '10.0.0.5' are not allowed: add it to AGON_WORKER_HOSTS of the controller."
    is_refusing = True
    inner = controller_over(Register())
    outer = FastAPI()

    @outer.middleware("http")
    async def refuse(request: Request, proceed: Any) -> Response:
        if not is_refusing:
            passed: Response = await proceed(request)
            return passed
        return JSONResponse(ApiError(ErrorCode.FORBIDDEN, sentence).body().model_dump(), status_code=403)

    outer.mount("/", inner)
    async with serve_app(outer) as url, controller_client(TOKEN) as client:
        settings = make_settings(controller_urls=(url,))

        def link(worker: Worker) -> Heartbeat:
            return Heartbeat(worker, client, url="http://10.0.0.5:8200", boot_id="boot-0001")

        models = Models(settings, EchoEngine(), link=link)
        app = create_app(settings, models=models)
        await models.start()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as probe:
            await eventually(lambda: any(record.levelname == "WARNING" for record in caplog.records))
            [warning] = [record for record in caplog.records if record.levelname == "WARNING"][:1]
            assert (warning.message, sentence in warning.fields["reason"]) == ("registration_refused", True)  # type: ignore[attr-defined]
            ready = await probe.get("/ready")
            assert (ready.status_code, sentence in ready.json()["reason"]) == (503, True)
            is_refusing = False
            await eventually(lambda: models.is_ready)
            assert (await probe.get("/ready")).json() == {"state": "ready"}
            is_refusing = True  # a controller that is lost later does not make it unready: streams go on
            await asyncio.sleep(0.2)
            assert models.is_ready
        await models.shutdown()
