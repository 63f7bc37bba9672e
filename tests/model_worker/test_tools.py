"""Tools through the OpenAI API of a worker, for each form of calls: the call, its result, the answer; and calls that
are forced, by a model whose tokens are random."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx
import jsonschema
import openai
import pytest
from tokenizers import AddedToken

from model_worker.app import create_app
from model_worker.config import WorkerSettings
from model_worker.engines import load_engine
from tests.engine.text.tool_formats import ANSWER, ASSISTANT, END, FORMATS, PROMPTED, FormatCase
from tests.model_worker.thinking_model import write_sayings

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 5},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "unit": {"enum": ["C", "F"]},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS: Any = [
    {"type": "function", "function": {"name": "get_weather", "description": "by day", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "now"}},
]
QUESTION: Any = [{"role": "user", "content": "so?"}]


CASES: Mapping[str, FormatCase] = {**dict(FORMATS.items()), "told in the system message": PROMPTED}


def write_caller(folder: Path, tool_format: str) -> Path:
    """A model that calls get_weather when it is asked, and answers when it gets the result."""
    case = CASES[tool_format]
    special = [END, ASSISTANT, ANSWER, *case.special]
    texts = [token for token in (*case.answer, case.final, "TOOLS", "RESULT ") if token not in special]
    first, after_result = ("t", " ") if tool_format == "harmony" else (ASSISTANT, ANSWER)
    end = [] if case.answer[-1] in case.stops else [END]
    return write_sayings(
        folder,
        [[first, *case.answer, *end], [after_result, case.final, END]],
        special=special,
        added=[AddedToken(text, special=False) for text in texts],
        ends=(END, *case.stops),
        template=case.template,
        context=2048,
    )


@asynccontextmanager
async def served(folder: Path, **given: Any) -> AsyncIterator[httpx.AsyncClient]:
    settings = WorkerSettings(
        model=f"m={folder}", threads=1, kv_cache_bytes=16 << 20, worker_token="worker-token-for-tests", **given
    )
    engine = await load_engine(settings)
    try:
        headers = {"Authorization": "Bearer worker-token-for-tests"}
        transport = httpx.ASGITransport(create_app(settings, engine))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
            yield client
    finally:
        await engine.shutdown()


def openai_over(client: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url="http://127.0.0.1/v1", api_key="worker-token-for-tests", http_client=client, max_retries=0
    )


def joined(chunks: Iterable[Any]) -> dict[str, Any]:
    """The message that the chunks of a stream make, and its finish reason."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": {}, "pieces": 0}
    for choice in (choice for chunk in chunks for choice in chunk.choices):
        message["content"] += choice.delta.content or ""
        message["reasoning_content"] += getattr(choice.delta, "reasoning_content", None) or ""
        for call in choice.delta.tool_calls or ():
            found = message["tool_calls"].setdefault(call.index, {"id": call.id, "name": "", "arguments": ""})
            found["name"] += call.function.name or ""
            found["arguments"] += call.function.arguments or ""
            message["pieces"] += 1
        message["finish_reason"] = choice.finish_reason or message.get("finish_reason")
    return message


async def internal(client: httpx.AsyncClient, **body: Any) -> list[dict[str, Any]]:
    given = {"request_id": "r", "messages": QUESTION, "tools": TOOLS, "sampling": {"temperature": 0}, **body}
    answer = (await client.post("/internal/generate", json=given)).raise_for_status()
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]


def calls_of(events: list[dict[str, Any]]) -> str:
    """Ids, names and arguments of the calls in these events of the internal protocol."""
    deltas = [delta for event in events for delta in event.get("tool_calls", ())]
    return "".join(f"{delta['id'] or ''}{delta['name'] or ''}{delta['arguments']}" for delta in deltas)


@pytest.mark.parametrize("tool_format", sorted(CASES))
async def test_call_result_and_answer_and_forced_calls(tmp_path: Path, tool_format: str) -> None:
    case = CASES[tool_format]
    async with served(write_caller(tmp_path, tool_format)) as http:
        create = openai_over(http).chat.completions.create
        given: Any = {"model": "m", "tools": TOOLS, "temperature": 0, "max_tokens": 60}

        called = (await create(messages=QUESTION, **given)).choices[0]
        assert called.finish_reason == "tool_calls"
        assert called.message.content in ((case.text,) if case.text else ("", None))
        assert called.message.tool_calls
        (call,) = called.message.tool_calls
        assert call.function.name == "get_weather"
        assert json.loads(call.function.arguments) == {"city": "Ulm", "days": 2}
        assert (called.message.model_extra or {}).get("reasoning_content", "") == case.thoughts

        streamed = joined([chunk async for chunk in await create(messages=QUESTION, stream=True, **given)])
        assert streamed["finish_reason"] == "tool_calls"
        assert (streamed["content"], streamed["reasoning_content"]) == (case.text, case.thoughts)
        assert streamed["tool_calls"][0]["arguments"] == call.function.arguments
        assert streamed["tool_calls"][0]["id"]
        assert streamed["pieces"] > 1

        result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
        messages: Any = [*QUESTION, called.message.model_dump(), result]
        for stream in (False, True):
            if stream:
                answer = joined([chunk async for chunk in await create(messages=messages, stream=True, **given)])
            else:
                choice = (await create(messages=messages, **given)).choices[0]
                answer = {"content": choice.message.content, "finish_reason": choice.finish_reason}
            assert (answer["content"], answer["finish_reason"]) == ("It rains.", "stop")

        # A replica that goes on after any token gives the rest of the call, with the same id.
        whole = await internal(http)
        token_ids = [token_id for event in whole for token_id in event.get("token_ids", ())]
        for num_emitted in range(1, len(token_ids)):
            rest = await internal(http, resume_token_ids=token_ids[:num_emitted])
            assert calls_of(whole).endswith(calls_of(rest))
            assert rest[-1]["finish_reason"] == "tool_calls"
        first = next(place for place, event in enumerate(whole) if event.get("tool_calls"))
        num_emitted = sum(len(event.get("token_ids", ())) for event in whole[: first + 1])
        rest = await internal(http, resume_token_ids=token_ids[:num_emitted])
        assert calls_of(whole[: first + 1]) + calls_of(rest) == calls_of(whole)

        # At this temperature the model's tokens are nearly random.
        wild: Any = {**given, "temperature": 2, "max_tokens": 1500, "messages": QUESTION}
        for choice, seed in (("required", 1), ("required", 2), ("named", 3)):
            wish: Any = {"type": "function", "function": {"name": "get_weather"}} if choice == "named" else choice
            forced = (await create(tool_choice=wish, seed=seed, **wild)).choices[0]
            assert forced.finish_reason == "tool_calls"
            assert not forced.message.content
            assert forced.message.tool_calls
            for call in forced.message.tool_calls:
                assert choice == "required" or call.function.name == "get_weather"
                schema = WEATHER if call.function.name == "get_weather" else {"maxProperties": 0}
                jsonschema.validate(json.loads(call.function.arguments), schema)
        # A format of the text has no effect on an answer that must be a call.
        wild["response_format"] = {"type": "json_schema", "json_schema": {"name": "no", "schema": {"type": "array"}}}
        single = (await create(tool_choice="required", parallel_tool_calls=False, seed=4, **wild)).choices[0]
        assert len(single.message.tool_calls or ()) == 1

        none = (await create(messages=QUESTION, tool_choice="none", **given)).choices[0]
        assert none.message.tool_calls is None
        assert none.finish_reason == "stop"


async def test_a_strict_function_is_called_as_its_schema_says(tmp_path: Path) -> None:
    """The model says that days are 2, which this schema does not allow."""
    schema = {**WEATHER, "properties": {**WEATHER["properties"], "days": {"const": 7}}}
    given: Any = {"model": "m", "messages": QUESTION, "temperature": 0, "max_tokens": 60, "parallel_tool_calls": False}
    async with served(write_caller(tmp_path, "phi")) as http:
        for is_strict, days in ((True, 7), (False, 2)):
            function = {"name": "get_weather", "parameters": schema, "strict": is_strict}
            tools: Any = [{"type": "function", "function": function}]
            answer = (await openai_over(http).chat.completions.create(tools=tools, **given)).choices[0]
            assert answer.message.content == "Let me look."
            [call] = list(answer.message.tool_calls or [])
            assert json.loads(call.function.arguments)["days"] == days


@pytest.mark.parametrize("tool_format", ["template", "mistral"])
async def test_a_template_without_tools_refuses_them_where_the_operator_says_so(
    tmp_path: Path, tool_format: Literal["template", "mistral"]
) -> None:
    async with served(write_caller(tmp_path, "told in the system message"), tool_format=tool_format) as http:
        body = {"model": "m", "messages": QUESTION, "tools": TOOLS}
        refused = await http.post("/v1/chat/completions", json=body)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "tools"
    assert "knows no tools" in refused.json()["error"]["message"]


async def test_the_form_of_calls_can_be_named(tmp_path: Path) -> None:
    template = "{{ tools | tojson }}{% for m in messages %}{{ m.content }}{% endfor %}<|says|>"
    words = [ASSISTANT, '[TOOL_CALLS]now[ARGS]{"a":', " 1}", END]
    added = [AddedToken(word, special=False) for word in words[1:3]]
    folder = write_sayings(tmp_path, [words], special=(END, ASSISTANT), added=added, ends=(END,), template=template)
    body = {"model": "m", "messages": QUESTION, "tools": TOOLS[1:], "temperature": 0}
    async with served(folder, tool_format="mistral", max_model_len=256) as http:
        answer = (await http.post("/v1/chat/completions", json=body)).raise_for_status().json()
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"] == {"name": "now", "arguments": '{"a": 1}'}
