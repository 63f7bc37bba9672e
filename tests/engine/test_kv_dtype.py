"""Keys and values of 8 bits through the whole engine: what moves, shares or copies pages moves their scales."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.config import EngineConfig
from engine.errors import CheckpointError
from engine.kernels.torch_operators import TorchOperators
from engine.llm import LLM
from engine.request import sample_seed
from engine.runner.load import choose_kv_dtype
from engine.sampling_params import SamplingParams
from tests.engine.checkpoints import TinyModel
from tests.engine.chunked_logits import chunked_logits
from tests.engine.stepper import random_prompt

TinyModels = Callable[[str], TinyModel]
PROMPTS = [random_prompt(index, length) for index, length in enumerate((1, 4, 9, 30, 61, 30, 8, 17))]
GREEDY = SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True)
SAMPLED = SamplingParams(temperature=0.9, top_p=0.95, seed=11, max_tokens=16, ignore_eos=True)
#: Bytes in which some of the prompts fit at once, but not all.
SCARCE = {"llama": 40_000, "gemma3": 60_000}


def load(folder: Path, **settings: object) -> LLM:
    defaults: dict[str, object] = {
        "page_tokens": 4,
        "checkpoint_tokens": 8,
        "kv_cache_bytes": 2 << 20,
        "max_running": 8,
        "num_threads": 1,
        "dtype": "float32",
        "kv_dtype": "int8",
    }
    return LLM(str(folder), **{**defaults, **settings})


def tokens_of(llm: LLM, prompts: list[list[int]], params: SamplingParams = GREEDY) -> list[list[int]]:
    return [result.outputs[0].token_ids for result in llm.generate(prompts, params)]


@pytest.mark.parametrize(
    ("name", "operators"), [("llama", "auto"), ("gemma3", "auto"), ("jamba", "auto"), ("llama", "torch")]
)
def test_tokens_depend_on_the_request_alone(tiny_model: TinyModels, name: str, operators: str) -> None:
    """Alone or beside others, in chunks, from a warm prefix cache, preempted and recomputed or swapped."""
    folder = tiny_model(name).folder
    by_itself = load(folder, max_running=1, enable_prefix_caching=False, operators=operators)
    answers = tokens_of(by_itself, PROMPTS)
    follow_ups = [prompt + answer + [1, 2, 3] for prompt, answer in zip(PROMPTS, answers, strict=True)]
    further = tokens_of(by_itself, follow_ups)
    changes: list[dict[str, object]] = [{}, {"max_batched_tokens": 7, "max_running": 3}]
    if name in SCARCE:
        changes += [{"kv_cache_bytes": SCARCE[name], "swap_bytes": swap_bytes} for swap_bytes in (0, 1 << 20)]
    for settings in changes:
        llm = load(folder, operators=operators, **settings)
        assert tokens_of(llm, PROMPTS) == answers
        assert tokens_of(llm, follow_ups) == further
        stats = llm.stats()
        if "kv_cache_bytes" in settings:
            assert stats.preemptions_total > 0
        elif name != "jamba":  # whose pages are of 128 tokens here
            assert stats.prefix_hit_tokens_total > 0
        assert (stats.swap_preemptions_total > 0) == bool(settings.get("swap_bytes"))
        llm._core.check_integrity()


def test_pages_that_are_copied_on_write_keep_their_scales(tiny_model: TinyModels) -> None:
    llm = load(tiny_model("llama").folder)
    (forked,) = llm.generate([PROMPTS[3]], replace(SAMPLED, n=4))
    assert llm.stats().page_copies_total >= 3, "the prompt ends inside a page"
    single = [tokens_of(llm, [PROMPTS[3]], replace(SAMPLED, seed=sample_seed(11, index)))[0] for index in range(4)]
    assert [output.token_ids for output in forked.outputs] == single


def test_cpp_and_torch_draw_the_same_tokens(tiny_model: TinyModels) -> None:
    for name in ("llama", "gemma2"):
        folder = tiny_model(name).folder
        cpp, torch_only = (load(folder, operators=operators) for operators in ("auto", "torch"))
        assert cpp.info.operators.startswith("cpp")
        assert torch_only.info.operators == "torch"
        assert tokens_of(cpp, PROMPTS) == tokens_of(torch_only, PROMPTS)


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3"])
def test_logits_are_near_those_of_exact_keys_and_values(tiny_model: TinyModels, name: str) -> None:
    """Within 3 % of how far logits of a row lie apart; measured: 1.2 to 1.8 %."""
    folder, prompt = tiny_model(name).folder, random_prompt(3, 90)
    exact, rounded = (
        chunked_logits(folder, prompt, page_tokens=16, chunk=40, operators=TorchOperators(), kv_dtype=kv_dtype)
        for kv_dtype in (None, torch.int8)
    )
    error = (rounded - exact).square().mean().sqrt() / exact.std()
    assert 0 < error < 0.03


def test_a_pool_holds_about_twice_the_tokens_of_bfloat16(tiny_model: TinyModels) -> None:
    def num_pages(**settings: object) -> tuple[int, str]:
        llm = load(tiny_model("llama-with-biases").folder, dtype="bfloat16", kv_cache_bytes=1 << 20, **settings)
        plan = llm._core._cache.plan
        return plan.num_usable_large_pages * plan.ratio(plan.types[0]), llm.info.kv_dtype

    (before, before_dtype), (now, now_dtype) = num_pages(kv_dtype="auto"), num_pages()
    assert (before_dtype, now_dtype) == ("bfloat16", "int8")
    head_dim = 32
    assert now / before == pytest.approx(2 * head_dim / (head_dim + 4), rel=0.02)


def test_states_of_recurrent_layers_keep_their_own_dtype(tiny_model: TinyModels) -> None:
    plan = load(tiny_model("jamba").folder)._core._cache.plan
    assert {(kind.spec.kind, kind.spec.dtype) for kind in plan.types} == {("full", "int8"), ("recurrent", "float32")}


def test_a_model_without_keys_and_values_is_refused(tiny_model: TinyModels) -> None:
    with pytest.raises(CheckpointError, match="MambaForCausalLM keeps no keys and values"):
        load(tiny_model("mamba").folder)


def test_fp8_is_refused_where_the_device_does_not_compute_it(tiny_model: TinyModels) -> None:
    with pytest.raises(CheckpointError, match="fp8 is for CUDA devices that compute it, not for cpu; int8"):
        load(tiny_model("llama").folder, kv_dtype="fp8", device="cpu")
    with pytest.raises(ValueError, match="kv_dtype must be auto, int8 or fp8"):
        EngineConfig("model", kv_dtype="int4")  # type: ignore[arg-type]


def test_auto_is_the_dtype_of_the_model() -> None:
    assert choose_kv_dtype("auto", torch.bfloat16, torch.device("cpu")) is torch.bfloat16
