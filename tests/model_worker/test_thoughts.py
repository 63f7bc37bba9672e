"""What models think comes apart from what they answer: of hosted models, of our own engine, and after a replay."""

import json
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from model_worker.config import WorkerSettings
from model_worker.echo_engine import EchoEngine
from model_worker.remote import RemoteEngine
from tests.model_worker.reasoned_calls import expected, prompts
from tests.model_worker.served_model import served
from tests.model_worker.thinking_model import ASSISTANT, END, TEMPLATE, write_model

QUESTION = [{"role": "user", "content": "so?"}]


def hosted(*deltas: dict[str, Any], usage: dict[str, Any] | None = None, seen: list[Any] | None = None) -> RemoteEngine:
    """A model whose server sends these deltas."""
    chunks: list[Any] = [{"choices": [{"delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage})
    stream = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"

    def respond(request: httpx.Request) -> httpx.Response:
        if seen is not None:
            seen.append(json.loads(request.content))
        return httpx.Response(200, text=stream)

    settings = WorkerSettings(model="m=openai:o@http://other/v1", worker_token="t")
    return RemoteEngine.from_settings(settings, transport=httpx.MockTransport(respond))


async def answered(client: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    answer = await client.post("/v1/chat/completions", json={"model": "m", "messages": QUESTION, **changes})
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


async def generated(client: httpx.AsyncClient, **changes: Any) -> list[dict[str, Any]]:
    """The deltas of the internal stream, and its end."""
    body = {"request_id": "r", "messages": QUESTION, "sampling": {"temperature": 0}, **changes}
    answer = (await client.post("/internal/generate", json=body)).raise_for_status()
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines]


def of(deltas: list[dict[str, Any]], name: str) -> str:
    return "".join(delta.get(name, "") for delta in deltas)


@pytest.mark.parametrize(
    "deltas",
    [
        [{"role": "assistant", "content": ""}, {"reasoning_content": "h"}, {"reasoning_content": "m"}],
        [{"reasoning": "hm", "content": ""}],
        [{"content": "<thi"}, {"content": "nk>\nhm\n</th"}, {"content": "ink>\n\n"}],
        [{"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}],
    ],
    ids=["reasoning_content", "reasoning", "tags", "parts"],
)
async def test_thoughts_of_a_hosted_model_are_reasoning_content(in_process: Any, deltas: list[dict[str, Any]]) -> None:
    usage = {"prompt_tokens": 2, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 7}}
    engine = hosted(*deltas, {"content": "It is "}, {"content": "42."}, usage=usage)
    async with in_process(engine, model="m") as client:
        answer = await answered(client)
        stream = await generated(client)
    assert answer["choices"][0]["message"] == {
        "role": "assistant",
        "content": "It is 42.",
        "reasoning_content": "hm",
    }
    assert answer["usage"]["completion_tokens"] == 9
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": 7}
    assert (of(stream, "thoughts"), of(stream, "text")) == ("hm", "It is 42.")


async def test_tools_are_passed_on_to_a_hosted_model_and_its_calls_to_the_client(in_process: Any) -> None:
    piece = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x"'}}
    seen: list[Any] = []
    rest = {"index": 0, "function": {"arguments": ": 1}"}}
    engine = hosted({"tool_calls": [piece]}, {"tool_calls": [rest]}, seen=seen)
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    tools = [{"type": "function", "function": {"name": "f"}}]
    history = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "7"},
    ]
    async with in_process(engine, model="m") as client:
        answer = await answered(
            client, messages=history, tools=tools, tool_choice="required", parallel_tool_calls=False
        )
    assert answer["choices"][0]["message"]["tool_calls"] == [call]
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert seen[0]["messages"] == history
    assert (seen[0]["tools"], seen[0]["tool_choice"], seen[0]["parallel_tool_calls"]) == (tools, "required", False)


async def test_a_hosted_model_that_stops_while_it_thinks_has_not_answered(in_process: Any) -> None:
    async with in_process(hosted({"content": "<think>hm </th"}), model="m") as client:
        message = (await answered(client))["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "", "reasoning_content": "hm </th"}


async def test_tags_after_thoughts_of_their_own_field_are_text(in_process: Any) -> None:
    async with in_process(hosted({"reasoning_content": "hm"}, {"content": "<think>x</think>"}), model="m") as client:
        message = (await answered(client))["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("hm", "<think>x</think>")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_thoughts_that_are_no_text_are_a_failure(in_process: Any, field: str) -> None:
    async with in_process(hosted({field: {"secret": 1}}), model="m") as client:
        answer = await client.post("/v1/chat/completions", json={"model": "m", "messages": QUESTION})
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "worker_failed")


async def test_a_hosted_model_does_not_get_its_earlier_thoughts(in_process: Any) -> None:
    seen: list[Any] = []
    earlier = {"role": "assistant", "content": "yes", "reasoning_content": "hm"}
    async with in_process(hosted({"content": "ok"}, seen=seen), model="m") as client:
        await answered(client, messages=[*QUESTION, earlier, *QUESTION])
    assert seen[0]["messages"][1] == {"role": "assistant", "content": "yes"}


async def test_thoughts_are_streamed_before_the_content(serve: Any) -> None:
    async with serve(EchoEngine(tokens_per_s=5000)) as worker:
        client = openai.AsyncOpenAI(base_url=f"{worker.url}/v1", api_key="token", max_retries=0)
        question: Any = [{"role": "user", "content": "<think>one two</think>three four"}]
        async with client, await client.chat.completions.create(model="echo", messages=question, stream=True) as stream:
            deltas = [chunk.choices[0].delta.to_dict() async for chunk in stream]
    kinds = [key for delta in deltas for key in delta if key != "role"]
    assert kinds == ["content", "reasoning_content", "reasoning_content", "content", "content"]
    assert of(deltas, "reasoning_content") == "one two"
    assert of(deltas, "content") == "three four"


# Our own engine.

TOKENS = [ASSISTANT, "<think>", "H", "m", ",", "7", "</think>", "Y", "e", "s", "!", END]


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("thinking"), TOKENS)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its template opens the thoughts, and reads those of earlier answers."""
    template = TEMPLATE.replace("<|assistant|>", "<|assistant|><think>").replace(
        "{{ message.content }}", "{{ message.reasoning_content }}{{ message.content }}"
    )
    return write_model(tmp_path_factory.mktemp("opened"), TOKENS[1:], template=template)


async def test_our_engine_tells_thoughts_from_the_answer_and_goes_on_with_both(thinking: Path) -> None:
    async with served(thinking) as client:
        answer = await answered(client, temperature=0)
        whole = await generated(client)
        token_ids = [token_id for delta in whole for token_id in delta.get("token_ids", ())]
        for num_emitted in range(1, len(token_ids) + 1):
            # What had been sent when so many tokens had: the stream of an engine that stopped there.
            begun = await generated(client, sampling={"temperature": 0, "max_tokens": num_emitted})
            rest = await generated(client, resume_token_ids=token_ids[:num_emitted])
            for name, expected in (("thoughts", "Hm,7"), ("text", "Yes!")):
                assert expected.endswith(of(rest, name))
                assert (of(begun, name) + of(rest, name)) == expected, num_emitted
    assert answer["choices"][0]["message"] == {
        "role": "assistant",
        "content": "Yes!",
        "reasoning_content": "Hm,7",
    }
    assert answer["usage"]["completion_tokens"] == len(TOKENS) - 1
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": 6}


async def test_a_template_opens_the_thoughts_and_reads_those_of_earlier_answers(opened: Path) -> None:
    async with served(opened) as client:
        answer = await answered(client, temperature=0)
        earlier = {"role": "assistant", "content": "yes"}
        lengths = [
            (await answered(client, messages=[*QUESTION, message, *QUESTION], max_tokens=1))["usage"]["prompt_tokens"]
            for message in (earlier, {**earlier, "reasoning_content": "hmm"})
        ]
    message = answer["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm,7", "Yes!")
    assert lengths[1] - lengths[0] == 3


#: As gpt-oss's: it reads thoughts under a name of its own, shows those before calls, and needs descriptions.
REASONED = (
    "{% for t in tools or [] %}{{ '// ' + t.function.description + t.function.name }}<|end|>{% endfor %}"
    "{% for m in messages %}{% if m.tool_calls %}{% if m.thinking %}{{ 'analysis ' + m.thinking }}<|end|>{% endif %}"
    "{{ m.tool_calls[0].function.name + (m.tool_calls[0].function.arguments | tojson) }}"
    "{% else %}{{ m.role + ' ' + m.content }}{% endif %}<|end|>{% endfor %}<|assistant|>"
)


async def test_thoughts_before_calls_are_told_in_every_dialect_as_transformers_tells_them(tmp_path: Path) -> None:
    folder = write_model(tmp_path, TOKENS, template=REASONED)
    for number in (1, 2):
        found = await prompts(folder, number, tool_format="hermes")
        assert len(found) == 3
        assert set(found.values()) == {expected(number, REASONED, {"eos_token": END})}


async def test_a_forced_call_does_not_open_the_thoughts_that_the_prompt_has_closed(tmp_path: Path) -> None:
    """The model's tokens are random, and the tag is one of few that may come."""
    closed = TEMPLATE.replace("<|assistant|>{%", "<|assistant|>{{ '<think></think>' if not enable_thinking }}{%")
    folder = write_model(tmp_path, [ASSISTANT, "H", END], template=closed + "{{ '' if tools }}{# <tool_call> #}")
    body = {
        "tools": [{"type": "function", "function": {"name": "now"}}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "temperature": 2,
        "max_tokens": 60,
    }
    async with served(folder) as client:
        for seed in range(8):
            kwargs = {"enable_thinking": False}
            answer = await answered(client, **body, seed=seed, chat_template_kwargs=kwargs)
            message = answer["choices"][0]["message"]
            assert not message.get("reasoning_content"), seed
            assert message["tool_calls"][0]["function"] == {"name": "now", "arguments": "{}"}
        kwargs = {"enable_thinking": True}
        answers = [await answered(client, **body, seed=seed, chat_template_kwargs=kwargs) for seed in range(8)]
    assert any(answer["choices"][0]["message"].get("reasoning_content") for answer in answers)


async def test_a_plain_prompt_is_continued_as_it_is(thinking: Path) -> None:
    async with served(thinking) as client:
        body = {"model": "m", "prompt": ASSISTANT, "temperature": 0}
        answer = (await client.post("/v1/completions", json=body)).raise_for_status().json()
    assert answer["choices"][0]["text"] == "<think>Hm,7</think>Yes!"
