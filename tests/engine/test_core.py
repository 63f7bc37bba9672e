"""The core over a runner without a model: tokens depend on the request alone, and its numbers add up."""

from dataclasses import replace

import pytest

from engine.memory.spec import LayerSpec
from engine.sampling_params import SamplingParams
from tests.engine.fakes import (
    GREEDY,
    ONE_TYPE,
    TWO_TYPES,
    Clock,
    continuation,
    make_core,
    run_all,
    run_one,
    text_of,
)

PROMPT = [5, 9, 17, 33, 65, 2, 4, 8, 16, 32]
PROMPTS = [[(7 * i + j * (i + 3)) % 120 + 2 for j in range(3 + 5 * i % 37)] for i in range(12)]
SAMPLED = SamplingParams(n=4, seed=7, max_tokens=9, ignore_eos=True)


def test_a_request_yields_the_tokens_that_its_context_determines() -> None:
    core, _ = make_core()
    (sample,) = run_one(core, PROMPT, GREEDY)
    assert sample.token_ids == continuation(PROMPT, GREEDY)
    assert sample.text == text_of(sample.token_ids)
    assert sample.finish_reason == "length"


# Independence of everything that is not the request


@pytest.mark.parametrize("layers", [ONE_TYPE, TWO_TYPES], ids=["one type", "two types"])
@pytest.mark.parametrize("num_pages", [16, 24, 200])
@pytest.mark.parametrize("max_batched_tokens", [1, 7, 64])
@pytest.mark.parametrize("enable_prefix_caching", [True, False])
def test_tokens_do_not_depend_on_pool_chunk_or_cache(
    layers: tuple[LayerSpec, ...], num_pages: int, max_batched_tokens: int, enable_prefix_caching: bool
) -> None:
    core, _ = make_core(
        num_pages,
        layers=layers,
        max_batched_tokens=max_batched_tokens,
        max_running=5,
        enable_prefix_caching=enable_prefix_caching,
    )
    for index, prompt in enumerate(PROMPTS):
        core.add_request(str(index), prompt, GREEDY)
    outputs = run_all(core)
    assert [outputs[str(index)][0].token_ids for index in range(len(PROMPTS))] == [
        continuation(prompt, GREEDY) for prompt in PROMPTS
    ]


@pytest.mark.parametrize("page_tokens", [1, 3, 16])
def test_tokens_do_not_depend_on_the_page_size(page_tokens: int) -> None:
    core, _ = make_core(100, page_tokens=page_tokens)
    (sample,) = run_one(core, PROMPT, GREEDY)
    assert sample.token_ids == continuation(PROMPT, GREEDY)


def test_32_requests_at_once_equal_the_same_ones_one_at_a_time() -> None:
    params = [SamplingParams(seed=seed, max_tokens=6, ignore_eos=True) for seed in range(32)]
    together, _ = make_core(400)
    for seed in range(32):
        together.add_request(str(seed), PROMPTS[seed % 12], params[seed])
    outputs = run_all(together)
    alone, _ = make_core(400)
    for seed in range(32):
        (sample,) = run_one(alone, PROMPTS[seed % 12], params[seed])
        assert sample.token_ids == outputs[str(seed)][0].token_ids


def test_a_small_pool_preempts_and_the_tokens_stay_the_same() -> None:
    core, _ = make_core(10, max_running=8)
    params = replace(GREEDY, max_tokens=24)
    for index in range(6):
        core.add_request(str(index), PROMPTS[index][:5], params)
    outputs = run_all(core)
    assert core.stats().preemptions_total > 0
    for index in range(6):
        assert outputs[str(index)][0].token_ids == continuation(PROMPTS[index][:5], params)


# Parallel samples


@pytest.mark.parametrize("num_pages", [14, 60])
@pytest.mark.parametrize("max_batched_tokens", [2, 64])
def test_n_samples_by_fork_equal_n_requests_with_their_seeds(num_pages: int, max_batched_tokens: int) -> None:
    core, _ = make_core(num_pages, max_batched_tokens=max_batched_tokens)
    core.add_request("a", PROMPT, SAMPLED)
    core.add_request("b", PROMPT[:3], replace(SAMPLED, seed=8))
    outputs = run_all(core)
    for request_id, prompt, seed in (("a", PROMPT, 7), ("b", PROMPT[:3], 8)):
        expected = [continuation(prompt, SAMPLED, seed=seed, index=index) for index in range(4)]
        assert [sample.token_ids for sample in outputs[request_id]] == expected


def test_forked_samples_compute_the_prompt_once_and_copy_only_the_last_page() -> None:
    core, runner = make_core()
    run_one(core, PROMPT, replace(SAMPLED, max_tokens=2))
    assert sum(plan.num_tokens for plan in runner.plans) == len(PROMPT) + 4
    assert core.stats().page_copies_total == 3


def test_samples_of_a_prompt_that_fills_its_pages_copy_nothing() -> None:
    core, _ = make_core()
    run_one(core, PROMPT[:8], SAMPLED)
    assert core.stats().page_copies_total == 0


def test_a_preempted_request_with_samples_shares_its_prompt_again_without_the_prefix_cache() -> None:
    prompt, params = [*PROMPT, *PROMPT], replace(SAMPLED, max_tokens=20)
    core, runner = make_core(28, enable_prefix_caching=False)
    core.add_request("old", PROMPT, replace(GREEDY, max_tokens=60))
    core.add_request("new", prompt, params)
    outputs = run_all(core)
    assert core.stats().preemptions_total == 1
    expected = [continuation(prompt, params, seed=7, index=index) for index in range(4)]
    assert [sample.token_ids for sample in outputs["new"]] == expected
    num_prompt_runs = sum(
        len(sequence.token_ids) for plan in runner.plans for sequence in plan.sequences if sequence.start < len(prompt)
    )
    assert num_prompt_runs < 2 * len(prompt) + len(PROMPT) + 60


def test_samples_end_independently() -> None:
    core, _ = make_core()
    samples = run_one(core, PROMPT, replace(SAMPLED, max_tokens=40, stop_token_ids=tuple(range(0, 128, 9))))
    assert [sample.finish_reason for sample in samples] == ["stop"] * 4
    assert len({len(sample.token_ids) for sample in samples}) > 1


# What is told


def test_a_repeated_prompt_is_found_in_the_prefix_cache() -> None:
    core, _ = make_core()
    (first,) = run_one(core, PROMPT, GREEDY)
    (second,) = run_one(core, PROMPT, GREEDY)
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 8)
    assert first.token_ids == second.token_ids
    stats = core.stats()
    assert (stats.prefix_query_tokens_total, stats.prefix_hit_tokens_total) == (20, 8)


def test_another_salt_finds_nothing() -> None:
    core, _ = make_core()
    run_one(core, PROMPT, GREEDY, cache_salt=b"one")
    (second,) = run_one(core, PROMPT, GREEDY, cache_salt=b"two")
    assert second.num_cached_tokens == 0


def test_stats_tell_pages_bytes_and_totals() -> None:
    core, _ = make_core(20)
    core.add_request("a", PROMPT, GREEDY)
    core.add_request("b", PROMPT, GREEDY)
    core.step()
    stats = core.stats()
    assert (stats.running, stats.running_sequences, stats.waiting) == (2, 2, 0)
    assert (stats.pages_used, stats.pages_evictable, stats.pages_empty, stats.pages_total) == (6, 0, 14, 20)
    assert stats.kv_bytes_used == 6 * stats.types[0].small_page_bytes
    assert stats.kv_bytes_total == 21 * stats.types[0].small_page_bytes
    run_all(core)
    stats = core.stats()
    assert (stats.prompt_tokens_total, stats.generation_tokens_total) == (20, 24)
    assert (stats.finished_total, stats.aborted_total, stats.steps_total) == (2, 0, 12)
    assert stats.pages_used == 0


def test_tokens_per_second_are_those_of_the_last_five_seconds() -> None:
    clock = Clock()
    core, _ = make_core(clock=clock)
    core.add_request("a", PROMPT, GREEDY)
    run_all(core)
    assert core.stats().tokens_per_s == 12 / 5
    clock.now = 5.1
    assert core.stats().tokens_per_s == 0


def test_deltas_tell_how_long_a_request_has_waited() -> None:
    clock = Clock()
    core, _ = make_core(max_running=1, clock=clock)
    core.add_request("a", PROMPT, replace(GREEDY, max_tokens=1))
    core.add_request("b", PROMPT, replace(GREEDY, max_tokens=1))
    clock.now = 2.0
    assert [delta.queue_s for delta in core.step()] == [2.0]
    clock.now = 3.0
    assert [delta.queue_s for delta in core.step()] == [3.0]


def test_a_request_without_a_seed_draws_the_same_on_every_replica_and_others_for_other_ids() -> None:
    params = SamplingParams(max_tokens=8, ignore_eos=True)
    outputs = []
    for request_id in ("a", "a", "b"):
        core, _ = make_core()
        core.add_request(request_id, PROMPT, params)
        outputs.append(run_all(core)[request_id][0].token_ids)
    assert outputs[0] == outputs[1] != outputs[2]


def test_the_runner_is_closed_with_the_core() -> None:
    core, runner = make_core()
    core.close()
    assert runner.is_closed
