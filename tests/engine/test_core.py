from dataclasses import replace

import pytest

from engine.config import SamplingParams
from tests.engine.fakes import GREEDY, TWO_TYPES, continuation, make_core, run_all, text_of

PROMPT = [5, 9, 17, 33, 65, 2, 4, 8, 16, 32]


def test_a_request_yields_the_tokens_that_its_context_determines():
    core, _ = make_core()
    core.add("a", PROMPT, GREEDY)
    (sample,) = run_all(core)["a"]
    assert sample.token_ids == continuation(PROMPT, GREEDY)
    assert sample.text == text_of(sample.token_ids)
    assert sample.finish_reason == "length"


PROMPTS = [[(7 * i + j * (i + 3)) % 120 + 2 for j in range(3 + 5 * i % 37)] for i in range(12)]
EXPECTED = [continuation(prompt, GREEDY) for prompt in PROMPTS]


@pytest.mark.parametrize("layers", ["one", "two"])
@pytest.mark.parametrize("num_pages", [16, 24, 200])
@pytest.mark.parametrize("max_batched_tokens", [1, 7, 64])
@pytest.mark.parametrize("enable_prefix_caching", [True, False])
def test_tokens_do_not_depend_on_pool_chunk_or_cache(layers, num_pages, max_batched_tokens, enable_prefix_caching):
    core, _ = make_core(
        num_pages,
        **({"layers": TWO_TYPES} if layers == "two" else {}),
        max_batched_tokens=max_batched_tokens,
        max_running=5,
        enable_prefix_caching=enable_prefix_caching,
    )
    for index, prompt in enumerate(PROMPTS):
        core.add(str(index), prompt, GREEDY)
    outputs = run_all(core)
    assert [outputs[str(index)][0].token_ids for index in range(len(PROMPTS))] == EXPECTED


def test_a_small_pool_preempts_and_the_tokens_stay_the_same():
    core, _ = make_core(10, max_running=8)
    params = replace(GREEDY, max_tokens=24)
    for index in range(6):
        core.add(str(index), PROMPTS[index][:5], params)
    outputs = run_all(core)
    assert core.stats().preemptions_total > 0
    for index in range(6):
        assert outputs[str(index)][0].token_ids == continuation(PROMPTS[index][:5], params)


@pytest.mark.parametrize("num_pages", [14, 60])
@pytest.mark.parametrize("max_batched_tokens", [2, 64])
def test_n_samples_by_fork_equal_n_requests_with_their_seeds(num_pages, max_batched_tokens):
    params = SamplingParams(n=4, seed=7, max_tokens=9, ignore_eos=True)
    core, _ = make_core(num_pages, max_batched_tokens=max_batched_tokens)
    core.add("a", PROMPT, params)
    core.add("b", PROMPT[:3], replace(params, seed=8))
    outputs = run_all(core)
    for request_id, prompt, seed in (("a", PROMPT, 7), ("b", PROMPT[:3], 8)):
        expected = [continuation(prompt, params, seed=seed, index=index) for index in range(4)]
        assert [sample.token_ids for sample in outputs[request_id]] == expected


def test_forked_samples_compute_the_prompt_once_and_copy_only_the_last_page():
    core, runner = make_core()
    core.add("a", PROMPT, replace(GREEDY, n=4, temperature=1.0, seed=3, max_tokens=2))
    run_all(core)
    assert sum(plan.num_tokens for plan in runner.plans) == len(PROMPT) + 4
    assert core.stats().page_copies_total == 3
