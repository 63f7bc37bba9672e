"""/v1/responses of a worker, as the official client sees it."""

from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from model_worker.echo_engine import EchoEngine

Serve = Callable[..., Any]


def client_of(served: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{served.url}/v1", api_key="unused", max_retries=0, _strict_response_validation=True
    )


async def test_a_conversation_is_answered_whole(serve: Serve) -> None:
    async with serve() as served, client_of(served) as client:
        first = await client.responses.create(model="echo", input="one two three", instructions="Be brief.")
        said: Any = [{"role": "user", "content": "one"}, *first.output, {"role": "user", "content": "four five"}]
        second = await client.responses.create(model="echo", input=said, max_output_tokens=1)
    assert (first.output_text, first.status) == ("one two three", "completed")
    assert first.usage is not None
    assert first.usage.output_tokens == 3
    assert (second.output_text, second.status) == ("four", "incomplete")
    assert second.incomplete_details is not None
    assert second.incomplete_details.reason == "max_output_tokens"


async def test_thoughts_are_an_item_of_their_own_and_the_client_gathers_the_stream(serve: Serve) -> None:
    asked: Any = {"model": "echo", "input": "<think>hm hm</think>one two"}
    async with serve() as served, client_of(served) as client, client.responses.stream(**asked) as stream:
        kinds = [event.type async for event in stream]
        gathered = await stream.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert [item.type for item in gathered.output] == ["reasoning", "message"]
    assert gathered.output_text == "one two"
    Response.model_validate(gathered.model_dump(), strict=True)


async def test_a_failure_in_mid_stream_is_an_event(serve: Serve) -> None:
    async with serve(EchoEngine(tokens_per_s=5000, fail_after=2)) as served, client_of(served) as client:
        stream = await client.responses.create(model="echo", input="one two three", stream=True)
        events = [event async for event in stream]
    assert events[-1].type == "response.failed"
    assert events[-1].response.error is not None
    assert events[-1].response.error.code == "server_error"


async def test_errors_name_the_fields_of_this_api(serve: Serve) -> None:
    async with serve() as served, client_of(served) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.create(model="echo", input="one", previous_response_id="resp_1")
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.responses.create(model="other", input="one")
    assert refused.value.param == "previous_response_id"
    assert "send the whole conversation as input" in refused.value.message
    assert unknown.value.code == "model_not_found"
