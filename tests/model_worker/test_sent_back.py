"""What an official SDK received, it sends back: as the object, as its dump, as its dump without nulls. Every kind of
answer, streamed and gathered, in all three dialects, by the openai and anthropic packages."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from openai.types.chat import ChatCompletionMessage
from pydantic import BaseModel

from model_worker.app import create_app
from model_worker.config import WorkerSettings
from model_worker.engines import load_engine
from tests.model_worker.conftest import listening
from tests.model_worker.test_tools import TOOLS, write_caller
from tests.model_worker.thinking_model import ASSISTANT, END, TEMPLATE, write_model

#: openai's generic messages warn when what they parsed is dumped.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")

#: Thoughts and an answer: each token determines the next one.
SAYS = [ASSISTANT, "<think>", "h", "</think>", "y", END]
KEY = "worker-token-for-tests"
QUESTION: Any = {"role": "user", "content": "so?"}
FORMS: tuple[Callable[[Any], Any], ...] = (
    lambda given: given,
    lambda given: given.model_dump(),
    lambda given: given.model_dump(exclude_none=True),
)
#: What a model may have written as the arguments of a call.
BROKEN = ('{"city": "Ul', "{}}", "[1, 2]", "null", "", "none of it")


class Weather(BaseModel):
    is_wet: bool


@dataclass(frozen=True)
class Clients:
    """The SDKs at one worker."""

    openai: Any
    anthropic: Any


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Clients]:
    """Clients of a worker with that model."""
    settings = WorkerSettings(model=f"m={folder}", threads=1, kv_cache_bytes=16 << 20, worker_token=KEY)
    engine = await load_engine(settings)
    try:
        async with (
            listening(create_app(settings, engine)) as url,
            openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as of_openai,
            anthropic.AsyncAnthropic(base_url=url, api_key=KEY, max_retries=0) as of_anthropic,
        ):
            yield Clients(of_openai, of_anthropic)
    finally:
        await engine.shutdown()


@asynccontextmanager
async def both_models(folder: Path) -> AsyncIterator[tuple[Clients, Clients]]:
    """A model that calls a tool, and one that thinks."""
    thinker = write_model(folder / "thinker", SAYS)
    async with served(write_caller(folder / "caller", "hermes")) as caller, served(thinker) as thinking:
        yield caller, thinking


async def gathered(chunks: Any) -> dict[str, Any]:
    """A message from the deltas of a stream, as OpenAI's guide gathers it: calls keep their `index`."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: dict[int, Any] = {}
    async for chunk in chunks:
        delta = chunk.choices[0].delta
        message["content"] += delta.content or ""
        for call in delta.tool_calls or ():
            if call.index in calls:
                calls[call.index].function.arguments += call.function.arguments
            else:
                calls[call.index] = call
    return {**message, "tool_calls": [calls[index] for index in sorted(calls)]}


def results_of(message: Any) -> list[dict[str, Any]]:
    """A result for each call of a message of a chat."""
    calls = message.get("tool_calls") if isinstance(message, dict) else message.tool_calls
    ids = [call["id"] if isinstance(call, dict) else call.id for call in calls or ()]
    return [{"role": "tool", "tool_call_id": call_id, "content": "rain", "is_error": False} for call_id in ids]


async def chat_answers(chats: Any, thinking: Any) -> dict[str, Any]:
    """One message of each kind."""
    ask: Any = {"model": "m", "messages": [QUESTION], "temperature": 0, "max_tokens": 60}
    tools: Any = {**ask, "tools": TOOLS}
    found: dict[str, Any] = {}
    found["text"] = (await chats.create(**ask)).choices[0].message
    found["parsed"] = (await chats.parse(**ask, response_format=Weather)).choices[0].message
    found["calls"] = (await chats.create(**tools)).choices[0].message
    found["cut calls"] = (await chats.create(**{**tools, "max_tokens": 6})).choices[0].message
    found["several calls"] = (
        (await chats.create(**{**tools, "max_tokens": 200}, tool_choice="required")).choices[0].message
    )
    found["several choices"] = (await chats.create(**{**tools, "n": 2, "temperature": 1})).choices[1].message
    found["parsed calls"] = (await chats.parse(**ask, tools=[strict_tool()], tool_choice="required")).choices[0].message
    found["thoughts"] = (await thinking.create(**ask)).choices[0].message
    async with chats.stream(**tools) as stream:
        found["streamed calls"] = (await stream.get_final_completion()).choices[0].message
    async with thinking.stream(**ask) as stream:
        found["streamed thoughts"] = (await stream.get_final_completion()).choices[0].message
    found["gathered"] = await gathered(await chats.create(**tools, stream=True))
    found["refusal"] = ChatCompletionMessage(role="assistant", content=None, refusal="I will not.")
    for place, arguments in enumerate(BROKEN):
        broken = found["calls"].model_copy(deep=True)
        broken.tool_calls[0].function.arguments = arguments
        found[f"broken {place}"] = broken
    return found


def strict_tool() -> Any:
    return openai.pydantic_function_tool(Weather, name="now")


async def test_messages_of_chats_come_back_in_every_form(tmp_path: Path) -> None:
    async with both_models(tmp_path) as (caller, thinker):
        chats, thinking = caller.openai.chat.completions, thinker.openai.chat.completions
        answers = await chat_answers(chats, thinking)
        assert answers["parsed"].parsed is not None
        assert answers["parsed calls"].tool_calls[0].function.parsed_arguments is not None
        assert answers["cut calls"].tool_calls[0].function.arguments not in ("", '{"city": "Ulm", "days": 2}')
        assert answers["thoughts"].reasoning_content == "h"
        for kind, message in answers.items():
            for form in FORMS:
                sent = message if isinstance(message, dict) else form(message)
                history = [QUESTION, sent, *results_of(sent), QUESTION]
                for with_tools in ({}, {"tools": TOOLS}):
                    again = await chats.create(model="m", messages=history, max_tokens=5, **with_tools)
                    assert again.choices[0].finish_reason, kind
                assert (await thinking.create(model="m", messages=history, max_tokens=5)).choices, kind


async def test_items_of_responses_come_back_in_every_form(tmp_path: Path) -> None:
    async with both_models(tmp_path) as (caller, thinker):
        responses, thinking = caller.openai.responses, thinker.openai.responses
        tools: Any = [{"type": "function", **tool["function"]} for tool in TOOLS]
        tools = [{"strict": None, "parameters": None, **tool} for tool in tools]
        named: Any = [{"type": "namespace", "name": "sky", "description": "Of the sky.", "tools": tools}]
        ask: Any = {"model": "m", "input": [QUESTION], "temperature": 0, "max_output_tokens": 60}
        cut = {**ask, "max_output_tokens": 6}
        answers = {
            "text": await responses.create(**ask),
            "parsed": await responses.parse(**ask, text_format=Weather),
            "calls": await responses.create(**ask, tools=tools),
            "cut calls": await responses.create(**cut, tools=tools),
            "calls of a namespace": await responses.create(**ask, tools=named, tool_choice="required"),
            "thoughts": await thinking.create(**ask),
        }
        async with responses.stream(**ask, tools=tools) as stream:
            answers["streamed"] = await stream.get_final_response()
        assert answers["parsed"].output_parsed is not None
        assert answers["calls of a namespace"].output[0].namespace == "sky"
        assert answers["cut calls"].status == "incomplete"
        for place, arguments in enumerate(BROKEN):
            broken = answers["calls"].model_copy(deep=True)
            broken.output[-1].arguments = arguments
            answers[f"broken {place}"] = broken
        for kind, answer in answers.items():
            for form in FORMS:
                items = [form(item) for item in answer.output]
                ids = [item.call_id for item in answer.output if item.type == "function_call"]
                results = [{"type": "function_call_output", "call_id": call_id, "output": "rain"} for call_id in ids]
                history: Any = [QUESTION, *items, *results, QUESTION]
                again = await responses.create(model="m", input=history, tools=named, max_output_tokens=5)
                assert again.output, kind
                assert (await thinking.create(model="m", input=history, max_output_tokens=5)).output, kind


async def test_messages_of_anthropic_come_back_in_every_form(tmp_path: Path) -> None:
    async with both_models(tmp_path) as (caller, thinker):
        messages, betas = caller.anthropic.messages, caller.anthropic.beta.messages
        thinking = thinker.anthropic.messages
        tools: Any = [
            {"name": tool["function"]["name"], "input_schema": tool["function"].get("parameters", {"type": "object"})}
            for tool in TOOLS
        ]
        ask: Any = {"model": "m", "messages": [QUESTION], "max_tokens": 60, "extra_body": {"temperature": 0}}
        answers = {
            "text": await messages.create(**ask),
            "parsed": await messages.parse(**ask, output_format=Weather),
            "calls": await messages.create(**ask, tools=tools),
            "cut calls": await messages.create(**{**ask, "max_tokens": 6}, tools=tools),
            "beta": await betas.create(**ask, tools=tools),
            "thoughts": await thinking.create(**ask),
        }
        async with messages.stream(**ask, tools=tools) as stream:
            answers["streamed"] = await stream.get_final_message()
        assert answers["parsed"].parsed_output is not None
        assert answers["cut calls"].stop_reason == "max_tokens"
        assert "arguments" in answers["cut calls"].content[-1].input
        assert answers["thoughts"].content[0].type == "thinking"
        for place, arguments in enumerate(BROKEN):
            broken = answers["calls"].model_copy(deep=True)
            broken.content[-1].input = arguments
            answers[f"broken {place}"] = broken
        for kind, answer in answers.items():
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": "rain", "is_error": True}
                for block in answer.content
                if block.type == "tool_use"
            ]
            after: Any = {"role": "user", "content": [*results, {"type": "text", "text": "so?"}]}
            for form in FORMS:
                blocks = {"role": "assistant", "content": [form(block) for block in answer.content]}
                for said in (blocks, form(answer)):
                    sent = said if isinstance(said, dict) else said.model_dump()
                    again = await messages.create(
                        model="m", messages=[QUESTION, sent, after], max_tokens=5, tools=tools
                    )
                    assert again.stop_reason, kind


@pytest.mark.parametrize("template", [TEMPLATE, TEMPLATE.replace("message.content", "message.content[:9]")])
async def test_thoughts_alone_are_an_answer(tmp_path: Path, template: str) -> None:
    thinker = write_model(tmp_path, SAYS, template=template)
    async with served(thinker) as clients:
        chats = clients.openai.chat.completions
        cut = (await chats.create(model="m", messages=[QUESTION], temperature=0, max_tokens=2)).choices[0]
        assert (cut.finish_reason, cut.message.content) == ("length", "")
        for form in FORMS:
            assert await chats.create(model="m", messages=[QUESTION, form(cut.message), QUESTION], max_tokens=2)


async def test_the_tool_runner_of_anthropic_goes_on_without_a_kept_thread(tmp_path: Path) -> None:
    """It asks to continue a thread, is told that there is none, and sends the whole conversation."""
    asked: list[tuple[str, int]] = []

    async def get_weather(city: str, days: int) -> str:
        """By day."""
        asked.append((city, days))
        return "rain"

    tools: Any = [anthropic.beta_async_tool(get_weather)]
    async with served(write_caller(tmp_path, "hermes")) as clients:
        runner = clients.anthropic.beta.messages.tool_runner(
            model="m", messages=[QUESTION], max_tokens=60, tools=tools, extra_body={"temperature": 0}
        )
        answer = await runner.until_done()
    assert asked == [("Ulm", 2)]
    assert answer.content[-1].text == "It rains."
