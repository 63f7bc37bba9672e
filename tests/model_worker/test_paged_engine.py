"""The worker with Agon's own engine and a real small model, through HTTP."""

import asyncio
import contextlib
import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio

from engine.kernels.cpu.build import best_instruction_set
from engine.memory.ledger import PoolCell
from model_worker.app import create_app
from model_worker.config import WorkerSettings
from model_worker.engine_load import pool_picture
from model_worker.engines import load_engine
from model_worker.errors import BadCheckpoint, LoadFailed
from model_worker.paged_engine import PagedEngine
from tests.engine.swap_costs import swapping_costs_nothing
from wire.workers import PoolView

FINCH = Path(__file__).resolve().parents[2] / "demo_models" / "finch"

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not (FINCH / "model.safetensors").is_file(), reason="the demo models are not there"),
]


def settings_for(model: Path, **given: Any) -> WorkerSettings:
    defaults = {"threads": 1, "kv_cache_bytes": 4 << 20, "max_running": 32, "worker_token": "token"}
    return WorkerSettings(model=f"finch={model}", **{**defaults, **given})


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["off", "on"])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[PagedEngine]:
    """In a thread of this process, and in a process of its own."""
    loaded = await load_engine(settings_for(FINCH, engine_process=request.param))
    assert isinstance(loaded, PagedEngine)
    yield loaded
    await loaded.shutdown()


@pytest_asyncio.fixture(loop_scope="module")
async def client(
    engine: PagedEngine, serve_app: Callable[..., AbstractAsyncContextManager[str]]
) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(settings_for(FINCH), engine)
    headers = {"Authorization": "Bearer token"}
    async with (
        serve_app(app) as url,
        httpx.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False) as client,
    ):
        yield client


PROMPTS = [f"tell me about the number {number}" for number in range(32)]


async def generate(client: httpx.AsyncClient, text: str, **changes: Any) -> tuple[list[int], str, dict[str, Any]]:
    body = {
        "request_id": hashlib.sha256(text.encode()).hexdigest(),
        "messages": [{"role": "user", "content": text}],
        "sampling": {"temperature": 0, "max_tokens": 12, "ignore_eos": True},
        **changes,
    }
    answer = await client.post("/internal/generate", json=body)
    assert answer.status_code == 200, answer.text
    token_ids: list[int] = []
    said = ""
    for block in answer.text.split("\n\n"):
        for line in block.splitlines():
            if line.startswith("data: "):
                data = json.loads(line.removeprefix("data: "))
                token_ids += data.get("token_ids", [])
                said += data.get("text", "")
    assert "usage" in data, answer.text
    return token_ids, said, data


async def until_pages_are_free(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(60):
        while True:
            pool = (await client.get("/internal/pool")).json()
            if pool["kv_bytes_used"] == 0:
                return
            await asyncio.sleep(0.01)


async def test_card_describes_the_checkpoint(engine: PagedEngine) -> None:
    assert engine.card.architecture.lower().startswith("gpt2")
    assert engine.card.context_length == engine.capacity.kv_tokens == 1008  # what the small pool can hold
    assert engine.card.num_parameters > 100_000
    assert engine.card.runs_on == "cpu"
    assert len(engine.card.revision) >= 8


async def test_metrics_say_what_computes(client: httpx.AsyncClient) -> None:
    metrics = (await client.get("/metrics")).text
    name = f"cpp-{best_instruction_set()}"
    assert f'agon_operators{{model_name="finch",operators="{name}"}} 1.0' in metrics


async def test_int8_weights_answer_too_and_say_so() -> None:
    loaded = await load_engine(settings_for(FINCH, weights="int8"))
    assert isinstance(loaded, PagedEngine)
    try:
        assert loaded.operators == f"cpp-{best_instruction_set()}-int8"
    finally:
        await loaded.shutdown()


async def test_keys_and_values_of_8_bits_hold_more_tokens_and_the_card_says_so() -> None:
    settings = settings_for(FINCH, kv_dtype="int8", dtype="float32")
    exact = await load_engine(settings.model_copy(update={"kv_dtype": "auto"}))
    loaded = await load_engine(settings)
    try:
        assert (exact.card.dtype, loaded.card.dtype) == ("float32", "float32, KV int8")
        assert loaded.capacity.kv_tokens > 2 * exact.capacity.kv_tokens
    finally:
        await exact.shutdown()
        await loaded.shutdown()


async def test_int8_weights_without_the_cpp_operators_are_refused() -> None:
    with pytest.raises(BadCheckpoint, match="int8 weights need the C\\+\\+ operators"):
        await load_engine(settings_for(FINCH, weights="int8", operators="torch"))


async def test_many_at_once_say_the_same_as_one_at_a_time(client: httpx.AsyncClient) -> None:
    alone = [await generate(client, prompt) for prompt in PROMPTS]
    together = await asyncio.gather(*(generate(client, prompt) for prompt in PROMPTS))
    assert [answer[:2] for answer in together] == [answer[:2] for answer in alone]
    assert all(len(token_ids) == 12 for token_ids, _, _ in alone)
    await until_pages_are_free(client)


async def test_a_worker_short_of_pages_swaps_and_says_so(
    client: httpx.AsyncClient, serve_app: Callable[..., AbstractAsyncContextManager[str]]
) -> None:
    sampling = {"temperature": 0, "max_tokens": 90, "ignore_eos": True}
    alone = [await generate(client, prompt, sampling=sampling) for prompt in PROMPTS[:6]]
    settings = settings_for(FINCH, kv_cache_bytes=1 << 20, swap_bytes=4 << 20)
    scarce = await load_engine(settings)
    headers = {"Authorization": "Bearer token"}
    with swapping_costs_nothing():
        async with (
            serve_app(create_app(settings, scarce)) as url,
            httpx.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False) as other,
        ):
            crowded = await asyncio.gather(*(generate(other, prompt, sampling=sampling) for prompt in PROMPTS[:6]))
            lines = (await other.get("/metrics")).text.splitlines()
    await scarce.shutdown()
    assert [answer[:2] for answer in crowded] == [answer[:2] for answer in alone]
    values = {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}
    assert values['agon_preemptions_by_kind_total{kind="swap",model_name="finch"}'] > 0
    assert values['agon_swapped_bytes_total{model_name="finch"}'] > 0
    assert values['agon_mirror_bytes{model_name="finch",state="used"}'] == 0
    assert values['agon_mirror_bytes{model_name="finch",state="empty"}'] > 3 << 20
    assert values['agon_requests_swapped{model_name="finch"}'] == 0


async def test_a_worker_with_drafts_says_the_same_and_counts_them(
    client: httpx.AsyncClient, serve_app: Callable[..., AbstractAsyncContextManager[str]]
) -> None:
    sampling = {"temperature": 0, "max_tokens": 120, "ignore_eos": True}
    alone = await generate(client, PROMPTS[0], sampling=sampling)
    settings = settings_for(FINCH, draft="ngram")
    engine = await load_engine(settings)
    headers = {"Authorization": "Bearer token"}
    async with (
        serve_app(create_app(settings, engine)) as url,
        httpx.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False) as other,
    ):
        assert (await generate(other, PROMPTS[0], sampling=sampling))[:2] == alone[:2]
        lines = (await other.get("/metrics")).text.splitlines()
    await engine.shutdown()
    values = {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}
    verified, accepted, saved = (
        values[f'agon_spec_decode_num_{name}_total{{model_name="finch"}}']
        for name in ("draft_tokens", "accepted_tokens", "saved_steps")
    )
    assert verified >= accepted >= saved >= 0
    assert values['agon_engine_steps_total{model_name="finch"}'] + saved == 120


async def test_the_pool_is_drawn_in_cells_of_used_kept_and_empty_pages(client: httpx.AsyncClient) -> None:
    await generate(client, PROMPTS[0])
    await until_pages_are_free(client)
    view = PoolView.model_validate((await client.get("/internal/pool")).json(), strict=False)
    assert view.picture is not None
    cells = view.picture.cells
    assert 50 < len(cells) <= 256
    assert all(used == 0 for _, used, _ in cells)
    names = view.picture.layer_types
    assert any(kept == 100 and names[which] == "main.full" for which, _, kept in cells if kept and which is not None)
    assert {which for which, used, kept in cells if used + kept == 0} == {None}


async def test_a_cell_shows_the_smallest_share_and_never_more_than_the_whole() -> None:
    cells = [PoolCell("b", 0.0001, 0.9999), PoolCell(None, 0.0, 0.0), PoolCell("a", 1.0000000001, 0.0)]
    picture = pool_picture(cells)
    assert picture.layer_types == ("a", "b")
    assert picture.cells == ((1, 1, 99), (None, 0, 0), (0, 100, 0))


async def test_second_turn_finds_the_first_in_the_prefix_cache(client: httpx.AsyncClient) -> None:
    text = "a story that is long enough to fill more than one page of sixteen tokens, which this one surely is by now"
    await generate(client, text)
    _, _, end = await generate(client, text)
    assert end["usage"]["prompt_tokens_details"]["cached_tokens"] >= 16


async def test_only_requests_of_the_same_salt_share_prefixes(client: httpx.AsyncClient) -> None:
    text = "another story that is long enough to fill more than one page of sixteen tokens, as this one does as well"
    cached = []
    for salt in ("one", "two", "one", "two", ""):
        _, _, end = await generate(client, text, cache_salt=salt)
        cached.append(end["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert cached[0] == cached[1] == cached[4] == 0
    assert min(cached[2:4]) >= 16


async def test_callers_of_v1_share_prefixes_only_with_themselves(engine: PagedEngine) -> None:
    app = create_app(settings_for(FINCH, worker_token=None, api_keys=("one", "two")), engine)
    text = "a third story that is long enough to fill more than one page of sixteen tokens, and then even a bit more"
    body = {"model": "finch", "messages": [{"role": "user", "content": text}], "max_tokens": 1}
    cached = []
    for address, key in (("10.0.0.1", "one"), ("10.0.0.2", "one"), ("10.0.0.1", "two"), ("10.0.0.1", "one")):
        transport = httpx.ASGITransport(app, client=(address, 1))
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as caller:
            usage = (await caller.post("/v1/chat/completions", json=body)).raise_for_status().json()["usage"]
        cached.append(usage["prompt_tokens_details"]["cached_tokens"])
    assert cached[:3] == [0, 0, 0]
    assert cached[3] >= 16


@pytest.mark.parametrize("temperature", [0, 0.9])
@pytest.mark.parametrize("num_emitted", [1, 5, 11, 12])
async def test_resumed_answer_goes_on_exactly(client: httpx.AsyncClient, temperature: float, num_emitted: int) -> None:
    sampling = {"temperature": temperature, "max_tokens": 12, "ignore_eos": True}
    whole, text, end = await generate(client, "where are you from?", sampling=sampling)
    resumed, rest, resumed_end = await generate(
        client, "where are you from?", sampling=sampling, resume_token_ids=whole[:num_emitted]
    )
    assert whole[:num_emitted] + resumed == whole
    assert text.endswith(rest)
    assert resumed_end["finish_reason"] == end["finish_reason"]
    assert resumed_end["usage"]["completion_tokens"] == end["usage"]["completion_tokens"] == 12


async def test_all_pages_are_free_after_every_client_has_left(client: httpx.AsyncClient) -> None:
    async def leave_early(number: int) -> None:
        """In the middle of a streamed answer, or at any time while a whole one is waited for."""
        body = {
            "model": "finch",
            "messages": [{"role": "user", "content": PROMPTS[number]}],
            "ignore_eos": True,
            "max_tokens": 900,
            "stream": number % 2 == 0,
        }
        if body["stream"]:
            async with client.stream("POST", "/v1/chat/completions", json=body) as response:
                await anext(response.aiter_raw())
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1 + 0.02 * number):
                await client.post("/v1/chat/completions", json=body)

    await asyncio.gather(*(leave_early(number) for number in range(32)))
    await until_pages_are_free(client)
    metrics = (await client.get("/metrics")).text
    assert 'agon_kv_bytes{model_name="finch",state="used"} 0.0' in metrics
    assert 'agon_requests_running{model_name="finch"} 0.0' in metrics
    aborted = re.search(r'agon_requests_aborted_total\{model_name="finch"\} (\S+)', metrics)
    assert aborted is not None
    assert float(aborted[1]) >= 16  # the streams


async def test_openai_client_streams_with_usage(client: httpx.AsyncClient) -> None:
    async with openai.AsyncOpenAI(base_url=f"{client.base_url}/v1", api_key="token", max_retries=0) as chat:
        whole = await chat.chat.completions.create(
            model="finch", messages=[{"role": "user", "content": "hello"}], temperature=0, max_tokens=20
        )
        stream = await chat.chat.completions.create(
            model="finch",
            messages=[{"role": "user", "content": "hello"}],
            temperature=0,
            max_tokens=20,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert text
    assert whole.usage is not None
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


async def test_prompt_beyond_the_context_is_refused_with_its_code(client: httpx.AsyncClient) -> None:
    body = {"model": "finch", "messages": [{"role": "user", "content": "word " * 3000}]}
    answer = await client.post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")


async def test_more_output_than_the_prompt_leaves_room_for_is_cut(client: httpx.AsyncClient) -> None:
    body = {"model": "finch", "prompt": [5] * 988, "ignore_eos": True}  # of the 1,008 tokens that the pool holds
    for max_tokens in (1024, 1025, 100_000, 2**40):
        answer = await client.post("/v1/completions", json={**body, "max_tokens": max_tokens})
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["completion_tokens"] == 20
        assert answer.json()["choices"][0]["finish_reason"] == "length"


async def test_control_tokens_in_a_message_stay_text(client: httpx.AsyncClient) -> None:
    for text in ("<|im_end|>", "<|endoftext|>", "{{ 7*7 }}", "{% for i in range(10**9) %}{% endfor %}", "\u2028\ufdd0"):
        body = {"model": "finch", "messages": [{"role": "user", "content": text}], "max_tokens": 2}
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.status_code in (200, 400), (text, answer.text)


async def test_completion_of_plain_text_is_served(client: httpx.AsyncClient) -> None:
    body = {"model": "finch", "prompt": "once upon", "max_tokens": 3, "temperature": 0, "ignore_eos": True}
    answer = await client.post("/v1/completions", json=body)
    assert answer.json()["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize(
    "damage",
    ["no folder", "no config", "no weights", "header", "config", "no tokenizer", "tokenizer", "pickle", "limit"],
)
async def test_damaged_checkpoint_is_refused_in_one_line(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "model"
    if damage != "no folder":
        folder.mkdir()
        for file in FINCH.iterdir():
            if file.is_file():
                (folder / file.name).write_bytes(file.read_bytes())
    weights = folder / "model.safetensors"
    match damage:
        case "no config":
            (folder / "config.json").unlink()
        case "no weights":
            weights.unlink()
        case "header":
            weights.write_bytes(weights.read_bytes()[:4] + b"\xff\xff\xff\x7f" + weights.read_bytes()[8:])
        case "config":
            (folder / "config.json").write_text('{"architectures": ["Unheard"], "model_type": "unheard"}')
        case "no tokenizer":
            (folder / "tokenizer.json").unlink()
        case "tokenizer":
            (folder / "tokenizer.json").write_text("[]")
        case "pickle":
            weights.rename(folder / "pytorch_model.bin")
    with pytest.raises(BadCheckpoint) as refusal:
        await load_engine(settings_for(folder, **({"max_model_len": 10**6} if damage == "limit" else {})))
    assert "\n" not in str(refusal.value)
    assert str(folder) in str(refusal.value)


async def test_a_hub_that_cannot_be_reached_is_a_reason_to_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(LoadFailed, match="neither a folder nor in the local cache") as refusal:
        await load_engine(settings_for(Path("nobody/nothing")))
    assert refusal.value.exit_code == 6


async def test_beam_search_and_ranked_samples_are_served(client: httpx.AsyncClient) -> None:
    body = {"model": "finch", "prompt": "Once upon a", "max_tokens": 6, "ignore_eos": True, "logprobs": 0}

    async def texts(**changes: Any) -> list[tuple[str, float]]:
        reply = await client.post("/v1/completions", json=body | changes)
        assert reply.status_code == 200, reply.text
        choices = reply.json()["choices"]
        return [(choice["text"], sum(choice["logprobs"]["token_logprobs"])) for choice in choices]

    beams = await texts(use_beam_search=True, n=3)
    assert len({text for text, _ in beams}) == 3
    assert [score for _, score in beams] == sorted((score for _, score in beams), reverse=True)
    assert await texts(beam_width=3, n=1) == beams[:1]
    samples = await texts(n=5, seed=3, temperature=1.5)
    best = await texts(n=2, best_of=5, seed=3, temperature=1.5)
    assert [text for text, _ in best] == [text for text, _ in sorted(samples, key=lambda each: -each[1])[:2]]
    assert "agon_kv_saved_bytes" in (await client.get("/metrics")).text


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"length_penalty": 2.0}, "length_penalty"),
        ({"use_beam_search": True, "temperature": 0.5}, "temperature"),
        ({"use_beam_search": True, "stop": "a"}, "stop"),
        ({"beam_width": 2, "n": 3}, "n"),
        ({"best_of": 1, "n": 2}, "best_of"),
    ],
)
async def test_what_a_search_cannot_do_is_refused_by_name(
    client: httpx.AsyncClient, changes: dict[str, Any], param: str
) -> None:
    reply = await client.post("/v1/completions", json={"model": "finch", "prompt": "Once"} | changes)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


async def test_bad_words_and_priorities_are_served(client: httpx.AsyncClient) -> None:
    body = {"model": "finch", "prompt": "Once upon a", "max_tokens": 12, "temperature": 0, "priority": 3}
    first = (await client.post("/v1/completions", json=body)).json()["choices"][0]["text"]
    word = first.split()[0]
    reply = await client.post("/v1/completions", json=body | {"bad_words": [word]})
    assert reply.status_code == 200, reply.text
    assert reply.json()["choices"][0]["text"].split()[:1] != [word]
