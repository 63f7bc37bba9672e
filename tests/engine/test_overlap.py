"""A step in flight while the next is planned: what goes on, what waits, what is dropped, and when pages come back."""

from dataclasses import replace
from functools import partial

import pytest

from engine.batch import PENDING_TOKEN
from engine.sampling_params import SamplingParams
from tests.engine.fakes import EOS, GREEDY, PagedFakeRunner, continuation, make_core, run_all, text_of

PROMPT = [5, 9, 17, 33, 65, 2, 4, 8, 16, 32]
LONG = list(range(2, 42))  # ten pages of four tokens
FORKED = SamplingParams(n=3, seed=2, max_tokens=12, ignore_eos=True)


overlapping = partial(make_core, steps="overlapping")


def num_computed(runner: PagedFakeRunner) -> int:
    return sum(plan.num_tokens for plan in runner.plans)


def test_a_token_is_told_one_step_after_the_step_that_drew_it() -> None:
    core, runner = overlapping()
    core.add_request("a", PROMPT, GREEDY)
    assert core.step() == []
    assert [delta.token_ids for delta in core.step()] == [(continuation(PROMPT, GREEDY)[0],)]
    assert [len(plan.sequences) for plan in runner.plans] == [1, 1]


def test_only_the_first_step_is_planned_with_known_tokens() -> None:
    core, runner = overlapping()
    core.add_request("a", PROMPT, GREEDY)
    assert run_all(core)["a"][0].token_ids == continuation(PROMPT, GREEDY)
    tokens = [plan.sequences[0].token_ids for plan in runner.plans]
    assert tokens == [tuple(PROMPT)] + [(PENDING_TOKEN,)] * 11


def test_what_ends_by_length_computes_nothing_for_nothing() -> None:
    core, runner = overlapping(max_model_len=16)
    core.add_request("max_tokens", PROMPT, replace(GREEDY, max_tokens=4))
    core.add_request("context", LONG[:10], replace(GREEDY, max_tokens=100))
    core.add_request("one token", LONG[20:25], replace(GREEDY, max_tokens=1))
    outputs = run_all(core)
    assert [len(outputs[name][0].token_ids) for name in ("max_tokens", "context", "one token")] == [4, 6, 1]
    assert num_computed(runner) == (10 + 3) + (10 + 5) + 5


@pytest.mark.parametrize("position", [0, 1, 5])
def test_what_ends_by_a_token_computes_one_step_for_nothing(position: int) -> None:
    tokens = continuation(PROMPT, GREEDY)
    core, runner = overlapping()
    core.add_request("a", PROMPT, replace(GREEDY, stop_token_ids=(tokens[position],)))
    (sample,) = run_all(core)["a"]
    assert sample.token_ids == tokens[: tokens.index(tokens[position]) + 1]
    assert sample.finish_reason == "stop"
    assert num_computed(runner) == len(PROMPT) + len(sample.token_ids)
    assert core.stats().generation_tokens_total == len(sample.token_ids)


def test_an_end_of_sequence_before_min_tokens_does_not_count() -> None:
    params = replace(GREEDY, max_tokens=400, ignore_eos=False)
    tokens = continuation(PROMPT, params)
    position = tokens.index(EOS)
    core, _ = overlapping(400)
    core.add_request("a", PROMPT, params)
    core.add_request("b", PROMPT, replace(params, min_tokens=position + 2, max_tokens=position + 4))
    outputs = run_all(core)
    assert outputs["a"][0].token_ids == tokens[: position + 1]
    assert outputs["b"][0].token_ids == tokens[: position + 4]


def test_the_text_ends_before_a_stop_string_whatever_was_computed_behind_it() -> None:
    tokens = continuation(PROMPT, GREEDY)
    core, _ = overlapping()
    core.add_request("a", PROMPT, replace(GREEDY, stop=(text_of(tokens)[5:8],)))
    (sample,) = run_all(core)["a"]
    assert (sample.text, sample.token_ids) == (text_of(tokens[:5]), tokens[:8])


def test_samples_wait_for_one_step_until_they_can_share_their_prompt() -> None:
    core, runner = overlapping()
    core.add_request("alone", LONG[:3], GREEDY)
    core.add_request("forked", PROMPT, FORKED)
    outputs = run_all(core)
    assert [len(plan.sequences) for plan in runner.plans[:4]] == [2, 1, 4, 4], "neighbours do not wait"
    for index in range(3):
        assert outputs["forked"][index].token_ids == continuation(PROMPT, FORKED, seed=2, index=index)


def test_a_resumed_request_goes_on_as_if_it_had_never_stopped() -> None:
    params = SamplingParams(seed=3, max_tokens=12, ignore_eos=True)
    tokens = continuation(PROMPT, params, seed=3)
    for num_done in range(1, 12):
        core, _ = overlapping()
        core.add_request("a", PROMPT, params, resume_token_ids=tokens[:num_done])
        assert run_all(core)["a"][0].token_ids == tokens[num_done:]


def test_logprobs_come_with_their_tokens() -> None:
    core, _ = overlapping()
    core.add_request("a", PROMPT, replace(GREEDY, logprobs=2, max_tokens=3))
    deltas = [delta for _ in range(4) for delta in core.step()]
    assert [entry.token_id for delta in deltas for entry in delta.logprobs or ()] == continuation(PROMPT, GREEDY)[:3]


def test_penalties_wait_for_nothing_and_their_tokens_are_sent_once() -> None:
    core, runner = overlapping()
    core.add_request("plain", PROMPT, GREEDY)
    core.add_request("penalised", LONG[:7], replace(GREEDY, frequency_penalty=1.0))
    outputs = run_all(core)
    assert [len(plan.sequences) for plan in runner.plans] == [2] * 12
    mine = [s for plan in runner.plans for s in plan.sequences if s.sequence_id == 1]
    assert [s.history for s in mine] == [tuple(LONG[:7])] + [None] * 11
    assert [s.token_ids for s in mine[1:]] == [(PENDING_TOKEN,)] * 11
    assert outputs["penalised"][0].token_ids == continuation(LONG[:7], GREEDY)


def test_each_sample_with_penalties_sends_its_tokens_when_it_first_draws_alone() -> None:
    core, runner = overlapping()
    core.add_request("forked", PROMPT, replace(FORKED, presence_penalty=1.0))
    run_all(core)
    first = [continuation(PROMPT, FORKED, seed=2, index=index)[0] for index in range(3)]
    given = [s.history for plan in runner.plans for s in plan.sequences if s.history is not None]
    assert given == [tuple(PROMPT)] + [(*PROMPT, token_id) for token_id in first]


# Pages


def test_the_pages_of_an_aborted_request_are_used_until_its_step_has_ended() -> None:
    core, _ = overlapping()
    core.add_request("a", PROMPT, GREEDY)
    core.step()
    core.abort("a")
    assert core.stats().pages_used == 3
    assert not core.is_idle
    core.check_integrity()
    (delta,) = core.step()
    assert delta.finish_reason == "abort"
    assert core.is_idle
    core.check_idle()
    assert core.stats().steps_total == 1


@pytest.mark.parametrize("num_steps", [0, 1, 3, 5, 8])
@pytest.mark.parametrize("params", [GREEDY, FORKED], ids=["one sample", "three samples"])
def test_aborts_in_any_phase_leave_nothing_behind(num_steps: int, params: SamplingParams) -> None:
    core, _ = make_core(16, max_batched_tokens=4, max_running=4, steps="late")
    for request_id in "abc":
        core.add_request(request_id, PROMPT, params)
    for _ in range(num_steps):
        core.step()
    core.abort("b")
    core.abort("c")
    (sample, *_) = run_all(core)["a"]
    whole = continuation(PROMPT, params, seed=params.seed or 0)
    assert sample.token_ids == whole[len(whole) - len(sample.token_ids) :]
    assert core.stats().aborted_total == 2


def test_a_prefix_is_found_when_the_step_that_wrote_it_has_been_collected() -> None:
    core, _ = overlapping()
    core.add_request("a", LONG, GREEDY)
    core.step()
    core.add_request("too early", LONG, GREEDY)
    core.step()
    core.add_request("in time", LONG, GREEDY)
    outputs = run_all(core)
    assert [outputs[name][0].num_cached_tokens for name in ("too early", "in time")] == [0, 36]


def test_a_pool_whose_free_pages_all_wait_for_a_step_in_flight_goes_on() -> None:
    core, _ = overlapping(num_pages=5, enable_prefix_caching=False)
    stop = continuation(LONG[:15], GREEDY)[0]
    core.add_request("a", LONG[:15], replace(GREEDY, max_tokens=5, stop_token_ids=(stop,)))
    core.step()
    core.add_request("b", LONG[20:36], replace(GREEDY, max_tokens=4))
    outputs = run_all(core)
    assert outputs["a"][0].finish_reason == "stop"
    assert outputs["b"][0].token_ids == continuation(LONG[20:36], GREEDY)[:4]
    assert core.stats().preemptions_total == 0


def test_no_request_is_preempted_before_the_step_in_flight_has_ended() -> None:
    core, runner = overlapping(num_pages=12, num_mirror_pages=20)
    core.add_request("old", LONG[:10], replace(GREEDY, max_tokens=24))
    core.add_request("young", LONG[20:30], replace(GREEDY, max_tokens=24))
    outputs = run_all(core)
    assert core.stats().swap_preemptions_total == 1
    (plan,) = [plan for plan in runner.plans if plan.swap_outs and plan.sequences]
    assert all(PENDING_TOKEN not in sequence.token_ids for sequence in plan.sequences)
    assert outputs["old"][0].token_ids == continuation(LONG[:10], replace(GREEDY, max_tokens=24))
    assert outputs["young"][0].token_ids == continuation(LONG[20:30], replace(GREEDY, max_tokens=24))


def test_a_request_without_room_does_not_end_the_overlap_of_others() -> None:
    core, runner = overlapping(num_pages=6, page_tokens=32, enable_prefix_caching=False)
    params = replace(GREEDY, max_tokens=30)
    prompts = {"old": [3] * 30, "middle": [4] * 30, "young": [5] * 61}
    for request_id, prompt in prompts.items():
        core.add_request(request_id, prompt, params)
    outputs = run_all(core)
    for request_id, prompt in prompts.items():
        assert outputs[request_id][0].token_ids == continuation(prompt, params)
    assert core.stats().preemptions_total == 0, "it keeps its pages until the others have ended"
    tokens = [s.token_ids for plan in runner.plans for s in plan.sequences if s.sequence_id == 0]
    assert len(tokens) - tokens.count((PENDING_TOKEN,)) <= 3
