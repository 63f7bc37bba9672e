"""/v1/responses and /v1/messages of the controller, as the official clients see them."""

from typing import Any

import anthropic
import openai

from tests.controller.support.arena import Arena
from tests.controller.support.fake_worker import FakeWorker, thoughts, words


async def test_responses_stream_thoughts_and_text_of_a_worker(arena: Arena) -> None:
    worker = await arena.add_worker(FakeWorker("alpha"))
    worker.num_thoughts = 2
    async with openai.AsyncOpenAI(base_url=arena.url + "/v1", api_key="none", max_retries=0) as client:
        whole = await client.responses.create(model="alpha", input="hello", max_output_tokens=9)
        asked: Any = {"model": "alpha", "input": "hello"}
        async with client.responses.stream(**asked) as stream:
            streamed = await stream.get_final_response()
    for response in (whole, streamed):
        assert [item.type for item in response.output] == ["reasoning", "message"]
        assert response.output_text == words(5)
    assert worker.requests[0].sampling.max_tokens == 9


async def test_messages_are_answered_with_the_key_as_anthropic_sends_it(arena: Arena) -> None:
    worker = await arena.add_worker(FakeWorker("alpha"))
    worker.num_thoughts = 2
    asked: Any = {"model": "alpha", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
    async with anthropic.AsyncAnthropic(base_url=arena.url, api_key="none", max_retries=0) as client:
        message = await client.messages.create(**asked)
        async with client.messages.stream(**asked) as stream:
            streamed = await stream.get_final_message()
    for found in (message, streamed):
        blocks: list[Any] = list(found.content)
        assert [block.type for block in blocks] == ["thinking", "text"]
        assert (blocks[0].thinking, blocks[1].text) == (thoughts(2), words(5))


async def test_a_worker_that_breaks_off_ends_both_streams_with_a_failure(arena: Arena) -> None:
    worker = await arena.add_worker(FakeWorker("alpha"))
    worker.can_resume, worker.fail_at = False, 3
    bodies: list[tuple[str, dict[str, Any], str]] = [
        ("responses", {"input": "hello"}, "response.failed"),
        ("messages", {"max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}, "error"),
    ]
    for path, body, last in bodies:
        answer = await arena.client.post(f"/v1/{path}", json={"model": "alpha", "stream": True, **body})
        assert answer.status_code == 200
        assert answer.text.rstrip().split("\n\n")[-1].startswith(f"event: {last}\n")
