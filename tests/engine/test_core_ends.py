"""How a request ends in the core: by length, by a stop, by an abort, at once when refused; and how one is resumed."""

from dataclasses import replace

import pytest

from engine.errors import ContextTooLong, InvalidRequest, QueueFull
from engine.request import TokenLogprob
from engine.sampling_params import SamplingParams
from tests.engine.fakes import (
    EOS,
    GREEDY,
    continuation,
    make_core,
    run_all,
    run_one,
    text_of,
)

PROMPT = [5, 9, 17, 33, 65, 2, 4, 8, 16, 32]
SAMPLED = SamplingParams(n=4, seed=7, max_tokens=9, ignore_eos=True)


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
    core.add_request("a", PROMPT, replace(GREEDY, stop=(text[5:8], "never said")))
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
    core.add_request("a", PROMPT, replace(GREEDY, logprobs=2, max_tokens=1))
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
    core.add_request("a", PROMPT, GREEDY, resume_token_ids=tokens[:6])
    (delta,) = core.step()
    assert delta.num_output_tokens == 7
    assert delta.num_prompt_tokens == len(PROMPT)


# Aborts


@pytest.mark.parametrize("num_steps", [0, 1, 3, 5, 8])
@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["one sample", "four samples"])
def test_an_abort_in_any_phase_frees_all_pages_at_once(num_steps: int, params: SamplingParams) -> None:
    core, _ = make_core(16, max_batched_tokens=4, max_running=4)
    for request_id in "abc":
        core.add_request(request_id, PROMPT, params)
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
    core.add_request("a", PROMPT, GREEDY)
    core.add_request("b", PROMPT, GREEDY)
    core.step()
    core.abort("a")
    core.abort("unknown")
    assert run_all(core)["b"][0].token_ids == continuation(PROMPT, GREEDY)[1:]


# What is refused


def test_a_prompt_longer_than_the_context_is_refused_at_once() -> None:
    core, _ = make_core(max_model_len=10)
    with pytest.raises(ContextTooLong) as caught:
        core.add_request("a", PROMPT, GREEDY)
    assert caught.value.num_prompt_tokens == len(PROMPT)


def test_the_context_is_what_the_pool_can_hold() -> None:
    core, _ = make_core(num_pages=4)
    assert core.limits.max_model_len == 16
    (sample,) = run_one(core, PROMPT, replace(GREEDY, max_tokens=100))
    assert len(sample.token_ids) == 6


def test_samples_that_together_never_fit_are_refused_at_once() -> None:
    core, _ = make_core(num_pages=8)
    with pytest.raises(ContextTooLong):
        core.add_request("a", PROMPT, replace(SAMPLED, max_tokens=20))
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
        core.add_request("a", PROMPT, params, resume_token_ids=resume_token_ids)
    assert core.is_idle


def test_the_queue_is_bounded_in_requests_and_in_tokens() -> None:
    core, _ = make_core(max_queued_requests=3, max_queued_tokens=25)
    core.add_request("a", PROMPT, GREEDY)
    core.add_request("b", PROMPT, GREEDY)
    with pytest.raises(QueueFull):
        core.add_request("too many tokens", PROMPT, GREEDY)
    core.add_request("c", PROMPT[:2], GREEDY)
    with pytest.raises(QueueFull):
        core.add_request("too many requests", PROMPT[:2], GREEDY)
    core.step()
    core.add_request("d", PROMPT, GREEDY)
    assert set(run_all(core)) == {"a", "b", "c", "d"}


def test_a_prompt_above_the_token_bound_may_wait_alone() -> None:
    core, _ = make_core(max_queued_tokens=5)
    (sample,) = run_one(core, PROMPT, GREEDY)
    assert sample.finish_reason == "length"
