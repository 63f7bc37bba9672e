"""The worker as a process: what the supervisor, an orchestrator and a person at a terminal see of it."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from model_worker.config import WorkerSettings
from model_worker.main import main
from model_worker.server import listen
from tests.ports import reserved_port

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def plain_logging() -> Iterator[None]:
    """`main` sets up the logs of its process: give pytest's own back."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


class Process:
    """A worker process with its log."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self.url = f"http://127.0.0.1:{port}"
        self.lines: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.lines.append(line.decode().rstrip())

    @property
    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.lines if line.startswith("{")]

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, signal_number: int) -> None:
        self._process.send_signal(signal_number)

    async def wait(self, timeout_s: float = 60) -> int:
        async with asyncio.timeout(timeout_s):
            code = await self._process.wait()
            await self._reading
        return code

    async def until_ready(self, timeout_s: float = 60) -> None:
        async with asyncio.timeout(timeout_s), httpx.AsyncClient(trust_env=False) as client:
            while self._process.returncode is None:
                with contextlib.suppress(httpx.TransportError):
                    if (await client.get(f"{self.url}/ready")).status_code == 200:
                        return
                await asyncio.sleep(0.02)
        raise AssertionError(f"the worker ended: {self.lines}")

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self.wait()


@asynccontextmanager
async def worker_process(*flags: str, **environment: str) -> AsyncIterator[Process]:
    with reserved_port() as port:
        async with listening_process(port, flags, environment) as process:
            yield process


@asynccontextmanager
async def listening_process(port: int, flags: tuple[str, ...], environment: dict[str, str]) -> AsyncIterator[Process]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AGON_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "model_worker",
        "--port",
        str(port),
        *flags,
        cwd=ROOT,
        env={**inherited, **environment},
        stderr=asyncio.subprocess.PIPE,
    )
    running = Process(process, port)
    try:
        yield running
    finally:
        await running.kill()


ECHO = ("--engine", "echo", "--model", "echo")


def chat(num_tokens: int, **options: Any) -> dict[str, Any]:
    message = {"role": "user", "content": "a word"}
    return {"model": "echo", "messages": [message], "ignore_eos": True, "max_tokens": num_tokens, **options}


async def test_running_answers_finish_after_sigterm_and_new_ones_are_refused() -> None:
    async with (
        worker_process(*ECHO, "--echo-tokens-per-s", "20") as worker,
        httpx.AsyncClient(base_url=worker.url, timeout=30, trust_env=False) as client,
    ):
        await worker.until_ready()
        running = asyncio.create_task(client.post("/v1/chat/completions", json=chat(60)))
        while 'running{model_name="echo"} 1.0' not in (await client.get("/metrics")).text:
            await asyncio.sleep(0.01)
        worker.send(signal.SIGTERM)
        while (ready := await client.get("/ready")).status_code == 200:
            await asyncio.sleep(0.005)
        assert ready.json() == {"state": "draining"}
        refused = await client.post("/v1/chat/completions", json=chat(1))
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        answer = (await running).json()
        assert answer["usage"]["completion_tokens"] == 60
        assert await worker.wait() == 0
    assert {"draining", "stopped"} <= set(worker.events)


async def test_answers_that_outlive_the_drain_end_in_a_typed_failure() -> None:
    flags = ("--echo-tokens-per-s", "10", "--drain-s", "0.3")
    async with (
        worker_process(*ECHO, *flags) as worker,
        httpx.AsyncClient(base_url=worker.url, timeout=30, trust_env=False) as client,
    ):
        await worker.until_ready()
        async with client.stream("POST", "/v1/chat/completions", json=chat(1000, stream=True)) as response:
            lines = response.aiter_lines()
            await anext(lines)
            worker.send(signal.SIGTERM)
            rest = [line async for line in lines if line.startswith("data:")]
        assert json.loads(rest[-1].removeprefix("data: "))["error"]["code"] == "shutting_down"
        assert await worker.wait() == 0


def test_taken_port_is_one_clear_line(capsys: pytest.CaptureFixture[str], plain_logging: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main([*ECHO, "--port", str(port)]) == 5
    assert capsys.readouterr().err == f"model_worker: cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_small_writes_do_not_wait_for_an_acknowledgement() -> None:
    settings = WorkerSettings(model="echo", engine="echo", port=0)
    with listen(settings) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_settings_that_cannot_work_are_one_clear_line(capsys: pytest.CaptureFixture[str], plain_logging: None) -> None:
    assert main(["--engine", "echo", "--model", "bad name"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_echo_worker_needs_no_torch() -> None:
    code = (
        "import sys, model_worker.server, model_worker.engines;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'engine.core', 'engine.async_engine', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


async def test_secrets_prompts_and_answers_are_in_no_log() -> None:
    environment = {"AGON_API_KEYS": "canary-key", "AGON_WORKER_TOKEN": "canary-token"}
    async with (
        worker_process(*ECHO, **environment) as worker,
        httpx.AsyncClient(base_url=worker.url, timeout=30, trust_env=False) as client,
    ):
        await worker.until_ready()
        body = {"model": "echo", "messages": [{"role": "user", "content": "canary-prompt"}]}
        for key in ("canary-key", "canary-wrong"):
            await client.post("/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {key}"})
        await client.post("/internal/generate", content=b"canary-garbage")
        metrics = (await client.get("/metrics")).text
        worker.send(signal.SIGINT)
        assert await worker.wait() == 0
    assert "answer_ended" in worker.events
    assert all({"ts", "level", "event", "logger"} <= set(json.loads(line)) for line in worker.lines)
    assert "canary" not in metrics + "\n".join(worker.lines)
    assert "127.0.0.1" not in "".join(line for line in worker.lines if "listening" not in line)


async def test_damaged_checkpoint_is_one_clear_line_and_exit_code_3(tmp_path: Path) -> None:
    for file in (ROOT / "demo_models" / "finch").iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    environment = {"AGON_WORKER_TOKEN": "t", "AGON_CONTROLLER_URLS": "http://127.0.0.1:9"}
    async with worker_process("--model", f"broken={tmp_path}", "--threads", "1", **environment) as worker:
        assert await worker.wait(120) == 3
    assert worker.events[0] == "listening"
    assert not {"registered", "controller_unreachable"} & set(worker.events)
    spoken = [line for line in worker.lines if not line.startswith("{")]
    assert len(spoken) == 1, worker.lines
    assert spoken[0].startswith(f"model_worker: cannot load {tmp_path}: ")


FINCH = ROOT / "demo_models" / "finch"
OWN_PROCESS = ("--model", f"finch={FINCH}", "--threads", "1", "--engine-process", "on")


def engine_process_of(worker: Process) -> int:
    """The only child of a worker."""
    tasks = Path(f"/proc/{worker.pid}/task").iterdir()
    (child,) = {int(pid) for task in tasks for pid in (task / "children").read_text().split()}
    return child


@asynccontextmanager
async def own_process() -> AsyncIterator[tuple[Process, httpx.AsyncClient]]:
    """A worker whose engine has a process of its own, and a client of it."""
    async with (
        worker_process(*OWN_PROCESS) as worker,
        httpx.AsyncClient(base_url=worker.url, timeout=60, trust_env=False) as client,
    ):
        await worker.until_ready()
        yield worker, client


async def test_a_killed_engine_process_ends_answers_and_worker_as_a_dead_engine_does() -> None:
    async with own_process() as (worker, client):
        child = engine_process_of(worker)
        body = chat(900, stream=True) | {"model": "finch"}
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            lines = response.aiter_lines()
            await anext(lines)
            os.kill(child, signal.SIGKILL)
            rest = [line async for line in lines if line.startswith("data:")]
        assert json.loads(rest[-1].removeprefix("data: "))["error"]["code"] == "worker_failed"
        assert await worker.wait() == 4
        assert not Path(f"/proc/{child}").exists()
    assert "the engine's process was killed by SIGKILL" in worker.events
    assert [line for line in worker.lines if not line.startswith("{")] == [
        "model_worker: the engine has stopped after an unexpected error"
    ]


async def test_a_signal_to_all_processes_lets_running_answers_finish() -> None:
    async with own_process() as (worker, client):
        child = engine_process_of(worker)
        body = chat(300, stream=True) | {"model": "finch"}
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            lines = response.aiter_lines()
            await anext(lines)
            for signal_number in (signal.SIGTERM, signal.SIGINT):
                os.kill(child, signal_number)
            worker.send(signal.SIGTERM)
            rest = [line async for line in lines if line.startswith("data:")]
        assert rest[-1] == "data: [DONE]"
        assert '"finish_reason":"length"' in "".join(rest)
        assert await worker.wait() == 0
        assert not Path(f"/proc/{child}").exists()
    lines_of_engine = [json.loads(line) for line in worker.lines if json.loads(line)["logger"].startswith("engine.")]
    assert any(line["event"].startswith("loaded ") for line in lines_of_engine)


async def test_a_checkpoint_that_the_engine_process_refuses_is_one_clear_line_and_exit_code_3(tmp_path: Path) -> None:
    for file in FINCH.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text('{"architectures": ["Unheard"], "model_type": "unheard"}')
    async with worker_process(*OWN_PROCESS[2:], "--model", f"broken={tmp_path}") as worker:
        assert await worker.wait(120) == 3
    spoken = [line for line in worker.lines if not line.startswith("{")]
    assert len(spoken) == 1, worker.lines
    assert spoken[0].startswith(f"model_worker: cannot load {tmp_path}: ")
