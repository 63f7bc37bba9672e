"""Several answers, log probabilities and echo from Agon's own engine with a real small model."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from model_worker.app import create_app
from model_worker.config import WorkerSettings
from model_worker.engines import load_engine
from model_worker.paged_engine import PagedEngine

FINCH = Path(__file__).resolve().parents[2] / "demo_models" / "finch"
PROMPT = "What is 17 + 25?"

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not (FINCH / "model.safetensors").is_file(), reason="the demo models are not there"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """A worker over an engine in this process."""
    settings = WorkerSettings(
        model=f"finch={FINCH}", threads=1, kv_cache_bytes=4 << 20, max_running=32, engine_process="off"
    )
    engine = await load_engine(settings)
    assert isinstance(engine, PagedEngine)
    transport = httpx.ASGITransport(create_app(settings, engine))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60) as client:
        yield client
    await engine.shutdown()


async def completion(client: httpx.AsyncClient, **fields: Any) -> Any:
    body = {"model": "finch", "prompt": PROMPT, "temperature": 0, "max_tokens": 8, **fields}
    answer = await client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_an_echo_gives_the_answer_the_log_probabilities_that_it_was_drawn_with(client: httpx.AsyncClient) -> None:
    drawn = await completion(client, logprobs=3, return_token_ids=True)
    [choice] = drawn["choices"]
    whole = choice["prompt_token_ids"] + choice["token_ids"]
    scored = await completion(client, prompt=whole, echo=True, logprobs=3, max_tokens=0)
    [echoed] = scored["choices"]
    assert scored["usage"]["completion_tokens"] == 0
    num_drawn = len(choice["token_ids"])
    assert len(echoed["logprobs"]["tokens"]) == len(whole)
    assert echoed["logprobs"]["tokens"][-num_drawn:] == choice["logprobs"]["tokens"]
    expected = pytest.approx(choice["logprobs"]["token_logprobs"], abs=1e-4)
    assert echoed["logprobs"]["token_logprobs"][-num_drawn:] == expected
    for token, top in zip(choice["logprobs"]["tokens"], choice["logprobs"]["top_logprobs"], strict=True):
        assert max(top, key=top.__getitem__) == token, "greedy tokens are the likeliest ones"


async def test_the_first_of_several_answers_is_the_one_that_stands_alone(client: httpx.AsyncClient) -> None:
    drawn = {"temperature": 1.0, "seed": 7, "ignore_eos": True}
    alone = await completion(client, **drawn)
    several = await completion(client, n=4, **drawn)
    texts = [choice["text"] for choice in several["choices"]]
    assert texts[0] == alone["choices"][0]["text"]
    assert len(set(texts)) > 1
    assert several["usage"]["completion_tokens"] == 4 * 8
    assert several["usage"]["prompt_tokens"] == alone["usage"]["prompt_tokens"]


async def test_lists_and_token_ids_give_what_single_texts_give(client: httpx.AsyncClient) -> None:
    prompts = [PROMPT, "Hello! Who are you?"]
    single = [(await completion(client, prompt=prompt))["choices"][0]["text"] for prompt in prompts]
    listed = await completion(client, prompt=prompts)
    assert [choice["text"] for choice in listed["choices"]] == single
    ids = [
        (await client.post("/tokenize", json={"model": "finch", "prompt": prompt})).json()["tokens"]
        for prompt in prompts
    ]
    of_ids = await completion(client, prompt=ids)
    assert [choice["text"] for choice in of_ids["choices"]] == single
    back = (await client.post("/detokenize", json={"model": "finch", "tokens": ids[0]})).json()
    assert PROMPT in back["prompt"]


async def test_an_id_outside_the_vocabulary_is_named(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/completions", json={"model": "finch", "prompt": [5, 2**30]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prompt")
    answer = await client.post("/detokenize", json={"model": "finch", "tokens": [2**30]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tokens")
    answer = await client.post(
        "/v1/completions", json={"model": "finch", "prompt": [2**30], "echo": True, "max_tokens": 0}
    )
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prompt")


async def test_the_stop_string_ends_the_text_or_is_left_out(client: httpx.AsyncClient) -> None:
    text = (await completion(client, ignore_eos=True))["choices"][0]["text"]
    stop = text[3:5]
    cut = (await completion(client, stop=stop, ignore_eos=True))["choices"][0]["text"]
    kept = (await completion(client, stop=stop, ignore_eos=True, include_stop_str_in_output=True))["choices"][0]["text"]
    assert cut == text[: text.index(stop)]
    assert kept == cut + stop


async def test_the_beginning_of_an_answer_is_continued(client: httpx.AsyncClient) -> None:
    asked = [{"role": "user", "content": PROMPT}]
    body: dict[str, Any] = {"model": "finch", "messages": asked, "temperature": 0, "max_tokens": 12}
    whole = (await client.post("/v1/chat/completions", json=body)).json()["choices"][0]["message"]["content"]
    begun = {"role": "assistant", "content": whole[:4]}
    body |= {"messages": [*asked, begun], "continue_final_message": True, "return_token_ids": True}
    answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    shown = await client.post("/detokenize", json={"model": "finch", "tokens": answer.json()["prompt_token_ids"]})
    assert shown.json()["prompt"].endswith(whole[:4])
