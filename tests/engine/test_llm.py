"""The synchronous engine: prompts in, results in the same order out."""

from dataclasses import replace
from typing import Literal

import pytest

from engine.batch import StepPlan
from engine.errors import ContextTooLong, InvalidRequest
from engine.llm import LLM
from engine.sampling_params import SamplingParams
from tests.engine.fakes import EOS, GREEDY, continuation, loaded, make_core, text_of

PROMPTS = [[7, 8, 9], [3] * 20, [4, 5], [11] * 9]


@pytest.fixture
def llm() -> LLM:
    core, _ = make_core(200, has_queue_bound=False, max_queued_requests=1, max_running=3)
    return LLM.around(loaded(core))


def test_results_come_in_the_order_of_the_prompts(llm: LLM) -> None:
    results = llm.generate(PROMPTS, GREEDY)
    assert [result.prompt_token_ids for result in results] == PROMPTS
    assert [result.outputs[0].token_ids for result in results] == [continuation(prompt, GREEDY) for prompt in PROMPTS]


def test_each_prompt_may_have_its_own_params(llm: LLM) -> None:
    params = [replace(GREEDY, max_tokens=length) for length in (4, 1, 3, 2)]
    results = llm.generate(PROMPTS, params)
    assert [len(result.outputs[0].token_ids) for result in results] == [4, 1, 3, 2]
    with pytest.raises(InvalidRequest, match="4 prompts, but 1"):
        llm.generate(PROMPTS, params[:1])


def test_a_text_is_encoded_with_the_tokens_around_it(llm: LLM) -> None:
    (result,) = llm.generate("abc", GREEDY)
    assert result.prompt == "abc"
    assert result.prompt_token_ids == [EOS, 0, 1, 2]
    assert result.outputs[0].text == text_of(continuation([EOS, 0, 1, 2], GREEDY))


def test_one_list_of_token_ids_is_one_prompt(llm: LLM) -> None:
    (result,) = llm.generate([7, 8, 9], GREEDY)
    assert result.prompt is None
    assert result.prompt_token_ids == [7, 8, 9]


def test_no_prompts_give_no_results(llm: LLM) -> None:
    assert llm.generate([], GREEDY) == []


def test_a_conversation_is_answered(llm: LLM) -> None:
    (result,) = llm.chat([{"role": "user", "content": "hi"}], GREEDY)
    assert result.prompt_token_ids == [EOS, 7, 8]
    assert len(llm.chat([[{"role": "user", "content": "hi"}]] * 2, GREEDY)) == 2


def test_samples_are_in_order_and_have_their_finish_reasons(llm: LLM) -> None:
    params = SamplingParams(n=3, seed=1, max_tokens=5, ignore_eos=True)
    (result,) = llm.generate([[7, 8, 9]], params)
    assert [output.index for output in result.outputs] == [0, 1, 2]
    assert [output.finish_reason for output in result.outputs] == ["length"] * 3
    expected = [continuation([7, 8, 9], params, seed=1, index=index) for index in range(3)]
    assert [output.token_ids for output in result.outputs] == expected


def test_logprobs_have_the_known_shape(llm: LLM) -> None:
    (result,) = llm.generate([[7, 8, 9]], replace(GREEDY, logprobs=2, max_tokens=3))
    (output,) = result.outputs
    assert output.cumulative_logprob == -1.5
    assert output.logprobs is not None
    assert len(output.logprobs) == 3
    for token_id, entries in zip(output.token_ids, output.logprobs, strict=True):
        assert entries[token_id].logprob in (-0.5, -1.0 - token_id)
        assert entries[0].rank == 1
        assert entries[1].decoded_token == "b"


def test_without_logprobs_there_are_none(llm: LLM) -> None:
    (result,) = llm.generate([[7, 8, 9]], GREEDY)
    assert result.outputs[0].logprobs is None
    assert result.outputs[0].cumulative_logprob is None


def test_a_prompt_that_can_never_fit_is_refused_before_any_work(llm: LLM) -> None:
    with pytest.raises(ContextTooLong):
        llm.generate([[7, 8, 9], [3] * 5000], GREEDY)
    assert llm.stats().steps_total == 0


@pytest.mark.parametrize("half", ["launch", "collect"])
@pytest.mark.parametrize("steps", ["in turn", "overlapping"])
def test_an_interrupted_call_leaves_an_idle_engine(steps: Literal["in turn", "overlapping"], half: str) -> None:
    core, runner = make_core(200, has_queue_bound=False, steps=steps)
    llm = LLM.around(loaded(core))
    run, calls = getattr(runner, half), []

    def interrupted(*plan: StepPlan) -> object:
        calls.append(plan)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return run(*plan)

    setattr(runner, half, interrupted)
    with pytest.raises(KeyboardInterrupt):
        llm.generate(PROMPTS, GREEDY)
    assert llm.stats().pages_used == 0
    assert llm.generate(PROMPTS, GREEDY)[0].outputs[0].token_ids == continuation(PROMPTS[0], GREEDY)
