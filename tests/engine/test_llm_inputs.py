"""What the library takes: vLLM's shapes, and for every other one an error that names it."""

from typing import Any

import pytest

from engine.config import EngineConfig
from engine.errors import InvalidRequest
from engine.llm import LLM
from engine.llm_inputs import list_of_conversations, list_of_prompts, one_per_prompt, read_prompt
from engine.sampling_params import UNBOUNDED, PoolingParams, SamplingParams
from tests.engine.fakes import EOS, GREEDY, LetterTokenizer, continuation, loaded, make_core

USER = {"role": "user", "content": "hi"}


@pytest.fixture
def llm() -> LLM:
    core, _ = make_core(200, has_queue_bound=False, max_running=3)
    return LLM.around(loaded(core))


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ("abc", [("abc", [EOS, 0, 1, 2])]),
        ([7, 8], [(None, [7, 8])]),
        ((7, 8), [(None, [7, 8])]),
        (["a", [7]], [("a", [EOS, 0]), (None, [7])]),
        ({"prompt": "a"}, [("a", [EOS, 0])]),
        ({"prompt_token_ids": [7, 8]}, [(None, [7, 8])]),
        ([{"prompt_token_ids": [7], "prompt": "x"}, {"prompt": "b"}], [("x", [7]), ("b", [EOS, 1])]),
        ([], []),
    ],
)
def test_prompts_are_texts_ids_or_dicts(prompts: Any, expected: list[tuple[str | None, list[int]]]) -> None:
    tokenizer: Any = LetterTokenizer()
    assert [read_prompt(prompt, lambda: tokenizer) for prompt in list_of_prompts(prompts)] == expected


@pytest.mark.parametrize(
    "prompts", [None, 5, [None], [[1.5]], [[True]], [{}], [{"prompt": 3}], [{"prompt": "a", "multi_modal_data": {}}]]
)
def test_other_prompts_are_refused(llm: LLM, prompts: Any) -> None:
    with pytest.raises(InvalidRequest, match="prompt"):
        llm.generate(prompts, GREEDY)
    assert llm.stats().steps_total == 0


def test_contents_may_be_parts_or_none_beside_calls() -> None:
    parts: Any = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    calling: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert list_of_conversations([{"role": "user", "content": parts}, calling]) == [[USER, calling]]
    assert list_of_conversations([[USER], [USER]]) == [[USER], [USER]]


@pytest.mark.parametrize(
    "messages",
    [
        "hello",
        ["hello"],
        None,
        [{"content": "x"}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
        [{"role": "assistant", "tool_calls": "f()"}],
        [{"role": "assistant", "tool_calls": [{"id": "a"}]}],
    ],
)
def test_other_messages_are_refused(llm: LLM, messages: Any) -> None:
    with pytest.raises(InvalidRequest):
        llm.chat(messages, GREEDY)


def test_params_may_be_named_and_one_for_each_prompt(llm: LLM) -> None:
    (result,) = llm.generate([[7, 8, 9]], sampling_params=GREEDY, use_tqdm=False)
    assert result.finished
    assert result.outputs[0].token_ids == continuation([7, 8, 9], GREEDY)
    params = PoolingParams("mean")
    assert one_per_prompt([params, params], PoolingParams(), 2) == [params, params]
    wrong: Any
    for wrong in ({"max_tokens": 3}, [GREEDY, PoolingParams()], 3):
        with pytest.raises(InvalidRequest, match="params must be SamplingParams"):
            llm.generate([[7], [8]], wrong)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"stop": "ab"}, {"stop": ("ab",)}),
        ({"stop": ["a", "b"]}, {"stop": ("a", "b")}),
        ({"stop": None, "stop_token_ids": None, "logit_bias": None}, {}),
        ({"stop_token_ids": [3]}, {"stop_token_ids": (3,)}),
        ({"top_k": -1}, {"top_k": 0}),
        ({"max_tokens": None}, {"max_tokens": UNBOUNDED}),
    ],
)
def test_vllms_spellings_of_params_mean_the_same(given: dict[str, Any], meant: dict[str, Any]) -> None:
    assert SamplingParams(**given) == SamplingParams(**meant)


def test_without_a_bound_an_answer_fills_the_context() -> None:
    core, _ = make_core(300, has_queue_bound=False)
    prompt = [7, 8, 9]
    (result,) = LLM.around(loaded(core)).generate([prompt], SamplingParams(max_tokens=None, ignore_eos=True))  # type: ignore[arg-type]
    assert len(prompt) + len(result.outputs[0].token_ids) == core.limits.max_model_len
    assert result.outputs[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", "hot"),
        ("temperature", None),
        ("n", "1"),
        ("n", True),
        ("top_p", float("nan")),
        ("ignore_eos", 1),
        ("stop", 5),
        ("stop", (3,)),
        ("stop_token_ids", ("a",)),
        ("logit_bias", {"5": 1.0}),
        ("logprobs", 2.0),
    ],
)
def test_a_parameter_of_another_type_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as raised:
        SamplingParams(**{name: value})
    assert raised.value.param == name


def test_a_setting_of_another_type_is_named() -> None:
    with pytest.raises(ValueError, match="max_running must be an integer"):
        EngineConfig("x", max_running="7")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="device must be auto, cpu or cuda, got 'gpu'"):
        EngineConfig("x", device="gpu")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["max", None])
def test_an_unknown_pooling_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequest, match="pooling must be mean, last or cls"):
        PoolingParams(value)
    with pytest.raises(InvalidRequest, match="dimensions must be at least 1"):
        PoolingParams(dimensions=0)
