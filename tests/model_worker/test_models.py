"""Models of one worker process come, sleep, wake and go while others answer."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from model_worker.app import create_app
from model_worker.config import WorkerSettings
from model_worker.engine_protocol import Accepted
from model_worker.errors import BadCheckpoint
from model_worker.model_spec import ModelSpec
from model_worker.models import Models
from model_worker.worker import Worker
from tests.model_worker.conftest import client_of
from tests.model_worker.echo_host import MIB, EchoHost
from wire.answers import Delta
from wire.chat import ChatMessage
from wire.errors import ApiError, ErrorCode
from wire.workers import GenerateRequest

Make = Callable[..., WorkerSettings]


class NotedLink:
    """A registration that only notes what happens to it."""

    def __init__(self, worker: Worker, log: list[str]) -> None:
        self._worker = worker
        self._log = log

    def start(self) -> None:
        self._log.append(f"{self._worker.name} {self._worker.state}")

    def announce(self) -> None:
        self._log.append(f"{self._worker.name} {self._worker.state}")

    async def stop(self) -> None:
        self._log.append(f"{self._worker.name} left")


Serving = Callable[..., AbstractAsyncContextManager[Models]]


@pytest.fixture
def serving(make_settings: Make) -> Serving:
    @asynccontextmanager
    async def serve(*models: str, host: EchoHost | None = None, links: list[str] | None = None, **given: Any) -> Any:
        settings = make_settings(model=models, engine="paged", **given)
        link = None if links is None else lambda worker: NotedLink(worker, links)
        served = Models(settings, host=host or EchoHost(), link=link)
        await served.start()
        try:
            yield served
        finally:
            await served.shutdown()

    return serve


def states(models: Models) -> dict[str, str]:
    return {row.name: row.residence for row in models.view().models}


def request(text: str = "one two three", **given: Any) -> GenerateRequest:
    return GenerateRequest(request_id="r", messages=(ChatMessage(role="user", content=text),), **given)


async def text_of(worker: Worker, text: str = "one two three") -> str:
    async with aclosing(worker.answer(request(text))) as pieces:
        return "".join([piece.text async for piece in pieces if isinstance(piece, Delta)])


@asynccontextmanager
async def answering(worker: Worker) -> AsyncIterator[None]:
    """Inside, an answer is in progress."""
    async with aclosing(worker.answer(request("word " * 4000))) as pieces:
        assert isinstance(await anext(pieces), Accepted)
        yield


async def test_a_model_is_added_and_removed_while_another_answers(serving: Serving, eventually: Any) -> None:
    links: list[str] = []
    async with serving("a=a", links=links) as models, answering(models.get("a")):
        assert (await models.add(_spec("b=b"))).residence == "loading"
        await eventually(lambda: states(models) == {"a": "resident", "b": "resident"})
        assert await text_of(models.get("b"))
        async with answering(models.get("b")):
            assert (await models.remove("b")).residence == "draining"
            with pytest.raises(ApiError, match="shutting down"):
                await text_of(models.get("b"))
            assert states(models) == {"a": "resident", "b": "draining"}  # its answer goes on
        await eventually(lambda: states(models) == {"a": "resident"})
    assert links == ["a ready", "b ready", "b draining", "b left", "a draining", "a left"]


async def test_what_cannot_be_loaded_is_reported_in_the_loaders_words_and_leaves_the_others_alone(
    serving: Serving, eventually: Any
) -> None:
    async with serving("a=a", "bad=broken") as models:
        assert states(models) == {"a": "resident", "bad": "failed"}
        assert [row.error for row in models.view().models] == [None, "cannot load broken: weights are cut off"]
        assert [worker.name for worker in models.served] == ["a"]
        assert models.is_ready
        with pytest.raises(ApiError, match="no such folder") as refusal:
            await models.add(_spec("c=missing"))
        assert refusal.value.code is ErrorCode.INVALID_REQUEST
        await models.add(_spec("d=broken"))
        await eventually(lambda: states(models)["d"] == "failed")
        with pytest.raises(ApiError, match="already"):
            await models.add(_spec("a=elsewhere"))
        await models.add(_spec("d=d"))  # one that failed gives its name to another
        await eventually(lambda: states(models)["d"] == "resident")
        assert await text_of(models.get("a"))


async def test_a_process_without_any_model_says_why_and_ends(serving: Serving) -> None:
    with pytest.raises(BadCheckpoint, match="cut off"):
        async with serving("a=broken", "b=broken"):
            pass


async def test_a_failure_that_may_pass_is_tried_again(
    serving: Serving, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model_worker.models._FIRST_RETRY_S", 0.01)
    async with serving("a=a", "b=later") as models:
        await eventually(lambda: states(models) == {"a": "resident", "b": "resident"})


async def test_a_request_wakes_a_sleeping_model_and_all_that_wait_share_one_waking(serving: Serving) -> None:
    host = EchoHost()
    links: list[str] = []
    async with serving("a=a", "b=b", host=host, links=links) as models:
        await models.sleep("a")
        assert states(models) == {"a": "asleep", "b": "resident"}
        assert models.is_ready
        num_loads = host.num_loads
        host.may_load.clear()
        waiting = [asyncio.create_task(text_of(models.get("a"))) for _ in range(3)]
        await asyncio.sleep(0)
        assert await text_of(models.get("b"))  # another model answers meanwhile
        host.may_load.set()
        assert len({text async for text in _results(waiting)}) == 1
        assert host.num_loads == num_loads + 1
        [row, _] = models.view().models
        assert (row.residence, row.wake_s is not None) == ("resident", True)
    assert links[:4] == ["a ready", "b ready", "a asleep", "a ready"]


async def test_a_model_that_does_not_wake_in_time_is_a_typed_error(serving: Serving) -> None:
    host = EchoHost()
    async with serving("a=a", "b=b", host=host, wake_timeout_s=0.05) as models:
        await models.sleep("a")
        host.may_load.clear()
        with pytest.raises(ApiError) as refusal:
            await text_of(models.get("a"))
        assert refusal.value.code is ErrorCode.MODEL_ASLEEP
        host.may_load.set()
        assert await text_of(models.get("a"))


async def test_sleep_waits_for_the_answers_in_progress(serving: Serving, eventually: Any) -> None:
    host = EchoHost()
    async with serving("a=a", "b=b", host=host) as models:
        async with answering(models.get("a")):
            falling = asyncio.create_task(models.sleep("a"))
            await asyncio.sleep(0.01)
            assert not falling.done()
            assert "sleep a" not in host.log
        await falling
        assert states(models)["a"] == "asleep"


async def test_the_least_recently_used_model_sleeps_when_another_needs_its_memory(serving: Serving) -> None:
    host = EchoHost(weights_bytes=100 * MIB)
    async with serving("a=a", "b=b", "c=c", host=host, memory=220 * MIB) as models:
        assert states(models) == {"a": "resident", "b": "resident", "c": "on_disk"}
        await text_of(models.get("a"))
        await text_of(models.get("c"))
        assert states(models) == {"a": "resident", "b": "asleep", "c": "resident"}
        async with answering(models.get("a")):  # the least recently used one is in use
            await text_of(models.get("b"))
            assert states(models) == {"a": "resident", "b": "resident", "c": "asleep"}
        assert models.view().memory_bytes <= 220 * MIB


async def test_no_memory_is_a_typed_error_while_all_models_answer(serving: Serving) -> None:
    host = EchoHost(weights_bytes=100 * MIB)
    async with serving("a=a", "b=b", host=host, memory=120 * MIB, wake_timeout_s=0.05) as models:
        async with answering(models.get("a")):
            with pytest.raises(ApiError) as refusal:
                await text_of(models.get("b"))
            assert refusal.value.code in (ErrorCode.MODEL_ASLEEP, ErrorCode.NO_WORKER)
        assert await text_of(models.get("b"))


async def test_a_model_larger_than_the_budget_is_refused(serving: Serving) -> None:
    async with serving("a=a", memory=80 * MIB) as models:
        models._host.weights_bytes = 100 * MIB  # type: ignore[attr-defined]
        with pytest.raises(ApiError, match="more than the budget of 80 MiB"):
            await models.add(_spec("b=b"))


async def test_models_of_a_folder_are_offered_and_loaded_on_first_use(
    serving: Serving, tmp_path: Path, eventually: Any
) -> None:
    (tmp_path / "bird").mkdir()
    (tmp_path / "bird" / "config.json").write_text("{}")
    (tmp_path / "small.Q4.gguf").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.json").write_text("{}")
    links: list[str] = []
    async with serving("a=a", models_dir=tmp_path, links=links) as models:
        assert states(models) == {"a": "resident", "bird": "on_disk", "small.Q4": "on_disk"}
        assert [worker.name for worker in models.served] == ["a", "bird", "small.Q4"]
        assert await text_of(models.get("bird"))
        assert states(models)["bird"] == "resident"
    assert links[:4] == ["a ready", "bird asleep", "small.Q4 asleep", "bird ready"]


async def test_what_was_added_and_removed_is_so_after_a_restart(
    serving: Serving, tmp_path: Path, eventually: Any
) -> None:
    file = tmp_path / "models.json"
    async with serving("a=a", "b=b", models_file=file) as models:
        await models.add(_spec("c=somewhere"))
        await eventually(lambda: states(models)["c"] == "resident")
        await models.remove("b")
        await eventually(lambda: "b" not in states(models))
    assert json.loads(file.read_text()) == {"added": [{"name": "c", "source": "somewhere"}], "removed": ["b"]}
    async with serving("a=a", models_file=file) as models:
        assert states(models) == {"a": "resident", "c": "resident"}
        await models.remove("c")
        await eventually(lambda: "c" not in states(models))
    async with serving("a=a", models_file=file) as models:
        assert states(models) == {"a": "resident"}


async def test_a_process_whose_last_model_was_removed_takes_others(serving: Serving, eventually: Any) -> None:
    """Its last registration stays, so that controllers find it."""
    links: list[str] = []
    async with serving("a=a", links=links) as models:
        async with answering(models.get("a")):
            await models.remove("a")
            assert states(models) == {"a": "draining"}
            assert not models.is_ready
        await eventually(lambda: states(models) == {})
        assert links == ["a ready", "a draining"]
        assert models.is_ready
        assert not models.served
        with pytest.raises(ApiError, match="has no model") as refusal:
            models.get()
        assert refusal.value.code is ErrorCode.MODEL_NOT_FOUND
        for name in ("b", "a"):  # also one of the name of the last
            await models.add(_spec(f"{name}={name}"))
            await eventually(lambda name=name: states(models) == {name: "resident"} and f"{name} ready" in links[2:])
            assert await text_of(models.get())
            await models.remove(name)
            await eventually(lambda: states(models) == {})
    assert links[2:] == ["a left", "b ready", "b draining", "b left", "a ready", "a draining", "a left"]


async def test_a_server_of_several_models_lists_all_and_answers_by_the_name(serving: Serving) -> None:
    async with serving("a=a", "b=b", worker_token="t" * 20) as models:
        app = create_app(models.settings, models=models)
        async with client_of("http://127.0.0.1", transport=httpx.ASGITransport(app)) as client:
            client.headers["Authorization"] = "Bearer " + "t" * 20
            listed = (await client.get("/v1/models")).json()["data"]
            assert [model["id"] for model in listed] == ["a", "b"]
            for name in ("a", "b"):
                body = {"model": name, "messages": [{"role": "user", "content": "hi"}]}
                answer = (await client.post("/v1/chat/completions", json=body)).json()
                assert (answer["model"], answer["choices"][0]["finish_reason"]) == (name, "stop")
            metrics = (await client.get("/metrics")).text
            assert 'agon_requests_finished_total{finished_reason="stop",model_name="a"} 1.0' in metrics
            assert 'agon_model_loaded{model_name="b"} 1.0' in metrics
            assert metrics.count("# TYPE agon_model_loaded ") == 1
            for path, named in (("/internal/models/sleep", "b"), ("/internal/models/wake", "b")):
                answer = (await client.post(path, json={"name": named})).json()
                assert answer["name"] == "b"
            asked = {"request_id": "r", "messages": [{"role": "user", "content": "hi"}]}
            unnamed = await client.post("/internal/generate", json=asked)
            assert unnamed.json()["error"]["code"] == "model_not_found"
            gone = await client.post("/internal/generate", json={**asked, "model": "c", "epoch": 7})
            assert gone.json()["error"]["code"] == "stale_epoch"  # the controller's table is older than a removal
            await client.post("/internal/models/remove", json={"name": "b"})
            await models.get("a").wait_until_idle()
            assert 'model_name="b"' not in models.metrics.render().decode() or "b" in states(models)


async def _results(tasks: list["asyncio.Task[str]"]) -> AsyncIterator[str]:
    for task in tasks:
        yield await task


def _spec(text: str) -> ModelSpec:
    return ModelSpec.parse(text)
