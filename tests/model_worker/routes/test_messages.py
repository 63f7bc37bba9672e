"""/v1/messages of a worker, as Anthropic's own client sees it."""

from collections.abc import Callable
from typing import Any

import anthropic
import pytest

from model_worker.echo_engine import EchoEngine

Serve = Callable[..., Any]


def client_of(served: Any, key: str = "unused") -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=served.url, api_key=key, max_retries=0, _strict_response_validation=True)


def asked(text: str = "one two three", **fields: Any) -> dict[str, Any]:
    return {"model": "echo", "max_tokens": 50, "messages": [{"role": "user", "content": text}], **fields}


async def test_a_message_is_answered_whole(serve: Serve) -> None:
    async with serve() as served, client_of(served) as client:
        message = await client.messages.create(**asked("<think>hm</think>one two", system="Be brief."))
        cut = await client.messages.create(**asked(max_tokens=1))
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[-1].text == "one two"
    assert (message.stop_reason, cut.stop_reason) == ("end_turn", "max_tokens")
    assert cut.usage.output_tokens == 1


async def test_the_client_gathers_the_stream(serve: Serve) -> None:
    async with serve() as served, client_of(served) as client, client.messages.stream(**asked()) as stream:
        texts = [text async for text in stream.text_stream]
        message = await stream.get_final_message()
    assert "".join(texts) == "one two three"
    assert (message.stop_reason, message.usage.input_tokens, message.usage.output_tokens) == ("end_turn", 3, 3)


async def test_tokens_of_a_prompt_are_counted_and_nothing_is_computed(serve: Serve) -> None:
    async with serve() as served, client_of(served) as client:
        counted = await client.messages.count_tokens(
            model="echo", messages=[{"role": "user", "content": "one two three"}], system="Be brief."
        )
        load = served.worker.load()
    assert counted.input_tokens == 5
    assert (load.running, load.generation_tokens_total) == (0, 0)


async def test_a_failure_in_mid_stream_is_raised_by_the_client(serve: Serve) -> None:
    async with serve(EchoEngine(tokens_per_s=5000, fail_after=2)) as served, client_of(served) as client:
        with pytest.raises(anthropic.APIStatusError, match="broke off"):
            async with client.messages.stream(**asked()) as stream:
                await stream.get_final_message()


async def test_the_key_of_the_client_is_checked_and_errors_have_its_shape(serve: Serve) -> None:
    async with serve(api_keys=("user-key",)) as served:
        async with client_of(served, "user-key") as client:
            assert (await client.messages.create(**asked())).stop_reason == "end_turn"
            with pytest.raises(anthropic.NotFoundError) as unknown:
                await client.messages.create(**asked(model="other"))
            with pytest.raises(anthropic.BadRequestError) as wrong:
                await client.messages.create(**asked(), extra_body={"temperature": 7})
        async with client_of(served, "another") as client:
            with pytest.raises(anthropic.AuthenticationError) as refused:
                await client.messages.create(**asked())
    bodies: list[Any] = [unknown.value.body, wrong.value.body, refused.value.body]
    assert [body["error"]["type"] for body in bodies] == [
        "not_found_error",
        "invalid_request_error",
        "authentication_error",
    ]
