"""The arena under test as real processes: store, two echo workers, controller and web UI."""

import contextlib
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.controller.support.running import running_store
from tests.ports import reserved_port

WORKER_TOKEN = "worker-token-for-tests"
ADMIN_TOKEN = "admin-token-for-tests"
MODELS = ("robin", "wren")
TARGETS = ("controller", "worker", "webui")
READY_S = 60.0


class Service:
    """One service in a process of its own, under tests/fuzz/served.py. Its log goes to a file beside the store's."""

    def __init__(self, name: str, module: str, port: int, arguments: list[str], env: dict[str, str], log: Path) -> None:
        self.name = name
        self.port = port
        self.log = log
        own = {key: value for key, value in os.environ.items() if not key.startswith(("AGON_", "REDIS_"))}
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.served", module, *arguments, "--port", str(port)],
                cwd=Path(__file__).parents[2],
                env={**own, **env, "GRADIO_ANALYTICS_ENABLED": "False"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
            )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self) -> dict[str, Any]:
        """What the probe has seen since the last call."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        while not (line := self._process.stdout.readline()).startswith(b'{"stall_ms"'):
            assert line, f"{self.name} has ended: {self.log.read_text()[-2000:]}"
        return dict(json.loads(line))

    def request(
        self, method: str, path: str, body: Any = None, token: str | None = None, timeout_s: float = 30
    ) -> tuple[int, bytes]:
        """One well-formed request and its whole answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        content = None if body is None else json.dumps(body)
        try:
            connection.request(method, path, content, {**headers, "Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def wait_ready(self, path: str = "/ready") -> None:
        give_up_at = time.monotonic() + READY_S
        while True:
            assert self.is_alive, self.log.read_text()[-2000:]
            assert time.monotonic() < give_up_at, f"{self.name} is not ready: {self.log.read_text()[-2000:]}"
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.request("GET", path, timeout_s=5)[0] == 200:
                    return
            time.sleep(0.1)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


@dataclass(frozen=True)
class Arena:
    """The running services, and the ids of battles and chats with one answered turn each."""

    services: dict[str, Service]
    battles: tuple[str, ...]
    chats: tuple[str, ...]

    def put_in_service(self) -> None:
        """Take back what an administrator's request may have closed: models that are off, terms that nobody accepts."""
        controller = self.services["controller"]
        for path, body in (
            ("/arena/admin/terms", {"text": ""}),
            *((f"/arena/admin/models/{model}", {"is_on": True, "weight": 1}) for model in MODELS),
        ):
            status, answer = controller.request("PUT", path, body, ADMIN_TOKEN)
            assert status == 200, answer


@contextlib.contextmanager
def running_arena(folder: Path, *, num_battles: int, num_chats: int) -> Iterator[Arena]:
    """All services until the block ends; `folder` gets their data and logs."""
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(running_store(folder / "store"))
        ports = [stack.enter_context(reserved_port()) for _ in range(4)]
        url = f"http://127.0.0.1:{ports[0]}"
        tokens = {"AGON_WORKER_TOKEN": WORKER_TOKEN, "AGON_ADMIN_TOKEN": ADMIN_TOKEN}
        rates = ("AGON_LOCAL_RATE_PER_MINUTE", "AGON_LOCAL_RATE_BURST", "AGON_VOTE_RATE_PER_MINUTE")
        limits = {**dict.fromkeys((*rates, "AGON_VOTE_RATE_BURST"), "1000000"), "AGON_CHATS_PER_VISITOR": "1000"}
        env = {**tokens, **limits, "AGON_REDIS_URL": store.url, "AGON_API_DOCS": "true"}

        def start(name: str, module: str, port: int, arguments: list[str], env: dict[str, str]) -> Service:
            service = Service(name, module, port, arguments, env, folder / f"{name}.log")
            stack.callback(service.stop)
            return service

        controller = start("controller", "controller", ports[0], [], env)
        echo = ["--engine", "echo", "--echo-num-tokens", "4", "--echo-tokens-per-s", "2000", "--controller", url]
        workers = [
            start(model, "model_worker", port, ["--model", f"{model}=echo", *echo], {"AGON_WORKER_TOKEN": WORKER_TOKEN})
            for model, port in zip(MODELS, ports[1:3], strict=True)
        ]
        webui = start("webui", "webui", ports[3], ["--controller", url], {})
        for service in (controller, *workers, webui):
            service.wait_ready()
        _wait_for_models(controller)
        battles = tuple(_answered_battle(controller) for _ in range(num_battles))
        chats = tuple(_answered_chat(controller) for _ in range(num_chats))
        yield Arena({"controller": controller, "worker": workers[0], "webui": webui}, battles, chats)


def _wait_for_models(controller: Service) -> None:
    give_up_at = time.monotonic() + READY_S
    while len(json.loads(controller.request("GET", "/v1/models")[1])["data"]) < len(MODELS):
        assert time.monotonic() < give_up_at, "the workers do not register"
        time.sleep(0.1)


def _answered_battle(controller: Service) -> str:
    return _answered(controller, "/arena/battles", {"mode": "anonymous"})


def _answered_chat(controller: Service) -> str:
    return _answered(controller, "/arena/chats", {"model": MODELS[0]})


def _answered(controller: Service, path: str, body: object) -> str:
    """The id of a new conversation with one turn."""
    status, answer = controller.request("POST", path, body)
    assert status == 201, answer
    conversation_id = str(json.loads(answer)["id"])
    status, answer = controller.request("POST", f"{path}/{conversation_id}/turns", {"content": "hello"})
    assert status == 200, answer
    return conversation_id
