"""Small engines on tiny checkpoints, and what the tests on real weights ask them."""

from collections.abc import Callable
from pathlib import Path

from engine.llm import LLM
from engine.sampling_params import SamplingParams
from tests.engine.checkpoints import TinyModel
from tests.engine.stepper import random_prompt

TinyModels = Callable[[str], TinyModel]
#: A page of four tokens in all layers: 3 layers x 2 heads x 16 dimensions x keys and values x 4 bytes; a tiny llama.
PAGE_BYTES = 3 * 2 * 16 * 2 * 4 * 4
PROMPTS = [random_prompt(index, length) for index, length in enumerate((1, 4, 9, 30, 61, 30, 8, 17))]
GREEDY = SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True)
SAMPLED = SamplingParams(temperature=0.9, top_p=0.95, seed=11, max_tokens=16, ignore_eos=True)


def load(folder: Path, **settings: object) -> LLM:
    defaults: dict[str, object] = {"page_tokens": 4, "kv_cache_bytes": 2 << 20, "max_running": 8, "num_threads": 1}
    return LLM(str(folder), **{**defaults, **settings})


def tokens_of(llm: LLM, prompts: list[list[int]], params: SamplingParams) -> list[list[int]]:
    return [result.outputs[0].token_ids for result in llm.generate(prompts, params)]
