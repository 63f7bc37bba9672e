"""Vectors over HTTP: of the echo engine, and of a demo model as the library makes them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from engine.llm import LLM
from engine.sampling_params import PoolingParams
from model_worker.paged_loading import load_paged
from wire.embeddings import unpacked

Serve = Callable[..., Any]
FINCH = str(Path(__file__).parents[3] / "demo_models" / "finch")
TEXTS = ["Hello!", "What is 12 + 30?", "Hello again, and a longer text."]


def _client(served: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0)


async def test_a_models_vectors_are_those_of_the_library(
    serve: Serve, make_settings: Callable[..., Any], tmp_path: Path
) -> None:
    folder = tmp_path / "finch"
    shutil.copytree(FINCH, folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    settings = {"engine": "paged", "model": str(folder), "kv_cache_bytes": 8 << 20, "threads": 1}
    engine = await load_paged(make_settings(**settings))
    with LLM(FINCH, kv_cache_bytes=8 << 20, num_threads=1) as llm:
        expected = [one.outputs.embedding for one in llm.embed(TEXTS, pooling_params=PoolingParams("mean"))]
        ids = llm.get_tokenizer().encode(TEXTS[0], add_special_tokens=True)
    async with serve(engine, model="finch") as served, _client(served) as client:
        reply = await client.embeddings.create(model="finch", input=TEXTS)
        of_ids = await client.embeddings.create(model="finch", input=ids, encoding_format="float")
        last = await client.embeddings.create(model="finch", input=TEXTS, extra_body={"pooling": "last"})
        cut = await client.embeddings.create(model="finch", input=TEXTS, dimensions=4)
        with pytest.raises(openai.BadRequestError) as too_many:
            await client.embeddings.create(model="finch", input="a", dimensions=100_000)
        with pytest.raises(openai.BadRequestError) as too_long:
            await client.embeddings.create(model="finch", input=[1] * 100_000)
        internal = await served.client.post("/internal/embed", json={"request_id": "a", "inputs": [TEXTS[0], [1, 2]]})
    for one, wanted in zip(reply.data, expected, strict=True):
        assert one.embedding == pytest.approx(wanted, abs=1e-6)
    assert last.data[0].embedding != pytest.approx(expected[0], abs=1e-3)
    assert of_ids.data[0].embedding == pytest.approx(expected[0], abs=1e-6)
    assert reply.usage.prompt_tokens > of_ids.usage.prompt_tokens == len(ids)
    assert [len(one.embedding) for one in cut.data] == [4, 4, 4]
    assert too_many.value.param == "dimensions"
    assert too_long.value.code == "context_length_exceeded"
    assert [len(unpacked(vector)) for vector in internal.json()["vectors"]] == [len(expected[0])] * 2


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": [1, -1]}, "input"),
        ({"encoding_format": "int8"}, "encoding_format"),
        ({"dimensions": 0}, "dimensions"),
        ({"pooling": "max"}, "pooling"),
        ({"truncate_prompt_tokens": 3}, "truncate_prompt_tokens"),
        ({"endianness": "big"}, "endianness"),
    ],
)
async def test_a_field_that_is_wrong_is_named(serve: Serve, change: dict[str, Any], param: str) -> None:
    async with serve() as served:
        response = await served.client.post("/v1/embeddings", json={"model": "echo", "input": "one two", **change})
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith(param)


async def test_null_fields_mean_absent_and_many_inputs_are_answered_in_order(serve: Serve) -> None:
    async with serve() as served:
        texts = [f"text {i}" for i in range(100)]
        body = {"model": "echo", "input": texts, "user": "u", "dimensions": None}
        first = (await served.client.post("/v1/embeddings", json=body)).json()
        second = (await served.client.post("/v1/embeddings", json={**body, "input": texts[::-1]})).json()
    assert [one["index"] for one in first["data"]] == list(range(100))
    assert [one["embedding"] for one in first["data"]] == [one["embedding"] for one in second["data"]][::-1]
