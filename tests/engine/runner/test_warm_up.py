"""Warm-up runs, before the first request, every kind of step that a request can need."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.batch import StepPlan
from engine.kernels import reference
from engine.runner.build import Machinery
from engine.runner.warm_up import warm_up_steps
from engine.sampling_params import SamplingParams
from tests.engine.checkpoints import TinyModel
from tests.engine.runner.device.device_runners import FixedGauge, llm_on, load_device, settings_for
from tests.engine.runner.device.tape import TapeRecorder
from tests.engine.stepper import random_prompt

NUM_TOKENS = st.integers(1, 3000)
MAX_RUNNING = st.integers(1, 100)
MAX_MODEL_LEN = st.integers(1, 5000)


def planned(num_tokens: int, max_running: int, max_model_len: int) -> list[StepPlan]:
    return list(warm_up_steps(num_tokens, max_running, max_model_len, "main"))


def lengths(plan: StepPlan) -> list[int]:
    return [len(sequence.token_ids) for sequence in plan.sequences]


def tile(num_queries: int) -> int:
    """Kernels that take several queries are compiled for powers of two of them."""
    return 1 << (num_queries - 1).bit_length()


@given(NUM_TOKENS, MAX_RUNNING, MAX_MODEL_LEN)
def test_warm_up_stays_within_the_limits(num_tokens: int, max_running: int, max_model_len: int) -> None:
    for plan in planned(num_tokens, max_running, max_model_len):
        assert plan.num_tokens <= max(num_tokens, max_running)
        slots = [sequence.slot for sequence in plan.sequences]
        assert sorted(set(slots)) == slots
        assert slots[-1] < max_running
        for sequence in plan.sequences:
            assert sequence.start + len(sequence.token_ids) <= max_model_len


@given(NUM_TOKENS, MAX_RUNNING, MAX_MODEL_LEN, st.data())
def test_a_prompt_of_every_length_meets_kernels_that_have_run(
    num_tokens: int, max_running: int, max_model_len: int, data: st.DataObject
) -> None:
    length = data.draw(st.integers(1, min(num_tokens, max_model_len)))
    plans = planned(num_tokens, max_running, max_model_len)
    assert tile(length) in {tile(max(lengths(plan))) for plan in plans}
    if 1 < length <= max_model_len // 2:
        # Behind a context the kernels may be others: those for parts, in tiles of up to 128 queries.
        at_ends = [plan for plan in plans if plan.sequences[0].start + lengths(plan)[0] == max_model_len]
        assert min(tile(length), 64) in {min(tile(lengths(plan)[0]), 64) for plan in at_ends}


@given(NUM_TOKENS, MAX_RUNNING, MAX_MODEL_LEN)
def test_the_largest_step_is_measured(num_tokens: int, max_running: int, max_model_len: int) -> None:
    """Up to less than one token per sequence: the step is divided evenly."""
    largest = min(num_tokens, max_running * max_model_len)
    plans = planned(num_tokens, max_running, max_model_len)
    assert max(plan.num_tokens for plan in plans) > largest - max_running
    assert max(len(plan.sequences) for plan in plans) == max_running


@given(NUM_TOKENS, MAX_RUNNING, MAX_MODEL_LEN)
def test_decodes_run_alone_in_a_full_batch_and_with_the_longest_contexts(
    num_tokens: int, max_running: int, max_model_len: int
) -> None:
    plans = planned(num_tokens, max_running, max_model_len)
    decodes = [plan.sequences for plan in plans if max(lengths(plan)) == 1]
    assert {1, max_running} <= {len(sequences) for sequences in decodes}
    last = max_model_len - 1
    assert any(len(step) == max_running and min(s.start for s in step) == last for step in decodes)


def test_tokens_are_drawn_by_every_means() -> None:
    """What is not drawn in warm-up is compiled, or allocated, while a request waits."""
    params = [sequence.params for plan in planned(64, 4, 100) for sequence in plan.sequences]
    means: dict[str, Callable[[SamplingParams], bool]] = {
        "temperature": lambda p: p.temperature > 0,
        "top-k": lambda p: p.top_k > 0,
        "top-p": lambda p: p.top_p < 1,
        "min-p": lambda p: p.min_p > 0,
        "penalties": lambda p: p.needs_history,
        "biases": lambda p: bool(p.logit_bias),
        "as many log probabilities as a request may ask for": lambda p: p.logprobs == 20,
    }
    assert [name for name, is_used in means.items() if not any(map(is_used, params))] == []


class NotedKernels(ModuleType):
    """The reference kernels; notes which were called, and attention over prompts with its tile and whether there is a
    context before them."""

    def __init__(self) -> None:
        super().__init__("noted_kernels")
        self.called: set[str] = set()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        kernel = getattr(reference, name)

        def noted(*arguments: Any, **options: Any) -> Any:
            if name == "attend_mixed":
                max_queries, max_context = arguments[9:11]
                self.called.add(f"{name} {tile(max_queries)} {'behind more' if max_context > max_queries else ''}")
            else:
                self.called.add(name)
            return kernel(*arguments, **options)

        return noted


@pytest.mark.parametrize("enforce_eager", [False, True], ids=["graphs", "no graphs"])
def test_no_request_calls_a_kernel_for_the_first_time(
    tiny_model: Callable[[str], TinyModel], enforce_eager: bool
) -> None:
    folder: Path = tiny_model("gemma2").folder
    settings: dict[str, object] = {"enforce_eager": enforce_eager}
    kernels, recorder = NotedKernels(), TapeRecorder()
    loaded = load_device(folder, Machinery(kernels, "torch", lambda: recorder, FixedGauge()), **settings)
    before = frozenset(kernels.called)
    llm = llm_on(loaded, settings_for(folder, **settings))
    kinds = [
        SamplingParams(temperature=0.0, max_tokens=9),
        SamplingParams(n=3, max_tokens=9, top_p=0.9),
        SamplingParams(max_tokens=9, top_k=5, min_p=0.1, logprobs=20),
        SamplingParams(max_tokens=9, repetition_penalty=1.3, presence_penalty=1.0, frequency_penalty=0.5),
        SamplingParams(max_tokens=9, min_tokens=6, logit_bias={3: 4.0}, logprobs=0),
    ]
    for length in (1, 7, 16, 32):
        llm.generate([random_prompt(length, length) for _ in range(10)], 2 * kinds)
    llm.close()
    assert before
    assert kernels.called - before == set()
