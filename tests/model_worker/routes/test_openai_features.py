"""Features of the OpenAI API through the official client, whose models check every reply strictly."""

from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from model_worker.echo_engine import EchoEngine

Serve = Callable[..., Any]

ASKED: Any = [{"role": "user", "content": "one two three"}]


def client_of(served: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0)


def strict(model: Any, reply: Any) -> Any:
    """The reply, checked without any conversion of types."""
    model.model_validate(reply.model_dump(), strict=True)
    return reply


async def test_several_answers_of_a_chat_have_their_log_probabilities(serve: Serve) -> None:
    async with serve() as served, client_of(served) as client:
        reply = strict(
            ChatCompletion,
            await client.chat.completions.create(model="echo", messages=ASKED, n=3, logprobs=True, top_logprobs=2),
        )
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    for choice in reply.choices:
        assert choice.message.content == "one two three"
        entries = choice.logprobs.content
        assert "".join(entry.token for entry in entries) == "one two three"
        assert [entry.bytes for entry in entries] == [list(entry.token.encode()) for entry in entries]
        assert all(len(entry.top_logprobs) == 2 for entry in entries)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (3, 9)


async def test_several_answers_are_streamed_with_log_probabilities_and_usage(serve: Serve) -> None:
    texts, ends, usages = {0: "", 1: ""}, {}, []
    async with serve() as served, client_of(served) as client:
        stream = await client.chat.completions.create(
            model="echo",
            messages=ASKED,
            n=2,
            logprobs=True,
            stream=True,
            stream_options={"include_usage": True},
        )
        async for chunk in stream:
            strict(ChatCompletionChunk, chunk)
            usages.append(chunk.usage)
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                if choice.finish_reason:
                    ends[choice.index] = choice.finish_reason
    assert texts == {0: "one two three", 1: "one two three"}
    assert ends == {0: "stop", 1: "stop"}
    assert [usage.completion_tokens for usage in usages if usage] == [6]


@pytest.mark.parametrize("max_tokens", [0, 2])
async def test_an_echo_has_the_log_probabilities_of_the_prompt(serve: Serve, max_tokens: int) -> None:
    async with serve() as served, client_of(served) as client:
        # Not checked strictly: the client's types have no null for the first token, which OpenAI's server sends.
        reply: Any = await client.completions.create(
            model="echo", prompt="one two three", echo=True, logprobs=1, max_tokens=max_tokens
        )
    [choice] = reply.choices
    assert choice.text == "one two three" + ("one two" if max_tokens else "")
    assert choice.logprobs.token_logprobs == [None, *[0.0] * (2 + max_tokens)]
    assert "".join(choice.logprobs.tokens) == choice.text
    assert choice.logprobs.text_offset[:3] == [0, 3, 7]
    assert (choice.finish_reason, reply.usage.completion_tokens) == ("length", max_tokens)


async def test_lists_of_prompts_are_answered_in_order(serve: Serve) -> None:
    prompts = [f"prompt number {number}" for number in range(12)]
    async with serve(EchoEngine(tokens_per_s=1e4, max_running=3, max_queued=2)) as served, client_of(served) as client:
        reply = strict(Completion, await client.completions.create(model="echo", prompt=prompts, n=2))
        ids: Any = [[5, 6], [7]]
        of_ids = await client.completions.create(model="echo", prompt=ids, echo=True)
        streamed: dict[int, str] = {}
        async for chunk in await client.completions.create(model="echo", prompt=prompts, stream=True):
            for choice in chunk.choices:
                streamed[choice.index] = streamed.get(choice.index, "") + choice.text
    assert [choice.text for choice in reply.choices] == [prompt for prompt in prompts for _ in range(2)]
    assert [choice.index for choice in reply.choices] == list(range(24))
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (36, 72)
    assert [choice.text for choice in of_ids.choices] == [" 5 6 5 6", " 7 7"]
    assert [streamed[index] for index in range(12)] == prompts


async def test_token_ids_come_back_where_they_are_asked_for(serve: Serve) -> None:
    async with serve() as served, client_of(served) as client:
        extra = {"return_token_ids": True, "truncate_prompt_tokens": 2}
        reply = await client.chat.completions.create(model="echo", messages=ASKED, extra_body=extra)
        tokens = (await served.client.post("/tokenize", json={"model": "echo", "messages": ASKED})).json()
    assert reply.model_extra is not None
    assert reply.model_extra["prompt_token_ids"] == tokens["tokens"][-2:]
    assert reply.choices[0].model_extra == {"token_ids": tokens["tokens"]}


async def test_a_stop_string_is_kept_where_it_is_asked_for(serve: Serve) -> None:
    async with serve() as served, client_of(served) as client:
        extra = {"include_stop_str_in_output": True}
        reply = await client.chat.completions.create(model="echo", messages=ASKED, stop=["tw"], extra_body=extra)
    assert reply.choices[0].message.content == "one tw"


async def test_a_reply_can_be_sent_back_as_it_came(serve: Serve) -> None:
    async with serve() as served, client_of(served) as client:
        reply = await client.chat.completions.create(model="echo", messages=ASKED)
        history: Any = [*ASKED, reply.choices[0].message.model_dump(), {"role": "user", "content": "four"}]
        second = await client.chat.completions.create(model="echo", messages=history)
    assert second.choices[0].message.content == "four"


async def test_texts_become_tokens_and_tokens_texts(serve: Serve) -> None:
    async with serve() as served:
        asked = {"model": "echo", "prompt": "one two", "return_token_strs": True}
        reply = (await served.client.post("/tokenize", json=asked)).json()
        back = await served.client.post("/detokenize", json={"model": "echo", "tokens": [5, 6]})
        refused = await served.client.post("/tokenize", json={"model": "echo"})
    assert (reply["count"], reply["max_model_len"], len(reply["token_strs"])) == (2, 4096, 2)
    assert back.json() == {"prompt": " 5 6"}
    assert refused.json()["error"]["param"] == "prompt"


async def test_every_answer_has_a_request_id(serve: Serve) -> None:
    async with serve() as served:
        given = await served.client.get("/v1/models", headers={"X-Request-Id": "abc-1"})
        invalid = await served.client.get("/v1/models", headers={"X-Request-Id": "a b"})
        missing = await served.client.get("/nowhere")
        foreign = await served.client.post("/v1/completions", headers={"Origin": "https://evil.example"})
    assert given.headers["x-request-id"] == "abc-1"
    assert len(invalid.headers["x-request-id"]) == len(missing.headers["x-request-id"]) == 32
    assert foreign.status_code == 403
    assert foreign.headers["x-request-id"]
