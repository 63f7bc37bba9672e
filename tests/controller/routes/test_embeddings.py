"""Vectors from the arena: of a worker of the model, or of another replica where it fails."""

import openai
import pytest

from tests.controller.support.arena import Arena
from tests.controller.support.fake_worker import FakeWorker
from wire.errors import ApiError, ErrorCode


def _client(arena: Arena) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=arena.url + "/v1", api_key="none", max_retries=0)


async def test_each_input_gets_its_vector(arena: Arena) -> None:
    worker = await arena.add_worker(FakeWorker("alpha"))
    async with _client(arena) as client:
        reply = await client.embeddings.create(model="alpha", input=["ab", "abcd"], dimensions=2)
        plain = await client.embeddings.create(model="alpha", input=[[7, 8, 9]], encoding_format="float")
    assert [one.embedding for one in reply.data] == [[2.0, 1.0], [4.0, 1.0]]
    assert [one.embedding for one in plain.data] == [[3.0, 1.0]]
    assert (reply.usage.prompt_tokens, reply.usage.total_tokens) == (6, 6)
    assert [request.dimensions for request in worker.embed_requests] == [2, None]
    assert worker.embed_requests[0].cache_salt
    assert await arena.num_leases() == 0


async def test_another_replica_takes_over(arena: Arena) -> None:
    for _ in range(2):
        worker = await arena.add_worker(FakeWorker("alpha"))
        worker.refusal = ApiError(ErrorCode.WORKER_FAILED, "no")
    worker.refusal = None
    async with _client(arena) as client:
        for _ in range(4):
            reply = await client.embeddings.create(model="alpha", input="abc")
            assert reply.data[0].embedding == [3.0, 1.0]
    assert await arena.num_leases() == 0


@pytest.mark.parametrize(("model", "code"), [("nobody", "model_not_found"), ("alpha", "invalid_request")])
async def test_a_refusal_is_typed_and_takes_no_lease(arena: Arena, model: str, code: str) -> None:
    worker = await arena.add_worker(FakeWorker("alpha"))
    worker.refusal = ApiError(ErrorCode.INVALID_REQUEST, "too long", param="input")
    async with _client(arena) as client:
        with pytest.raises(openai.APIStatusError) as raised:
            await client.embeddings.create(model=model, input="abc")
    assert raised.value.code == code
    assert await arena.num_leases() == 0
