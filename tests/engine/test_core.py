"""The core over a runner without a model: tokens, samples, ends, resumptions, aborts, refusals, numbers."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from engine.config import SamplingParams
from engine.core import EngineCore
from engine.errors import ContextTooLong, InvalidRequest, QueueFull
from engine.memory.spec import LayerSpec
from engine.request import TokenLogprob
from tests.engine.fakes import (
    EOS,
    GREEDY,
    ONE_TYPE,
    TWO_TYPES,
    Clock,
    Sample,
    continuation,
    make_core,
    run_all,
    text_of,
)

PROMPT = [5, 9, 17, 33, 65, 2, 4, 8, 16, 32]
PROMPTS = [[(7 * i + j * (i + 3)) % 120 + 2 for j in range(3 + 5 * i % 37)] for i in range(12)]
SAMPLED = SamplingParams(n=4, seed=7, max_tokens=9, ignore_eos=True)


def run_one(
    core: EngineCore,
    prompt: list[int],
    params: SamplingParams,
    *,
    resume_token_ids: Sequence[int] = (),
    cache_salt: bytes = b"",
) -> list[Sample]:
    core.add("only", prompt, params, resume_token_ids=resume_token_ids, cache_salt=cache_salt)
    return run_all(core)["only"]


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
        core.add(str(index), prompt, GREEDY)
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
        together.add(str(seed), PROMPTS[seed % 12], params[seed])
    outputs = run_all(together)
    alone, _ = make_core(400)
    for seed in range(32):
        (sample,) = run_one(alone, PROMPTS[seed % 12], params[seed])
        assert sample.token_ids == outputs[str(seed)][0].token_ids


def test_a_small_pool_preempts_and_the_tokens_stay_the_same() -> None:
    core, _ = make_core(10, max_running=8)
    params = replace(GREEDY, max_tokens=24)
    for index in range(6):
        core.add(str(index), PROMPTS[index][:5], params)
    outputs = run_all(core)
    assert core.stats().preemptions_total > 0
    for index in range(6):
        assert outputs[str(index)][0].token_ids == continuation(PROMPTS[index][:5], params)


# Parallel samples


@pytest.mark.parametrize("num_pages", [14, 60])
@pytest.mark.parametrize("max_batched_tokens", [2, 64])
def test_n_samples_by_fork_equal_n_requests_with_their_seeds(num_pages: int, max_batched_tokens: int) -> None:
    core, _ = make_core(num_pages, max_batched_tokens=max_batched_tokens)
    core.add("a", PROMPT, SAMPLED)
    core.add("b", PROMPT[:3], replace(SAMPLED, seed=8))
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
    core.add("old", PROMPT, replace(GREEDY, max_tokens=60))
    core.add("new", prompt, params)
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


# Ends


def test_a_stop_token_is_among_the_tokens_and_not_in_the_text() -> None:
    tokens = continuation(PROMPT, GREEDY)
    core, _ = make_core()
    (sample,) = run_one(core, PROMPT, replace(GREEDY, stop_token_ids=(tokens[4],)))
    assert sample.token_ids == tokens[:5]
    assert sample.text == text_of(tokens[:4])
    assert sample.finish_reason == "stop"


def test_no_stop_token_counts_before_min_tokens() -> None:
    tokens = continuation(PROMPT, GREEDY)
    core, _ = make_core()
    (sample,) = run_one(core, PROMPT, replace(GREEDY, stop_token_ids=(tokens[2],), min_tokens=3))
    assert sample.token_ids == tokens


def test_the_end_of_sequence_token_ends_a_request_unless_it_is_ignored() -> None:
    params = replace(GREEDY, max_tokens=400)
    tokens = continuation(PROMPT, params)
    position = tokens.index(EOS)
    core, _ = make_core(400)
    (sample,) = run_one(core, PROMPT, replace(params, ignore_eos=False))
    assert sample.token_ids == tokens[: position + 1]
    (sample,) = run_one(core, PROMPT, params)
    assert sample.token_ids == tokens


def test_the_text_ends_before_a_stop_string_and_no_delta_shows_a_part_of_it() -> None:
    tokens = continuation(PROMPT, GREEDY)
    text = text_of(tokens)
    core, _ = make_core()
    core.add("a", PROMPT, replace(GREEDY, stop=(text[5:8], "never said")))
    shown = ""
    while not core.is_idle:
        for delta in core.step():
            shown += delta.text
            assert text[:5].startswith(shown)
            last = delta
    assert shown == text[:5]
    assert last.finish_reason == "stop"
    assert last.num_output_tokens == 8


def test_text_held_back_for_a_stop_string_comes_out_at_the_end() -> None:
    text = text_of(continuation(PROMPT, GREEDY))
    core, _ = make_core()
    (sample,) = run_one(core, PROMPT, replace(GREEDY, stop=(text[-1] + "#",)))
    assert sample.text == text
    assert sample.finish_reason == "length"


def test_the_context_limit_ends_a_request() -> None:
    core, _ = make_core(max_model_len=16)
    (sample,) = run_one(core, PROMPT, replace(GREEDY, max_tokens=100))
    assert len(sample.token_ids) == 6
    assert sample.finish_reason == "length"


def test_logprobs_come_with_their_tokens() -> None:
    core, _ = make_core()
    core.add("a", PROMPT, replace(GREEDY, logprobs=2, max_tokens=1))
    (delta,) = core.step()
    assert delta.logprobs == (TokenLogprob(delta.token_ids[0], -0.5, ((0, -1.0), (1, -2.0))),)


# Resuming what another replica has begun


@pytest.mark.parametrize("num_done", range(1, 12))
@pytest.mark.parametrize("params", [GREEDY, SamplingParams(seed=3, max_tokens=12, ignore_eos=True)])
def test_a_resumed_request_goes_on_as_if_it_had_never_stopped(num_done: int, params: SamplingParams) -> None:
    core, _ = make_core()
    (whole,) = run_one(core, PROMPT, params)
    (rest,) = run_one(core, PROMPT, params, resume_token_ids=whole.token_ids[:num_done])
    assert whole.token_ids[:num_done] + rest.token_ids == whole.token_ids
    assert text_of(whole.token_ids[:num_done]) + rest.text == whole.text
    assert rest.finish_reason == "length"


def test_a_stop_string_that_began_before_the_resumption_is_found() -> None:
    tokens = continuation(PROMPT, GREEDY)
    text = text_of(tokens)
    core, _ = make_core()
    (rest,) = run_one(core, PROMPT, replace(GREEDY, stop=(text[4:8],)), resume_token_ids=tokens[:6])
    assert rest.text == ""
    assert rest.token_ids == tokens[6:8]
    assert rest.finish_reason == "stop"


def test_resumed_tokens_that_were_all_there_is_finish_at_once() -> None:
    tokens = continuation(PROMPT, GREEDY)
    core, runner = make_core()
    (rest,) = run_one(core, PROMPT, GREEDY, resume_token_ids=tokens)
    assert (rest.token_ids, rest.text, rest.finish_reason) == ([], "", "length")
    assert not runner.plans


def test_resumed_tokens_count_as_output() -> None:
    tokens = continuation(PROMPT, GREEDY)
    core, _ = make_core()
    core.add("a", PROMPT, GREEDY, resume_token_ids=tokens[:6])
    (delta,) = core.step()
    assert delta.num_output_tokens == 7
    assert delta.num_prompt_tokens == len(PROMPT)


# Aborts


@pytest.mark.parametrize("num_steps", [0, 1, 3, 5, 8])
@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["one sample", "four samples"])
def test_an_abort_in_any_phase_frees_all_pages_at_once(num_steps: int, params: SamplingParams) -> None:
    core, _ = make_core(16, max_batched_tokens=4, max_running=4)
    for request_id in "abc":
        core.add(request_id, PROMPT, params)
    for _ in range(num_steps):
        core.step()
    for request_id in "abc":
        core.abort(request_id)
    assert core.stats().pages_used == 0
    assert (core.stats().running, core.stats().waiting, core.stats().queued_tokens) == (0, 0, 0)
    last = {(delta.request_id, delta.index): delta.finish_reason for delta in core.step()}
    assert set(last.values()) == {"abort"}
    assert core.is_idle
    core.check_integrity()
    (sample, *_) = run_one(core, PROMPT, GREEDY)
    assert sample.token_ids == continuation(PROMPT, GREEDY)


def test_the_neighbours_of_an_aborted_request_do_not_notice() -> None:
    core, _ = make_core()
    core.add("a", PROMPT, GREEDY)
    core.add("b", PROMPT, GREEDY)
    core.step()
    core.abort("a")
    core.abort("unknown")
    assert run_all(core)["b"][0].token_ids == continuation(PROMPT, GREEDY)[1:]


# What is refused


def test_a_prompt_longer_than_the_context_is_refused_at_once() -> None:
    core, _ = make_core(max_model_len=10)
    with pytest.raises(ContextTooLong) as caught:
        core.add("a", PROMPT, GREEDY)
    assert caught.value.num_prompt_tokens == len(PROMPT)


def test_the_context_is_what_the_pool_can_hold() -> None:
    core, _ = make_core(num_pages=4)
    assert core.limits.max_model_len == 16
    (sample,) = run_one(core, PROMPT, replace(GREEDY, max_tokens=100))
    assert len(sample.token_ids) == 6


def test_samples_that_together_never_fit_are_refused_at_once() -> None:
    core, _ = make_core(num_pages=8)
    with pytest.raises(ContextTooLong):
        core.add("a", PROMPT, replace(SAMPLED, max_tokens=20))
    assert [sample.finish_reason for sample in run_one(core, PROMPT, replace(SAMPLED, max_tokens=2))] == ["length"] * 4


@pytest.mark.parametrize(
    ("params", "resume_token_ids"),
    [
        (replace(SAMPLED, n=5), []),
        (SAMPLED, [3]),
        (GREEDY, [3] * 13),
        (GREEDY, [300]),
    ],
)
def test_what_can_never_be_served_is_refused(params: SamplingParams, resume_token_ids: list[int]) -> None:
    core, _ = make_core(max_running=4)
    with pytest.raises(InvalidRequest):
        core.add("a", PROMPT, params, resume_token_ids=resume_token_ids)
    assert core.is_idle


def test_the_queue_is_bounded_in_requests_and_in_tokens() -> None:
    core, _ = make_core(max_queued_requests=3, max_queued_tokens=25)
    core.add("a", PROMPT, GREEDY)
    core.add("b", PROMPT, GREEDY)
    with pytest.raises(QueueFull):
        core.add("too many tokens", PROMPT, GREEDY)
    core.add("c", PROMPT[:2], GREEDY)
    with pytest.raises(QueueFull):
        core.add("too many requests", PROMPT[:2], GREEDY)
    core.step()
    core.add("d", PROMPT, GREEDY)
    assert set(run_all(core)) == {"a", "b", "c", "d"}


def test_a_prompt_above_the_token_bound_may_wait_alone() -> None:
    core, _ = make_core(max_queued_tokens=5)
    (sample,) = run_one(core, PROMPT, GREEDY)
    assert sample.finish_reason == "length"


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
    core.add("a", PROMPT, GREEDY)
    core.add("b", PROMPT, GREEDY)
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
    core.add("a", PROMPT, GREEDY)
    run_all(core)
    assert core.stats().tokens_per_s == 12 / 5
    clock.now = 5.1
    assert core.stats().tokens_per_s == 0


def test_deltas_tell_how_long_a_request_has_waited() -> None:
    clock = Clock()
    core, _ = make_core(max_running=1, clock=clock)
    core.add("a", PROMPT, replace(GREEDY, max_tokens=1))
    core.add("b", PROMPT, replace(GREEDY, max_tokens=1))
    clock.now = 2.0
    assert [delta.queue_s for delta in core.step()] == [2.0]
    clock.now = 3.0
    assert [delta.queue_s for delta in core.step()] == [3.0]


def test_a_request_without_a_seed_draws_the_same_on_every_replica_and_others_for_other_ids() -> None:
    params = SamplingParams(max_tokens=8, ignore_eos=True)
    outputs = []
    for request_id in ("a", "a", "b"):
        core, _ = make_core()
        core.add(request_id, PROMPT, params)
        outputs.append(run_all(core)[request_id][0].token_ids)
    assert outputs[0] == outputs[1] != outputs[2]


def test_the_runner_is_closed_with_the_core() -> None:
    core, runner = make_core()
    core.close()
    assert runner.is_closed
