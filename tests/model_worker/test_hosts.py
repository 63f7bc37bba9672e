"""Hosted models and the ways in which their servers misbehave: each ends as a typed failure or as a whole answer."""

import asyncio
import logging
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest

from model_worker.config import WorkerSettings
from model_worker.models import Models
from model_worker.remote import RemoteEngine
from model_worker.worker import Worker
from tests.mock_host import MockHost, mock_host
from wire.answers import Delta, Finished
from wire.chat import ChatMessage, SamplingOptions
from wire.constraints import OutputConstraint
from wire.errors import ApiError, ErrorCode
from wire.workers import GenerateRequest

Make = Callable[..., WorkerSettings]
Of = Callable[..., Worker]


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model_worker.remote.failures.FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr("model_worker.remote.stream.LAST_WORDS_S", 0.1)


@pytest.fixture
async def host() -> AsyncIterator[MockHost]:
    async with mock_host() as running:
        yield running


@pytest.fixture
async def worker_of(host: MockHost) -> AsyncIterator[Of]:
    """A worker of a model of the host: `worker_of(model, options, **settings)`."""
    made: list[Worker] = []

    def make(model: str, options: str = "", **given: Any) -> Worker:
        source = f"m=openai:{model}@{host.url}" + (f"#{options}" if options else "")
        settings = WorkerSettings(model=(source,), **given)
        made.append(Worker(settings, RemoteEngine.from_settings(settings)))
        return made[-1]

    yield make
    for worker in made:
        await worker.engine.shutdown()


async def answer(worker: Worker, **sampling: Any) -> tuple[str, str, Finished]:
    """Text, thoughts and end. Raises ApiError."""
    text, thoughts, end = "", "", None
    request = GenerateRequest(
        request_id="r",
        messages=(ChatMessage(role="user", content="one two three"),),
        sampling=SamplingOptions(**{"max_tokens": 64, **sampling}),
    )
    async with aclosing(worker.answer(request)) as pieces:
        async for piece in pieces:
            match piece:
                case Delta():
                    text, thoughts = text + piece.text, thoughts + piece.thoughts
                case Finished():
                    end = piece
    assert end is not None
    return text, thoughts, end


@pytest.mark.parametrize(
    ("model", "code", "reason", "status", "attempts"),
    [
        ("cut", "worker_failed", "cut", "none", 1),
        ("cut-at-once", "worker_failed", "cut", "none", 5),
        ("garbage", "worker_failed", "garbage", "none", 1),
        ("silent", "worker_timeout", "silent", "none", 1),
        ("silent-later", "worker_timeout", "silent", "none", 1),
        ("400", "invalid_request", "status_400", "400", 1),
        ("401", "worker_failed", "status_401", "401", 1),
        ("402", "worker_failed", "status_402", "402", 1),
        ("403", "worker_failed", "status_403", "403", 1),
        ("404", "worker_failed", "status_404", "404", 1),
        ("429", "queue_full", "status_429", "429", 5),
        ("500", "worker_failed", "status_500", "500", 5),
        ("503", "queue_full", "status_503", "503", 5),
        ("529", "queue_full", "status_529", "529", 5),
        ("redirect", "worker_failed", "status_302", "302", 1),
        ("empty", "worker_failed", "empty_answer", "none", 1),
        ("blank", "worker_failed", "empty_answer", "none", 1),
        ("filtered", "worker_failed", "content_filter", "none", 1),
        ("error-in-stream", "worker_failed", "error_in_stream", "none", 5),
        ("endless", "worker_failed", "endless", "none", 1),
        ("wordy", "worker_failed", "endless", "none", 1),
        ("long-arguments", "worker_failed", "endless", "none", 1),
        ("deep", "worker_failed", "garbage", "none", 1),
        ("half-a-character", "worker_failed", "garbage", "none", 1),
        ("one-line", "worker_failed", "garbage", "none", 1),
        ("bomb", "worker_failed", "garbage", "none", 1),
        ("bomb-refused", "worker_failed", "status_500", "500", 5),
    ],
)
async def test_a_misbehaving_host_is_a_typed_failure_with_its_reason_in_log_and_metrics(
    host: MockHost,
    worker_of: Of,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    code: str,
    reason: str,
    status: str,
    attempts: int,
) -> None:
    caplog.set_level(logging.INFO)
    if reason == "silent":
        monkeypatch.setattr("model_worker.remote.engine._TIMEOUT", httpx.Timeout(30.0, read=0.3))
    worker = worker_of(model)
    with pytest.raises(ApiError) as failure:
        await answer(worker)
    assert (failure.value.code.value, failure.value.reason) == (code, reason)
    assert len(host.requests) == attempts
    metrics = worker_metrics(worker)
    assert (
        f'agon_host_failures_total{{model_name="m",reason="{reason}",status="{status}"}} {float(attempts)}' in metrics
    )
    logged = [record for record in caplog.records if record.getMessage().startswith("host_failed")]
    assert len(logged) == attempts
    for text in (caplog.text, metrics, failure.value.message):
        assert "secret-model" not in text
        assert "sk-1" not in text


async def test_nothing_of_a_compressed_answer_is_unpacked(host: MockHost, worker_of: Of) -> None:
    tracemalloc.start()
    for model in ("bomb", "bomb-refused"):
        with pytest.raises(ApiError):
            await answer(worker_of(model))
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 4 << 20
    assert {headers["accept-encoding"] for headers in host.headers} == {"identity"}


async def test_usage_that_cannot_be_true_is_estimated(host: MockHost, worker_of: Of) -> None:
    *_, end = await answer(worker_of("wrong-usage"))
    assert end.usage.estimated
    assert end.usage.total_tokens < 100


@pytest.mark.parametrize("model", ["good", "no-usage", "no-done", "no-done-open"])
async def test_an_answer_with_a_finish_reason_is_whole(host: MockHost, worker_of: Of, model: str) -> None:
    worker = worker_of(model)
    text, _, end = await answer(worker)
    assert (text, end.finish_reason) == ("hello there", "stop")
    assert end.usage.estimated is (model != "good")
    assert end.usage.completion_tokens == 2
    assert end.usage.prompt_tokens > 0
    assert worker.hosting is not None
    assert worker.hosting.failures == {}


async def test_thoughts_are_progress_and_an_answer_of_thoughts_is_not_empty(
    host: MockHost, worker_of: Of, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model_worker.remote.engine._TIMEOUT", httpx.Timeout(30.0, read=0.5))
    host.piece_s = 0.1  # longer together than the host may be silent
    worker = worker_of("thoughts")
    assert (await answer(worker))[:2] == ("hello there", "hm " * 5)
    assert (await answer(worker_of("thoughts-only")))[:2] == ("", "hm")


@pytest.mark.parametrize("status", [429, 500, 529])
async def test_a_failure_that_passes_is_repeated_before_the_first_token(
    host: MockHost, worker_of: Of, status: int
) -> None:
    host.failing, host.flaky_status = 2, status
    worker = worker_of("flaky")
    assert (await answer(worker))[0] == "hello there"
    assert len(host.requests) == 3


async def test_retry_after_is_respected_and_closes_the_model_where_it_is_long(host: MockHost, worker_of: Of) -> None:
    host.failing, host.retry_after = 1, "0.3"
    worker = worker_of("flaky")
    began = time.monotonic()
    await answer(worker)
    assert time.monotonic() - began > 0.3
    host.failing, host.retry_after = 1, "40"
    with pytest.raises(ApiError) as failure:
        await answer(worker)
    assert failure.value.code is ErrorCode.QUEUE_FULL
    load = worker.load()
    assert load is not None
    assert load.is_closed
    assert worker.hosting is not None
    assert worker.hosting.problem == "the host asks to wait"
    with pytest.raises(ApiError) as failure:
        await answer(worker)
    assert failure.value.code is ErrorCode.NO_WORKER
    assert failure.value.retry_after_s == pytest.approx(40, abs=2)


@pytest.mark.parametrize("model", ["401", "402", "404", "redirect"])
async def test_what_only_the_operator_can_mend_closes_the_model_and_says_why(
    host: MockHost, make_settings: Make, model: str
) -> None:
    models = Models(make_settings(model=("echo", f"m=openai:{model}@{host.url}")))
    await models.start()
    worker = models.get("m")
    with pytest.raises(ApiError):
        await answer(worker)
    [row] = [row for row in models.view().models if row.name == "m"]
    assert row.problem is not None
    assert row.problem.startswith("the host ")
    assert (load := worker.load()) is not None
    assert load.is_closed
    with pytest.raises(ApiError):
        await answer(worker)
    assert len(host.requests) == 1
    worker.engine._closed_until = time.monotonic()  # type: ignore[attr-defined]  # a minute later
    with pytest.raises(ApiError):  # the next request finds out if it has been mended
        await answer(worker)
    assert len(host.requests) == 2
    await models.shutdown()


async def test_a_silent_host_does_not_make_the_worker_stalled(host: MockHost, worker_of: Of) -> None:
    worker = worker_of("silent", stalled_step_s=0.05)
    running = asyncio.create_task(answer(worker))
    for _ in range(10):
        await asyncio.sleep(0.02)
        assert worker.is_healthy()
    assert (load := worker.load()) is not None
    assert load.running == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_caps_refuse_close_and_survive_a_restart(host: MockHost, worker_of: Of, tmp_path: Path) -> None:
    given = {"models_file": tmp_path / "models.json"}
    worker = worker_of("good", "tokens_per_day=20&cost_per_day=1&prompt_price=1&answer_price=2", **given)
    await answer(worker)
    await answer(worker)  # 26 tokens: the last answer may exceed the limit
    assert worker.hosting is not None
    assert worker.hosting.cost == pytest.approx((2 * 11 + 2 * 2 * 2) / 1e6)
    again = worker_of("good", "tokens_per_day=20", **given)
    for limited in (worker, again):
        with pytest.raises(ApiError) as failure:
            await answer(limited)
        assert (failure.value.code, failure.value.reason) == (ErrorCode.BUDGET_REACHED, "tokens_per_day")
        assert (load := limited.load()) is not None
        assert load.is_closed
    assert len(host.requests) == 2


async def test_requests_of_a_minute_are_limited(host: MockHost, worker_of: Of) -> None:
    worker = worker_of("good", "requests_per_minute=2")
    await answer(worker)
    await answer(worker)
    with pytest.raises(ApiError) as failure:
        await answer(worker)
    assert failure.value.code is ErrorCode.BUDGET_REACHED
    assert failure.value.status == 429
    assert failure.value.retry_after_s is not None
    assert 50 < failure.value.retry_after_s <= 60


async def test_requests_have_the_fields_and_headers_that_the_source_says(
    host: MockHost, worker_of: Of, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_HOST_KEY", "sk-from-the-environment")
    options = (
        "key_env=SOME_HOST_KEY&key_header=x-api-key&max_tokens=max_completion_tokens&stream_usage=false"
        '&body={"temperature":null,"service_tier":"flex"}&headers={"x-team":"arena"}'
    )
    worker = worker_of("good", options)
    constraint = OutputConstraint(kind="json_schema", value='{"type": "object"}')
    await answer(worker, max_tokens=9, temperature=0.5, n=1, constraint=constraint)
    sent = host.requests[0]
    assert (sent["max_completion_tokens"], sent["service_tier"]) == (9, "flex")
    assert not {"max_tokens", "stream_options", "temperature", "n"} & sent.keys()
    assert sent["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert (host.headers[0]["x-api-key"], host.headers[0]["x-team"]) == ("sk-from-the-environment", "arena")
    assert "authorization" not in host.headers[0]
    for refused in (
        {"n": 2},
        {"logprobs": 2},
        {"constraint": OutputConstraint(kind="regex", value="a", param="regex")},
    ):
        with pytest.raises(ApiError) as failure:
            await answer(worker, **refused)
        assert failure.value.code is ErrorCode.UNSUPPORTED_PARAMETER


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("key_env=NOT_SET_ANYWHERE", "has no environment variable"),
        ("key_file=/no/such/file", "cannot read the key file"),
        ("key_file={loose}", "chmod 600"),
        ("key_file={strange}", "one line of printable ASCII"),
        ("key_env=AGON_WORKER_TOKEN", "of Agon's own"),
        ("key=sk-1", "no option 'key'"),
        ("key_file={data}/worker.token", "holds a secret of the arena"),
        ("key_file={link}", "holds a secret of the arena"),
        ("key_file={named}", "holds a secret of the arena"),
    ],
)
async def test_a_key_that_cannot_be_used_is_refused_by_a_sentence_without_it(
    make_settings: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, sentence: str
) -> None:
    data, named = tmp_path / "data", tmp_path / "named"
    data.mkdir()
    (data / "agon.lock").touch()
    for secret in (data / "worker.token", named):
        secret.write_text("sk-1")
        secret.chmod(0o600)
    (tmp_path / "link").symlink_to(data / "worker.token")
    monkeypatch.setenv("AGON_VOTER_KEY_FILE", str(named))
    (tmp_path / "loose").write_text("sk-1")
    (tmp_path / "loose").chmod(0o640)
    (tmp_path / "strange").write_text("sk-1\nsk-2")
    (tmp_path / "strange").chmod(0o600)
    models = Models(make_settings())
    await models.start()
    files = {name: tmp_path / name for name in ("loose", "strange", "data", "link", "named")}
    options = options.format(**files)
    with pytest.raises(ApiError) as refusal:
        await models.add(_spec(f"m=openai:m@http://127.0.0.1:1/v1#{options}"))
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
    assert sentence in refusal.value.message
    assert "sk-1" not in refusal.value.message
    await models.shutdown()


async def test_a_hosted_model_that_was_added_is_there_after_a_restart_without_its_key(
    host: MockHost, make_settings: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    monkeypatch.setenv("SOME_HOST_KEY", "sk-from-the-environment")
    settings = make_settings(models_file=tmp_path / "models.json")
    models = Models(settings)
    await models.start()
    await models.add(_spec(f"m=openai:good@{host.url}#key_env=SOME_HOST_KEY&tokens_per_day=1000"))
    await eventually(lambda: {row.name: row.residence for row in models.view().models}.get("m") == "resident")
    with pytest.raises(ApiError):
        await models.sleep("m")
    await models.shutdown()
    again = Models(settings)
    await again.start()
    assert (await answer(again.get("m")))[0] == "hello there"
    assert host.headers[0]["authorization"] == "Bearer sk-from-the-environment"
    files = list(tmp_path.iterdir())
    assert len(files) == 2  # the models and the counters of the day
    assert all("sk-from" not in file.read_text() for file in files)
    assert "sk-from" not in again.view().model_dump_json()
    await again.shutdown()


async def test_a_worker_of_hosted_models_alone_loads_no_engine_of_our_own(host: MockHost, make_settings: Make) -> None:
    models = Models(make_settings(engine="paged", model=(f"m=openai:good@{host.url}",), memory=1 << 20))
    await models.start()
    [row] = models.view().models
    assert (row.residence, row.memory_bytes, row.wanted_bytes) == ("resident", 0, 0)
    assert (await answer(models.get()))[0] == "hello there"
    await models.shutdown()


def worker_metrics(worker: Worker) -> str:
    return worker.metrics._families.render().decode()


def _spec(text: str) -> Any:
    from model_worker.model_spec import ModelSpec

    return ModelSpec.parse(text)
