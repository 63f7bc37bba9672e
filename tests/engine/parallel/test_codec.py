"""What goes over the wire comes back equal, and what the codec does not know it refuses."""

from dataclasses import dataclass, fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.batch import PENDING_TOKEN, ScheduledSequence, StepPlan
from engine.config import EngineConfig
from engine.parallel.codec import Codec
from engine.runner.leader import plan_codec
from engine.sampling_params import BeamSearch, Constraint, EarlyStopping, SamplingParams, ThoughtTags, ToolCallSyntax

SHARES = st.floats(0.0, 1.0, exclude_min=True)
PARAMS: dict[str, st.SearchStrategy[object]] = {
    "max_tokens": st.integers(100, 10**6),
    "n": st.integers(1, 16),
    "best_of": st.none() | st.just(16),
    "beam": st.none(),  # allows few values of the others: a test of its own
    "priority": st.integers(-(2**31), 2**31 - 1),
    "temperature": st.floats(0.0, 10.0),
    "top_k": st.integers(0, 10**6),
    "top_p": SHARES,
    "min_p": SHARES,
    "typical_p": SHARES,
    "allowed_token_ids": st.none() | st.lists(st.integers(0, 2**31), min_size=1, max_size=3).map(tuple),
    "bad_words_ids": st.lists(st.lists(st.integers(0, 2**31), min_size=1, max_size=3).map(tuple), max_size=3).map(
        tuple
    ),
    "bad_words": st.lists(st.text(min_size=1), max_size=3).map(tuple),
    "repetition_penalty": st.floats(0.01, 100.0),
    "presence_penalty": st.floats(-2.0, 2.0),
    "frequency_penalty": st.floats(-2.0, 2.0),
    "logit_bias": st.dictionaries(st.integers(0, 2**31), st.floats(-100.0, 100.0), max_size=3),
    "seed": st.none() | st.integers(-(2**63), 2**64 - 1),
    "stop": st.lists(st.text(min_size=1), max_size=3).map(tuple),
    "stop_token_ids": st.lists(st.integers(0, 2**31), max_size=3).map(tuple),
    "ignore_eos": st.booleans(),
    "min_tokens": st.integers(0, 100),
    "logprobs": st.none() | st.integers(0, 20),
    "prompt_logprobs": st.none() | st.integers(0, 20),
    "skip_special_tokens": st.booleans(),
    "include_stop_str_in_output": st.booleans(),
    "thoughts": st.none() | st.builds(ThoughtTags),
    "tool_calls": st.none() | st.builds(ToolCallSyntax, format=st.just("hermes")),
    "constraint": st.none() | st.builds(Constraint),
    "thinking_budget": st.none(),  # it needs thoughts
}
SEQUENCES = st.builds(
    ScheduledSequence,
    **{field.name: ... for field in fields(ScheduledSequence) if field.name != "params"},
    params=st.builds(SamplingParams, **PARAMS),
)
#: Every field is drawn by its annotation, those with defaults too.
PLANS = st.builds(
    StepPlan,
    **{field.name: ... for field in fields(StepPlan) if field.name != "sequences"},
    sequences=st.lists(SEQUENCES, max_size=3).map(tuple),
)


def test_every_setting_of_a_request_is_drawn_here() -> None:
    assert set(PARAMS) == {field.name for field in fields(SamplingParams)}


@given(PLANS)
@settings(max_examples=60, deadline=None)
def test_a_plan_comes_back_equal(plan: StepPlan) -> None:
    codec = plan_codec()
    assert codec.decode(codec.encode(plan)) == plan


def test_a_beam_search_comes_back_equal() -> None:
    codec = Codec(SamplingParams)
    rules: tuple[EarlyStopping, ...] = (True, False, "never")
    for early_stopping in rules:
        params = SamplingParams(
            temperature=0.0, n=3, beam=BeamSearch(4, 0.5, early_stopping), bad_words_ids=((1, 2), (3,))
        )
        back = codec.decode(codec.encode(params))
        assert back == params
        assert hash(back) == hash(params)


def test_pending_tokens_and_seeds_of_64_bits_come_back() -> None:
    sequence = ScheduledSequence(1, 2, (3, PENDING_TOKEN), 4, 1, SamplingParams(), (2**64 - 1,), 6)
    plan = StepPlan(7, (), (), (sequence,))
    codec = plan_codec()
    assert codec.decode(codec.encode(plan)) == plan


def test_a_configuration_comes_back_equal() -> None:
    changed = EngineConfig("a folder", dtype="float32", kv_cache_bytes=5, enable_prefix_caching=False, num_threads=3)
    codec = Codec(EngineConfig)
    for config in (EngineConfig("x"), changed):
        assert codec.decode(codec.encode(config)) == config


def test_a_field_of_another_version_is_refused() -> None:
    @dataclass(frozen=True)
    class Old:
        step: int

    @dataclass(frozen=True)
    class New:
        step: int
        added: int

    with pytest.raises(ValueError, match="New has 2 fields here, 1 where it was sent"):
        Codec(New).decode(Codec(Old).encode(Old(1)))
    with pytest.raises(ValueError, match="no message of this version"):
        Codec(New).decode(b"3")


def test_a_field_that_cannot_be_sent_is_refused_before_anything_is_sent() -> None:
    @dataclass(frozen=True)
    class Unknown:
        fine: int
        tokens: set[int]

    with pytest.raises(TypeError, match="set"):
        Codec(Unknown)
