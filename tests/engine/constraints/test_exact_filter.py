"""Greedy tokens under a constraint are those of an exact filter, whatever the runner, the batch and the pool."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from engine.config import EngineConfig
from engine.llm import LLM
from engine.loaded_engine import engine_around
from engine.runner import load_runner
from engine.runner.build import build_device_runner
from engine.sampling_params import SamplingParams
from tests.engine.checkpoints import TinyModel
from tests.engine.constraints.exact_filter import CASES, greedy
from tests.engine.runner.device.device_runners import torch_machinery
from tests.engine.small_engines import PAGE_BYTES
from tests.engine.stepper import random_prompt

STOP = 300  #: without text
MOST = 24
PROMPTS = [random_prompt(index, length) for index, length in enumerate((5, 30, 12, 61, 9))]

ENGINES: dict[str, dict[str, object]] = {
    "eager": {},
    "chunks and steps in flight": {"overlap": True, "max_batched_tokens": 8},
    "pages are short": {"kv_cache_bytes": 26 * PAGE_BYTES, "enable_prefix_caching": False},
    "pages are swapped": {"kv_cache_bytes": 26 * PAGE_BYTES, "swap_bytes": 1 << 20, "enable_prefix_caching": False},
    "device": {"operators": "torch"},
    "device, one step at a time": {"operators": "torch", "overlap": False},
}


@pytest.fixture(scope="module")
def expected(tiny_model: Callable[[str], TinyModel]) -> list[list[int]]:
    model = tiny_model("llama")
    llm = LLM(str(model.folder), kv_cache_bytes=1 << 20, num_threads=1)
    pieces = [llm.tokenizer.token_bytes(token_id) for token_id in range(311)]
    llm.close()
    return [greedy(model, prompt, judge, pieces, STOP, MOST) for (_, judge), prompt in zip(CASES, PROMPTS, strict=True)]


@pytest.fixture(scope="module", params=list(ENGINES))
def llm(request: pytest.FixtureRequest, tiny_model: Callable[[str], TinyModel]) -> Iterator[LLM]:
    settings = {"page_tokens": 4, "kv_cache_bytes": 2 << 20, "max_running": 8, "num_threads": 1, "device": "cpu"}
    config = EngineConfig(str(tiny_model("llama").folder), **{**settings, **ENGINES[request.param]})  # type: ignore[arg-type]
    is_device = request.param.startswith("device")
    load = (
        partial(load_runner, build=partial(build_device_runner, machinery=torch_machinery()))
        if is_device
        else load_runner
    )
    engine = LLM.around(engine_around(load(config), has_queue_bound=False))
    yield engine
    engine._core.check_integrity()
    engine.close()


def test_greedy_tokens_are_those_of_an_exact_filter(llm: LLM, expected: list[list[int]]) -> None:
    free = SamplingParams(temperature=0.0, max_tokens=MOST)
    params = [
        SamplingParams(temperature=0.0, max_tokens=MOST, stop_token_ids=(STOP,), constraint=constraint)
        for constraint, _ in CASES
    ]
    alone = [llm.generate([prompt], free)[0].outputs[0].token_ids for prompt in PROMPTS[:2]]
    results = llm.generate([*PROMPTS, *PROMPTS[:2]], [*params, free, free])
    tokens = [result.outputs[0].token_ids for result in results]
    assert tokens == [*expected, *alone]
    ends = [result.outputs[0].finish_reason for result in results[: len(CASES)]]
    assert ends == ["stop" if len(output) < MOST else "length" for output in expected]
