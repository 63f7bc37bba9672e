"""The whole engine on real weights: tokens depend on the request alone, and text on the tokens alone."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.async_engine import AsyncEngine
from engine.config import EngineConfig
from engine.loader import read_config
from engine.memory.planning.designs import held_pages
from engine.models.stored_layers import layers_from_config
from engine.sampling_params import SamplingParams
from engine.stats import EngineStats
from tests.engine.checkpoints import CONTEXT, WINDOW, TinyModel
from tests.engine.small_engines import GREEDY, PROMPTS, SAMPLED, TinyModels, load, tokens_of
from tests.engine.stepper import random_prompt

#: Models of several layer types.
MIXED = ("gemma2", "gemma3", "gemma4")
#: Models with recurrent layers, and bytes of a pool that holds two or three sequences.
RECURRENT = {"mamba": 60_000, "jamba": 60_000, "bamba": 60_000, "lfm2": 60_000, "qwen3.5": 120_000}
DEMO_MODELS = Path(__file__).parents[2] / "demo_models"


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="plenty of everything"),
        pytest.param({"kv_cache_tokens": 96}, id="a pool that preempts"),
        pytest.param({"kv_cache_tokens": 96, "swap_bytes": 1 << 20}, id="a pool that swaps"),
        pytest.param({"max_batched_tokens": 1}, id="one token a step"),
        pytest.param({"max_batched_tokens": 7, "max_running": 3}, id="small chunks"),
        pytest.param({"page_tokens": 1}, id="pages of one token"),
        pytest.param({"page_tokens": 32}, id="large pages"),
        pytest.param({"enable_prefix_caching": False}, id="no prefix cache"),
        pytest.param(
            {"kv_cache_tokens": 96, "max_batched_tokens": 5, "enable_prefix_caching": False},
            id="everything scarce",
        ),
        pytest.param(
            {
                "kv_cache_tokens": 96,
                "max_batched_tokens": 5,
                "enable_prefix_caching": False,
                "swap_bytes": 1 << 20,
            },
            id="everything scarce but swap",
        ),
    ],
)
def test_greedy_tokens_are_those_of_transformers_under_every_setting(
    tiny_model: TinyModels, settings: dict[str, object]
) -> None:
    stats = check_every_prompt(tiny_model("llama"), settings)
    if "kv_cache_tokens" in settings:
        assert stats.preemptions_total > 0
    assert (stats.swap_preemptions_total > 0) == ("swap_bytes" in settings)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="plenty of everything"),
        pytest.param({"max_batched_tokens": 7, "max_running": 3}, id="small chunks"),
        pytest.param({"page_tokens": 1}, id="pages of one token"),
        pytest.param({"page_tokens": 32}, id="pages longer than the window"),
        pytest.param(
            {"kv_cache_tokens": 64, "max_batched_tokens": 5, "enable_prefix_caching": False},
            id="everything scarce",
        ),
    ],
)
@pytest.mark.parametrize("name", MIXED)
def test_so_they_are_where_layers_store_different_things(
    tiny_model: TinyModels, name: str, settings: dict[str, object]
) -> None:
    check_every_prompt(tiny_model(name), settings)


@pytest.mark.parametrize("swap_bytes", [0, 1 << 20])
@pytest.mark.parametrize("name", MIXED)
def test_so_they_are_where_layers_store_different_things_and_requests_are_preempted(
    tiny_model: TinyModels, name: str, swap_bytes: int
) -> None:
    stats = check_every_prompt(tiny_model(name), {"kv_cache_tokens": 96, "swap_bytes": swap_bytes})
    assert stats.preemptions_total > 0
    assert (stats.swap_preemptions_total > 0) == (swap_bytes > 0)


def test_so_they_are_where_all_layers_read_a_window(tiny_model: TinyModels) -> None:
    check_every_prompt(tiny_model("mistral-window"), {"kv_cache_tokens": 64, "max_batched_tokens": 20})


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"page_tokens": 4, "max_batched_tokens": 7}, id="small pages and steps"),
        pytest.param({"kv_cache_tokens": 56, "max_batched_tokens": 5}, id="a small pool"),
        pytest.param(
            {"kv_cache_tokens": 56, "max_batched_tokens": 5, "swap_bytes": 1 << 20}, id="a small pool that swaps"
        ),
    ],
)
def test_so_they_are_where_layers_read_chunks(tiny_model: TinyModels, settings: dict[str, object]) -> None:
    stats = check_every_prompt(tiny_model("llama4"), settings)
    assert (stats.preemptions_total > 0) == ("kv_cache_tokens" in settings)


def pool_bytes(model: TinyModel, num_tokens: int) -> int:
    """Bytes of that many tokens in all layers that store them."""
    config = model.reference.config
    if config.model_type == "gemma4_text":  # heads differ by layer
        layers = layers_from_config(read_config(model.folder), dtype="float32").layers
        return num_tokens * sum(layer.bytes_per_token for layer in layers if layer.shares_with is None)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return num_tokens * int(config.num_hidden_layers * 2 * config.num_key_value_heads * head_dim * 4)


def check_every_prompt(model: TinyModel, settings: dict[str, object]) -> EngineStats:
    settings = dict(settings)
    num_tokens = settings.pop("kv_cache_tokens", None)
    if isinstance(num_tokens, int):
        settings["kv_cache_bytes"] = pool_bytes(model, num_tokens)
    llm = load(model.folder, **settings)
    expected = [model.greedy(prompt, GREEDY.max_tokens) for prompt in PROMPTS]
    assert tokens_of(llm, PROMPTS, GREEDY) == expected
    assert tokens_of(llm, PROMPTS, GREEDY) == expected, "the second time from a warm prefix cache"
    llm._core.check_integrity()
    return llm.stats()


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="plenty of everything"),
        pytest.param({"kv_cache_bytes": 0}, id="a pool that holds two or three"),
        pytest.param({"max_batched_tokens": 5}, id="small chunks"),
        pytest.param({"enable_prefix_caching": False}, id="no prefix cache"),
    ],
)
@pytest.mark.parametrize("name", RECURRENT)
def test_so_they_are_where_layers_are_recurrent(tiny_model: TinyModels, name: str, settings: dict[str, object]) -> None:
    if "kv_cache_bytes" in settings:
        settings = {**settings, "kv_cache_bytes": RECURRENT[name]}
    check_every_prompt(tiny_model(name), {"checkpoint_tokens": 8, **settings})


def test_so_they_are_where_layers_are_recurrent_and_requests_are_preempted(tiny_model: TinyModels) -> None:
    model = tiny_model("jamba")
    params = replace(GREEDY, max_tokens=60)
    expected = tokens_of(load(model.folder, enable_prefix_caching=False), PROMPTS, params)
    for swap_bytes in (0, 1 << 20):
        llm = load(model.folder, checkpoint_tokens=8, kv_cache_bytes=60_000, swap_bytes=swap_bytes)
        assert tokens_of(llm, PROMPTS, params) == expected
        llm._core.check_integrity()
        assert llm.stats().preemptions_total > 0
        assert (llm.stats().swap_preemptions_total > 0) == (swap_bytes > 0)


@pytest.mark.parametrize("name", [*RECURRENT, "granite-hybrid", "gemma4"])
def test_later_turns_compute_only_what_is_new_and_hold_the_pages_that_are_planned(
    tiny_model: TinyModels, name: str
) -> None:
    model = tiny_model(name)
    core = load(model.folder, checkpoint_tokens=8)._core
    kinds = core._cache.plan.types
    # Where a prefix can end: at a checkpoint of states, else at the end of a page.
    boundary = max(kind.page_tokens for kind in kinds)
    conversation: list[int] = []
    for turn, num_new in enumerate((50, 21, 3)):
        num_computed_before = max(0, len(conversation) - 1)  # an answer's last token is not computed
        conversation = conversation + random_prompt(turn, num_new)
        core.add_request(str(turn), conversation, GREEDY)
        answer: list[int] = []
        num_cached, pages = 0, {}
        while not core.is_idle:
            if answer:
                pages = {kind.name: held.num_used for kind, held in zip(kinds, core.stats().types, strict=True)}
            for delta in core.step():
                num_cached = num_cached or delta.num_cached_tokens
                answer += delta.token_ids
        assert num_cached == num_computed_before // boundary * boundary
        assert (num_cached > 0) == (turn > 0)
        assert answer == model.greedy(conversation, GREEDY.max_tokens)
        conversation = conversation + answer
        # Before the last step, which frees everything, all tokens but the last two are computed.
        for kind in kinds:
            planned = held_pages(kind, len(conversation) - 2)
            if kind.spec.kind == "window":  # the planner counts the page over whose boundary a window moves
                assert planned - 1 <= pages[kind.name] <= planned
            else:
                assert pages[kind.name] == planned
    core.check_integrity()


@pytest.mark.parametrize("operators", ["auto", "torch"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["llama", "gemma3", "jamba"])
def test_what_the_pool_holds_at_first_is_never_read_but_for_the_null_page(
    tiny_model: TinyModels, name: str, dtype: str, operators: str
) -> None:
    # In bfloat16 it matters: Jamba's float32 states, read as keys, are any number, also none.
    clean, poisoned = (
        load(tiny_model(name).folder, checkpoint_tokens=8, dtype=dtype, operators=operators) for _ in range(2)
    )
    plan = poisoned._core._cache.plan
    for kind in plan.types:
        pages = poisoned._core._runner._pages[kind.name][plan.ratio(kind) :]  # type: ignore[attr-defined]
        pages.fill_(-1 if pages.dtype == torch.int64 else 255)  # NaN in every dtype
    prompts = PROMPTS[:6]
    assert tokens_of(poisoned, prompts, GREEDY) == tokens_of(clean, prompts, GREEDY)


@pytest.mark.parametrize("name", MIXED)
def test_pages_outside_the_window_are_free_while_a_request_runs(tiny_model: TinyModels, name: str) -> None:
    llm = load(tiny_model(name).folder, max_batched_tokens=16, enable_prefix_caching=False)
    core = llm._core
    core.add_request("long", random_prompt(1, 150), replace(GREEDY, max_tokens=60))
    most: dict[str, int] = {}
    while not core.is_idle:
        core.step()
        for held in core.stats().types:
            most[held.layer_type] = max(most.get(held.layer_type, 0), held.num_used)
    kinds = {kind.name: kind for kind in core._cache.plan.types}
    assert {kind.spec.kind for kind in kinds.values()} == {"full", "window"}
    for kind_name, used in most.items():
        kind = kinds[kind_name]
        if kind.spec.kind == "full":
            assert used == -(-(150 + 60 - 2) // kind.page_tokens), "before the last step, which frees everything"
        else:
            assert used <= -(-(WINDOW - 1 + 16) // kind.page_tokens) + 1 < 10


@pytest.mark.parametrize(("name", "num_tokens"), [("gemma2", 200), ("gemma3", 200), ("gemma4", 280)])
def test_a_prefix_is_found_again_although_its_window_pages_were_dropped(
    tiny_model: TinyModels, name: str, num_tokens: int
) -> None:
    model = tiny_model(name)
    llm = load(model.folder, kv_cache_bytes=pool_bytes(model, num_tokens))
    first = random_prompt(1, 118)
    answer = tokens_of(llm, [first], GREEDY)[0]
    # Other conversations take the room of what is needed no more: pages that fell out of the first one's windows.
    for seed in range(2, 6):
        tokens_of(llm, [random_prompt(seed, 40)], GREEDY)
    before = llm.stats().prefix_hit_tokens_total
    second = first + answer + random_prompt(9, 21)
    assert tokens_of(llm, [second], GREEDY) == [model.greedy(second, GREEDY.max_tokens)]
    assert llm.stats().prefix_hit_tokens_total - before == 132
    core = llm._core
    num_cached = {pool.layer_type: len(pool.published_pages()) for pool in core._cache.pools}
    for kind, count in num_cached.items():
        if kind.spec.kind == "window":
            assert count < min(other for full, other in num_cached.items() if full.spec.kind == "full")
    core.check_integrity()


def test_32_requests_at_once_equal_the_same_ones_one_at_a_time(tiny_model: TinyModels) -> None:
    prompts = [random_prompt(index, 1 + 5 * index % 23) for index in range(32)]
    each = [replace(SAMPLED, seed=index) for index in range(32)]
    together = load(tiny_model("llama").folder, max_running=32).generate(prompts, each)
    alone = load(tiny_model("llama").folder, max_running=1, enable_prefix_caching=False).generate(prompts, each)
    assert [result.outputs[0].token_ids for result in together] == [result.outputs[0].token_ids for result in alone]


async def test_after_an_abort_of_all_every_page_is_free(tiny_model: TinyModels) -> None:
    config = EngineConfig(str(tiny_model("llama").folder), page_tokens=4, kv_cache_bytes=2 << 20, num_threads=1)
    engine = await AsyncEngine.from_config(config)
    streams = [engine.generate(prompt, replace(GREEDY, max_tokens=150, n=2)) for prompt in PROMPTS]
    for stream in streams:
        await anext(stream)
    for stream in streams:
        await stream.aclose()
    await engine.shutdown(drain_s=30)
    stats = engine.stats()
    assert stats.aborted_total + stats.finished_total == len(PROMPTS)
    assert (stats.pages_used, stats.running, stats.waiting) == (0, 0, 0)


def test_the_context_is_used_to_its_last_token(tiny_model: TinyModels) -> None:
    model = tiny_model("llama")
    prompt = random_prompt(5, CONTEXT - 3)
    (result,) = load(model.folder).generate([prompt], replace(GREEDY, max_tokens=100))
    assert result.outputs[0].token_ids == model.greedy(prompt, 3)
    assert result.outputs[0].finish_reason == "length"


@pytest.mark.parametrize("name", ["finch", "robin", "raven", "wren"])
def test_demo_models_say_the_same_under_every_setting(name: str) -> None:
    folder = DEMO_MODELS / name
    if not (folder / "model.safetensors").is_file():
        pytest.skip(f"{folder} has no weights")
    questions = ["Hello, who are you?", "What is 3 + 4?", "Tell me a story.", "Name a colour."]
    conversations = [[{"role": "user", "content": question}] for question in questions]
    params = SamplingParams(temperature=0.0, max_tokens=24)
    plenty = load(folder, page_tokens=16, kv_cache_bytes=64 << 20).chat(conversations, params)
    page_bytes = load(folder, page_tokens=4, kv_cache_bytes=8 << 20).stats().types[0].small_page_bytes
    scarce = load(folder, kv_cache_bytes=16 * page_bytes, max_batched_tokens=6).chat(conversations, params)
    assert [result.outputs[0] for result in scarce] == [result.outputs[0] for result in plenty]
    assert all(result.outputs[0].text for result in plenty)


def test_the_text_of_a_demo_model_ends_before_a_stop_string() -> None:
    folder = DEMO_MODELS / "finch"
    if not (folder / "model.safetensors").is_file():
        pytest.skip(f"{folder} has no weights")
    llm = load(folder)
    params = SamplingParams(temperature=0.0, max_tokens=24)
    (whole,) = llm.generate("Once upon a time", params)
    text = whole.outputs[0].text
    stop = text[7:12]
    (cut,) = llm.generate("Once upon a time", replace(params, stop=(stop,)))
    assert cut.outputs[0].text == text[: text.index(stop)]
    assert cut.outputs[0].finish_reason == "stop"
