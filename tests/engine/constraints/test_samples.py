"""Several samples under a constraint: each is valid, and all are the same alone, beside others, and with penalties."""

import re
from collections.abc import Callable
from dataclasses import replace

from engine.llm import LLM
from engine.sampling_params import Constraint, SamplingParams
from tests.engine.checkpoints import TinyModel


def test_samples_are_valid_and_do_not_depend_on_neighbours(tiny_model: Callable[[str], TinyModel]) -> None:
    pattern = "[a-f]{2,8}(-[0-9]{1,3})?"
    plain = SamplingParams(
        n=4, seed=3, top_p=0.9, max_tokens=30, stop_token_ids=(300,), constraint=Constraint("regex", pattern)
    )
    cut = replace(plain, top_k=5, min_p=0.01)
    params = [plain, cut, replace(plain, frequency_penalty=0.7, repetition_penalty=1.3)]
    with LLM(str(tiny_model("llama").folder), kv_cache_bytes=2 << 20, max_running=16, num_threads=1) as llm:
        together = llm.generate([[7, 8, 9]] * 4, [*params, SamplingParams(max_tokens=20)])
        for one, beside in zip(params, together, strict=False):
            (alone,) = llm.generate([[7, 8, 9]], one)
            texts = [output.text for output in alone.outputs]
            assert texts == [output.text for output in beside.outputs]
            assert all(re.fullmatch(pattern, text) for text in texts)
            assert {output.finish_reason for output in alone.outputs} == {"stop"}
            assert len(set(texts)) > 1
