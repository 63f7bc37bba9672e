import json
from collections.abc import AsyncGenerator
from typing import Any

import openai
import pytest

from tests.controller.support.arena import Arena
from tests.controller.support.fake_worker import FakeWorker, thoughts, words
from wire.answers import ToolCallDelta
from wire.tools import NamedToolChoice

HELLO: Any = [{"role": "user", "content": "hello"}]
JSON = {"Content-Type": "application/json"}


def _body(**changes: Any) -> bytes:
    return json.dumps({"model": "alpha", "messages": HELLO, **changes}).encode()


@pytest.fixture
async def client(arena: Arena) -> AsyncGenerator[openai.AsyncOpenAI, None]:
    await arena.add_worker(FakeWorker("alpha"))
    async with openai.AsyncOpenAI(base_url=arena.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("model", ["nobody", "a\nb"])
async def test_an_unknown_model_is_404_and_takes_no_lease(arena: Arena, model: str) -> None:
    await arena.add_worker(FakeWorker("alpha"))

    response = await arena.client.post("/v1/chat/completions", content=_body(model=model), headers=JSON)

    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")
    assert await arena.num_leases() == 0


async def test_values_for_the_chat_template_reach_the_worker(arena: Arena) -> None:
    worker = await arena.add_worker(FakeWorker("alpha"))

    for body in (_body(), _body(chat_template_kwargs={"enable_thinking": False, "effort": "low"})):
        assert (await arena.client.post("/v1/chat/completions", content=body, headers=JSON)).status_code == 200
    refused = await arena.client.post(
        "/v1/chat/completions", content=_body(chat_template_kwargs={"a b": 1}), headers=JSON
    )

    assert [request.chat_template_kwargs for request in worker.requests] == [
        {},
        {"enable_thinking": False, "effort": "low"},
    ]
    assert refused.status_code == 400


async def test_null_parameters_mean_absent(arena: Arena) -> None:
    worker = await arena.add_worker(FakeWorker("alpha"))
    nothing = dict.fromkeys(("temperature", "top_p", "max_tokens", "stop", "seed", "stream", "n", "user"))

    response = await arena.client.post("/v1/chat/completions", content=_body(**nothing), headers=JSON)

    assert response.status_code == 200
    assert worker.requests[0].sampling.temperature is None


async def test_the_openai_client_chats(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="alpha", messages=HELLO)

    assert answer.choices[0].message.content == words(5)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 12


async def test_the_openai_client_streams_with_usage(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="alpha",
        messages=HELLO,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]

    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == words(5)
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 5


async def test_thoughts_are_reasoning_content(arena: Arena, client: openai.AsyncOpenAI) -> None:
    worker = await arena.add_worker(FakeWorker("thinker"))
    worker.num_thoughts = 2
    earlier = {"role": "assistant", "content": "yes", "reasoning_content": "hm"}
    conversation: Any = [*HELLO, earlier, *HELLO]

    answer = await client.chat.completions.create(model="thinker", messages=conversation)
    stream = await client.chat.completions.create(model="thinker", messages=conversation, stream=True)
    deltas = [chunk.choices[0].delta.to_dict() async for chunk in stream]

    message = answer.choices[0].message.to_dict()
    assert (message["reasoning_content"], message["content"]) == (thoughts(2), words(5))
    assert answer.usage is not None
    assert answer.usage.completion_tokens_details is not None
    assert (answer.usage.completion_tokens, answer.usage.completion_tokens_details.reasoning_tokens) == (7, 2)
    assert [str(delta["reasoning_content"]) for delta in deltas if "reasoning_content" in delta] == ["t0 ", "t1 "]
    assert "".join(str(delta.get("content", "")) for delta in deltas) == words(5)
    assert worker.requests[0].messages is not None
    assert [message.reasoning_content for message in worker.requests[0].messages] == [None, "hm", None]


async def test_tools_reach_the_worker_and_calls_the_client(arena: Arena, client: openai.AsyncOpenAI) -> None:
    worker = await arena.add_worker(FakeWorker("caller"))
    worker.reply = ""
    worker.call = (ToolCallDelta(0, "call_1", "now", '{"a": '),)
    tools: Any = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}]
    choice: Any = {"type": "function", "function": {"name": "now"}}
    given: Any = {"model": "caller", "tools": tools, "tool_choice": choice, "parallel_tool_calls": False}

    called = (await client.chat.completions.create(messages=HELLO, **given)).choices[0]
    stream = await client.chat.completions.create(messages=HELLO, stream=True, **given)
    pieces = [chunk.choices[0] async for chunk in stream]
    history: Any = [*HELLO, called.message.model_dump(), {"role": "tool", "tool_call_id": "call_1", "content": "7"}]
    await client.chat.completions.create(messages=history, **given)

    assert called.finish_reason == pieces[-1].finish_reason == "tool_calls"
    function = {"name": "now", "arguments": '{"a": '}
    (call,) = called.message.model_dump()["tool_calls"]
    assert (call["id"], call["function"]) == ("call_1", function)
    (piece,) = (call.to_dict() for chunk in pieces for call in chunk.delta.tool_calls or ())
    assert (piece["index"], piece["id"], piece["function"]) == (0, "call_1", function)
    first, _, last = worker.requests
    assert [tool.function.name for tool in first.tools] == ["now"]
    assert isinstance(first.tool_choice, NamedToolChoice)
    assert not first.parallel_tool_calls
    assert last.messages is not None
    assert [(message.role, message.tool_call_id, len(message.tool_calls)) for message in last.messages] == [
        ("user", None, 0),
        ("assistant", None, 1),
        ("tool", "call_1", 0),
    ]


async def test_the_openai_client_completes_text(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model="alpha", prompt="Once", max_tokens=3)

    assert answer.choices[0].text == words(3)
    assert answer.choices[0].finish_reason == "length"


async def test_the_openai_client_lists_models(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["alpha"]
    assert (await client.models.retrieve("alpha")).id == "alpha"


async def test_a_model_whose_workers_are_away_is_busy_and_not_unknown(arena: Arena) -> None:
    worker = await arena.add_worker(FakeWorker("alpha"))
    await arena.remove(worker)

    response = await arena.client.post("/v1/chat/completions", content=_body(), headers=JSON)

    assert response.status_code == 503
    assert response.json()["error"]["code"] == "no_worker_available"
    assert int(response.headers["retry-after"]) >= 1
