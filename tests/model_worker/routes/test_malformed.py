"""What only a worker refuses. What it refuses as the controller does: tests/service_kit/test_malformed_requests.py."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

InProcess = Callable[..., httpx.AsyncClient]

HELLO = {"role": "user", "content": "hello"}


def chat(**changes: Any) -> dict[str, Any]:
    return {"model": "echo", "messages": [HELLO], **changes}


def assert_refused(answer: httpx.Response, code: str = "invalid_request") -> None:
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code), answer.text


async def test_more_tokens_than_the_context_holds_are_refused(in_process: InProcess) -> None:
    async with in_process() as client:
        answer = await client.post("/v1/chat/completions", json=chat(max_tokens=1_000_000))
    assert_refused(answer, "context_length_exceeded")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"request_id": NaN}'])
async def test_controllers_are_refused_what_is_no_request(in_process: InProcess, body: bytes) -> None:
    async with in_process() as client:
        answer = await client.post("/internal/generate", content=body)
    assert_refused(answer, "invalid_request" if body in (b"[]", b"{}") else "invalid_json")


@pytest.mark.parametrize(
    "change",
    [
        {"request_id": ""},
        {"request_id": "x" * 129},
        {"request_id": None},
        {"epoch": "one"},
        {"messages": None},
        {"prompt": "both"},
        {"resume_token_ids": [-1]},
        {"resume_token_ids": [2**40]},
        {"resume_token_ids": ["a"]},
        {"sampling": {"temperature": -1}},
        {"sampling": None},
    ],
    ids=repr,
)
async def test_malformed_internal_requests_are_refused(in_process: InProcess, change: dict[str, Any]) -> None:
    body = {"request_id": "r", "messages": [HELLO], **change}
    async with in_process() as client:
        assert_refused(await client.post("/internal/generate", json=body))


async def test_null_parameters_mean_absent(in_process: InProcess) -> None:
    names = ("max_tokens", "temperature", "top_p", "stop", "stream", "n", "seed", "user", "stream_options", "logprobs")
    async with in_process() as client:
        answer = await client.post("/v1/chat/completions", json=chat(**dict.fromkeys(names)))
    assert answer.status_code == 200
