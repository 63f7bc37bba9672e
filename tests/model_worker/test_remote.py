"""A worker in front of another server: here, of another worker."""

import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from model_worker.config import WorkerSettings
from model_worker.echo_engine import EchoEngine
from model_worker.remote import RemoteEngine
from model_worker.remote.failures import broken

Serve = Callable[..., Any]
Respond = Callable[[httpx.Request], httpx.Response]


def remote_settings(base_url: str = "http://other/v1", **given: Any) -> WorkerSettings:
    return WorkerSettings(model=f"hosted=openai:echo@{base_url}", worker_token="t", **given)


def remote_that(respond: Respond, options: str = "", **given: Any) -> RemoteEngine:
    settings = remote_settings("http://other/v1" + (f"#{options}" if options else ""), **given)
    return RemoteEngine.from_settings(settings, transport=httpx.MockTransport(respond))


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model_worker.remote.failures.FIRST_PAUSE_S", 0.001)


def ask(**options: Any) -> dict[str, Any]:
    return {"model": "hosted", "messages": [{"role": "user", "content": "one two three"}], **options}


async def test_remote_model_answers_like_a_local_one(serve: Serve) -> None:
    async with serve() as other:
        engine = RemoteEngine.from_settings(remote_settings(f"{other.url}/v1"))
        async with serve(engine, model="hosted") as worker:
            chat = (await worker.client.post("/v1/chat/completions", json=ask())).json()
            text = (await worker.client.post("/v1/completions", json={"model": "hosted", "prompt": "a b"})).json()
        await engine.shutdown()
    assert chat["choices"][0]["message"]["content"] == "one two three"
    assert chat["model"] == "hosted"
    assert chat["usage"]["completion_tokens"] == 3
    assert text["choices"][0]["text"] == "a b"


async def test_card_says_that_answers_cannot_be_resumed(serve: Serve, in_process: Any) -> None:
    engine = remote_that(lambda request: httpx.Response(500))
    assert not engine.card.can_resume
    assert engine.card.runs_on == "remote"
    async with in_process(engine) as client:
        body = {"request_id": "r", "prompt": "x", "resume_token_ids": [1]}
        answer = await client.post("/internal/generate", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unsupported_parameter")


async def test_leaving_closes_the_stream_to_the_other_server(serve: Serve, eventually: Any) -> None:
    other_engine = EchoEngine(tokens_per_s=50)
    async with serve(other_engine) as other:
        engine = RemoteEngine.from_settings(remote_settings(f"{other.url}/v1"))
        async with serve(engine, model="hosted") as worker:
            body = ask(stream=True, messages=[{"role": "user", "content": "word " * 2000}])
            async with worker.client.stream("POST", "/v1/chat/completions", json=body) as response:
                await anext(response.aiter_raw())
            await eventually(lambda: other_engine.load().running == 0 and engine.load().running == 0)
        await engine.shutdown()


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, "maximum context length is 8 tokens", "context_length_exceeded"),
        (400, "secret-model says no", "invalid_request"),
        (401, "bad key secret-model", "worker_failed"),
        (429, "slow down", "queue_full"),
        (500, "secret-model exploded", "worker_failed"),
        (503, "busy", "queue_full"),
        (302, "", "worker_failed"),
        (402, "secret-model wants money", "worker_failed"),
        (404, "no secret-model", "worker_failed"),
        (529, "overloaded", "queue_full"),
    ],
)
async def test_refusals_are_told_in_our_own_words(in_process: Any, status: int, body: str, code: str) -> None:
    async with in_process(remote_that(lambda request: httpx.Response(status, text=body)), model="hosted") as client:
        answer = await client.post("/v1/chat/completions", json=ask())
    assert answer.json()["error"]["code"] == code
    assert "secret-model" not in answer.text


@pytest.mark.parametrize(
    "stream",
    [
        "",
        "data: [DONE]\n\n",
        "data: not json\n\n",
        'data: {"error": {"message": "secret"}}\n\n',
        'data: {"choices": [{"delta": {"content": "half"}}]}\n\n',
        "data: []\n\n",
        'data: {"choices": [{}]}\n\ndata: [DONE]\n\n',
    ],
)
async def test_stream_that_breaks_off_is_a_failure_and_never_an_answer(in_process: Any, stream: str) -> None:
    async with in_process(remote_that(lambda request: httpx.Response(200, text=stream)), model="hosted") as client:
        answer = await client.post("/v1/chat/completions", json=ask())
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "worker_failed")
    assert "secret" not in answer.text


@pytest.mark.parametrize(
    ("respond", "blame", "words"),
    [
        (httpx.Response(200, text='data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'), "host", "empty"),
        (
            httpx.Response(200, text='data: {"choices": [{"delta": {}, "finish_reason": "content_filter"}]}\n\n'),
            "host",
            "filter",
        ),
        (httpx.Response(401), "host", "failed"),
        (httpx.Response(501), "worker", "failed"),
        (httpx.Response(200, text="data: not json\n\n"), "worker", "not understood"),
    ],
)
async def test_a_failure_says_whether_the_host_fails_everybody(
    in_process: Any, respond: httpx.Response, blame: str, words: str
) -> None:
    async with in_process(remote_that(lambda request: respond), model="hosted") as client:
        body = {"request_id": "r", "messages": [{"role": "user", "content": "so?"}]}
        answer = await client.post("/internal/generate", json=body)
    assert f'"blame":"{blame}"' in answer.text
    assert words in answer.text


async def test_unreachable_server_is_a_failure(in_process: Any) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no route to secret-host")

    async with in_process(remote_that(refuse), model="hosted") as client:
        answer = await client.post("/v1/chat/completions", json=ask())
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "worker_failed")
    assert "secret-host" not in answer.text


async def test_key_and_portable_options_reach_the_other_server(in_process: Any, tmp_path: Path) -> None:
    seen: list[httpx.Request] = []

    def respond(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, text='data: {"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}\n\n')

    (tmp_path / "key").write_text("hosted-key\n")
    (tmp_path / "key").chmod(0o600)
    async with in_process(remote_that(respond, f"key_file={tmp_path}/key"), model="hosted") as client:
        kwargs = {"enable_thinking": False}
        body = ask(
            chat_template_kwargs=kwargs,
            temperature=0.5,
            max_tokens=7,
            stop=["x"],
            presence_penalty=0.5,
            logit_bias={"5": -1},
        )
        assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
        refused = await client.post("/v1/chat/completions", json=ask(top_k=5))
    assert refused.json()["error"]["code"] == "unsupported_parameter"
    assert len(seen) == 1
    assert seen[0].headers["authorization"] == "Bearer hosted-key"
    sent = json.loads(seen[0].content)
    assert (sent["model"], sent["temperature"], sent["max_tokens"], sent["stop"]) == ("echo", 0.5, 7, ["x"])
    assert sent["chat_template_kwargs"] == {"enable_thinking": False}
    assert (sent["presence_penalty"], sent["logit_bias"]) == (0.5, {"5": -1.0})


def test_a_host_whose_certificate_is_not_trusted_is_a_problem_for_the_operator_and_not_asked_again() -> None:
    error = httpx.ConnectError("no connection")
    error.__cause__ = cause = ssl.SSLCertVerificationError()
    cause.verify_code, cause.verify_message = 19, "self-signed certificate in certificate chain"
    failure = broken(error, has_begun=False)
    assert (failure.reason, failure.may_pass) == ("tls", False)
    assert "the host shows a certificate of an authority that is not trusted here" in (failure.problem or "")
    assert "AGON_CA_FILE" not in failure.error.message  # clients learn nothing of it
