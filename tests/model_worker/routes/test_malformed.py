"""What only a worker refuses. What it refuses as the controller does: tests/service_kit/test_malformed_requests.py."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

InProcess = Callable[..., httpx.AsyncClient]

LONG = " ".join(["word"] * 4096)
HELLO = {"role": "user", "content": "hello"}


def chat(**changes: Any) -> dict[str, Any]:
    return {"model": "echo", "messages": [HELLO], **changes}


def assert_refused(answer: httpx.Response, code: str = "invalid_request") -> None:
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code), answer.text


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": LONG}]}, "messages"),
        ("/v1/completions", {"prompt": LONG}, "prompt"),
        ("/v1/responses", {"input": LONG}, "input"),
        ("/v1/messages", {"messages": [{"role": "user", "content": LONG}], "max_tokens": 5}, "messages"),
    ],
)
async def test_a_prompt_that_leaves_no_room_is_refused_with_both_numbers(
    in_process: InProcess, path: str, body: dict[str, Any], param: str
) -> None:
    for stream in (False, True):
        async with in_process() as client:
            answer = await client.post(path, json={"model": "echo", "stream": stream, **body})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", param)
        assert "the prompt has 4096 tokens; with at least one of output, only 4096 fit" in error["message"]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a b"}]}, "max_tokens"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a b"}]}, "max_completion_tokens"),
        ("/v1/completions", {"prompt": "a b"}, "max_tokens"),
        ("/v1/responses", {"input": "a b"}, "max_output_tokens"),
        ("/v1/messages", {"messages": [{"role": "user", "content": "a b"}]}, "max_tokens"),
    ],
)
async def test_more_tokens_than_the_context_holds_are_cut(
    in_process: InProcess, path: str, body: dict[str, Any], field: str
) -> None:
    async with in_process() as client:
        for bound in (4096, 4097, 1_000_000, 2**40):
            answer = await client.post(path, json={"model": "echo", **body, field: bound})
            assert answer.status_code == 200, answer.text
        refused = await client.post(path, json={"model": "echo", **body, field: -7})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)


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
