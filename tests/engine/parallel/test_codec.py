"""What goes over the wire comes back equal, and what the codec does not know it refuses."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.batch import PENDING_TOKEN, ScheduledSequence, StepPlan
from engine.config import EngineConfig, SamplingParams
from engine.parallel.codec import Codec

FLOATS = st.floats(0.0, 1.0, exclude_min=True)
PARAMS = st.builds(
    SamplingParams,
    max_tokens=st.integers(100, 10**6),
    n=st.integers(1, 16),
    temperature=st.floats(0.0, 10.0),
    top_k=st.integers(0, 10**6),
    top_p=FLOATS,
    min_p=FLOATS,
    seed=st.none() | st.integers(-(2**63), 2**64 - 1),
    stop=st.lists(st.text(min_size=1), max_size=3).map(tuple),
    stop_token_ids=st.lists(st.integers(0, 2**31), max_size=3).map(tuple),
    min_tokens=st.integers(0, 100),
    logprobs=st.none() | st.integers(0, 20),
)
st.register_type_strategy(SamplingParams, PARAMS)


@given(st.from_type(StepPlan))
@settings(max_examples=60, deadline=None)
def test_a_plan_comes_back_equal(plan: StepPlan) -> None:
    """Every field of it and of what it holds is drawn by its annotation."""
    codec = Codec(StepPlan)
    assert codec.decode(codec.encode(plan)) == plan


def test_pending_tokens_and_seeds_of_64_bits_come_back() -> None:
    sequence = ScheduledSequence(1, 2, (3, PENDING_TOKEN), 4, 1, SamplingParams(), (2**64 - 1,), 6)
    plan = StepPlan(7, (), (), (sequence,))
    codec = Codec(StepPlan)
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


def test_a_field_that_nobody_can_send_is_refused_before_anything_is_sent() -> None:
    @dataclass(frozen=True)
    class Unknown:
        fine: int
        tokens: frozenset[int]

    with pytest.raises(TypeError, match="frozenset"):
        Codec(Unknown)
