"""Layers that keep a budget of tokens, through the whole engine. The oracle keeps lists of tokens instead of slots."""

from collections import defaultdict
from dataclasses import dataclass, field, replace

import pytest
import torch

from engine.attention.backend import AttentionShape, ForwardBatch, HeadNorms
from engine.attention.rotation import Rotation
from engine.errors import CheckpointError, ContextTooLong
from engine.llm import LLM
from engine.models.budget_support import check_budget
from engine.models.causal_lm import CausalLM
from engine.models.registry import ARCHITECTURES
from engine.parallel.group import Place
from engine.request import sample_seed
from engine.sampling_params import SamplingParams
from tests.engine.small_engines import GREEDY, PROMPTS, SAMPLED, TinyModels, load, tokens_of
from tests.engine.stepper import random_prompt

#: Of the three layers of a tiny llama, with pages of four tokens, at a mean of 24.
BUDGETS = [36, 24, 16]
LONG = replace(GREEDY, max_tokens=45)
Entry = tuple[torch.Tensor, torch.Tensor]


@dataclass
class Oracle:
    """Attention of one sequence: an AttentionStep that remembers, for each layer and key head, the kept keys and values
    in the order in which they will be dropped, behind those that never are."""

    shapes: tuple[AttentionShape, ...]
    budgets: list[int]
    kept: dict[tuple[int, int], list[Entry]] = field(default_factory=lambda: defaultdict(list))

    def attend(
        self, layer_id: int, qkv: torch.Tensor, rotation: Rotation | None, head_norms: HeadNorms | None
    ) -> torch.Tensor:
        assert head_norms is None
        assert rotation is not None
        shape, budget = self.shapes[layer_id], self.budgets[layer_id]
        rotation.apply_(qkv[:, : shape.num_heads + shape.num_kv_heads])
        query, keys, values = qkv.split([shape.num_heads, shape.num_kv_heads, shape.num_kv_heads], dim=1)
        output = torch.empty_like(query)
        for head in range(shape.num_kv_heads):
            kept = self.kept[layer_id, head]
            queries = query.unflatten(1, (shape.num_kv_heads, -1))[:, head]
            step: list[Entry] = list(zip(keys[:, head], values[:, head], strict=True))
            weights = []
            for row, entry in enumerate(step):
                is_decode = len(step) == 1
                if is_decode and len(kept) == budget:
                    del kept[budget // 4]
                kept.append(entry)
                seen = torch.stack([key for key, _ in kept])
                probabilities = (queries[row] @ seen.T * shape.scale).softmax(dim=-1)
                output.unflatten(1, (shape.num_kv_heads, -1))[row, head] = probabilities @ torch.stack(
                    [value for _, value in kept]
                )
                weights.append(probabilities.sum(dim=0))
            if len(kept) > budget:
                self.kept[layer_id, head] = choose(kept, weights[-8:], budget)
        return output.flatten(1)


def choose(entries: list[Entry], weights: list[torch.Tensor], budget: int) -> list[Entry]:
    earlier = len(entries) - 8
    sums = [float(sum(float(row[token]) for row in weights)) for token in range(earlier)]
    pooled = [max(sums[max(0, token - 3) : token + 4]) for token in range(earlier)]
    best = sorted(range(earlier), key=lambda token: (-pooled[token], token))[: budget - 8]
    anchors = budget // 4
    return [entries[token] for token in [*best[:anchors], *reversed(best[anchors:]), *range(earlier, len(entries))]]


@torch.inference_mode()
def expected_tokens(model: CausalLM, prompt: list[int], num_tokens: int) -> list[int]:
    oracle = Oracle(model.attention_shapes, BUDGETS)
    step, start, output = prompt, 0, list[int]()
    while len(output) < num_tokens:
        positions = torch.arange(start, start + len(step))
        hidden = model.forward(ForwardBatch(torch.tensor(step), positions, oracle))
        output.append(int(model.logits(hidden[-1:]).argmax()))
        start += len(step)
        step = output[-1:]
    return output


def load_budgeted(tiny_model: TinyModels, **settings: object) -> LLM:
    return load(tiny_model("llama").folder, **{"kv_budget": 24, "operators": "torch", **settings})


def test_layers_keep_what_the_oracle_keeps(tiny_model: TinyModels) -> None:
    llm = load_budgeted(tiny_model)
    types = llm._core._cache.plan.types
    assert {kind.layer_ids: kind.spec.span for kind in types} == {(i,): budget for i, budget in enumerate(BUDGETS)}
    runner = llm._core._runner
    prompts = [*PROMPTS, random_prompt(20, 150)]
    expected = [expected_tokens(runner._model, prompt, LONG.max_tokens) for prompt in prompts]  # type: ignore[attr-defined]
    assert tokens_of(llm, prompts, LONG) == expected
    full = tokens_of(load(tiny_model("llama").folder, operators="torch"), prompts, LONG)
    assert full != expected, "the budgets change what the model says"
    llm._core.check_integrity()


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"operators": "auto"}, id="C++ beside attention"),
        pytest.param({"max_running": 1}, id="alone"),
        pytest.param({"max_batched_tokens": 64, "max_running": 3}, id="small steps"),
        pytest.param({"page_tokens": 1, "kv_budget": 25}, id="pages of one token"),
        pytest.param({"page_tokens": 16}, id="large pages"),
        pytest.param({"overlap": True}, id="overlap"),
        pytest.param({"kv_cache_bytes": 50_000}, id="a pool that preempts"),
        pytest.param({"kv_cache_bytes": 50_000, "swap_bytes": 1 << 20}, id="a pool that swaps"),
    ],
)
def test_tokens_depend_on_the_request_alone(tiny_model: TinyModels, settings: dict[str, object]) -> None:
    same = {name: settings[name] for name in ("page_tokens", "kv_budget") if name in settings}
    expected = tokens_of(load_budgeted(tiny_model, **same), PROMPTS, LONG)
    llm = load_budgeted(tiny_model, **settings)
    assert tokens_of(llm, PROMPTS, LONG) == expected
    llm._core.check_integrity()
    stats = llm.stats()
    assert (stats.preemptions_total > 0) == ("kv_cache_bytes" in settings)
    assert (stats.swap_preemptions_total > 0) == ("swap_bytes" in settings)
    assert stats.prefix_hit_tokens_total == 0


def test_what_fits_into_the_budgets_is_answered_as_without_them(tiny_model: TinyModels) -> None:
    prompts = [random_prompt(index, length) for index, length in enumerate((1, 5, 8))]
    params = replace(GREEDY, max_tokens=8)
    for settings in ({}, {"max_batched_tokens": 3}):
        llm = load_budgeted(tiny_model, **settings)
        assert tokens_of(llm, prompts, params) == tokens_of(load(tiny_model("llama").folder), prompts, params)


@pytest.mark.parametrize("length", [9, 30, 61])
def test_samples_of_a_prompt_are_those_of_single_requests(tiny_model: TinyModels, length: int) -> None:
    prompt = random_prompt(3, length)
    params = replace(SAMPLED, max_tokens=40)
    llm = load_budgeted(tiny_model)
    (result,) = llm.generate([prompt], replace(params, n=3))
    single = [replace(params, seed=sample_seed(11, index)) for index in range(3)]
    alone = [output.outputs[0].token_ids for output in llm.generate([prompt] * 3, single)]
    assert [output.token_ids for output in result.outputs] == alone
    llm._core.check_integrity()


def test_samples_are_the_same_where_their_requests_are_preempted(tiny_model: TinyModels) -> None:
    prompts = [random_prompt(index, length) for index, length in enumerate((9, 30, 61, 20))]
    params = replace(SAMPLED, max_tokens=40, n=2)
    expected = [
        [output.token_ids for output in each.outputs] for each in load_budgeted(tiny_model).generate(prompts, params)
    ]
    llm = load_budgeted(tiny_model, kv_cache_bytes=50_000)
    assert [[output.token_ids for output in each.outputs] for each in llm.generate(prompts, params)] == expected
    assert llm.stats().preemptions_total > 0
    llm._core.check_integrity()


@pytest.mark.parametrize("length", [9, 30, 61])
def test_a_request_goes_on_from_the_output_of_another_replica(tiny_model: TinyModels, length: int) -> None:
    llm, prompt = load_budgeted(tiny_model), random_prompt(3, length)
    (expected,) = tokens_of(llm, [prompt], LONG)
    core, resumed = llm._core, list[int]()
    core.add_request("a", prompt, LONG, resume_token_ids=expected[:20])
    while not core.is_idle:
        resumed += [token for delta in core.step() for token in delta.token_ids]
    assert resumed == expected[20:]


def test_a_request_holds_the_pages_that_were_planned(tiny_model: TinyModels) -> None:
    core = load_budgeted(tiny_model)._core
    core.add_request("a", PROMPTS[3], LONG)
    held = []
    while not core.is_idle:
        core.step()
        held += [
            (tables.num_filled, core._cache.rule.needs([tables.num_filled]), [len(p) for p in tables.pages])
            for tables in core._cache.sequences()
        ]
    assert len(held) > 40
    assert all(tuple(pages) == needs for _, needs, pages in held)
    assert held[-1][2] == [9, 6, 4]


def test_a_long_prompt_that_no_step_can_compute_is_refused(tiny_model: TinyModels) -> None:
    llm = load_budgeted(tiny_model, max_batched_tokens=50)
    with pytest.raises(ContextTooLong, match="with kv_budget it must be computed in one step, and only 50 fit"):
        llm.generate([[1] * 51], SamplingParams(max_tokens=1))
    assert len(llm.generate([[1] * 50], SamplingParams(max_tokens=1))) == 1


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("llama", {"kv_dtype": "int8"}, "does not go with keys and values of 8 bits"),
        ("gemma3", {}, "is for models with full attention in all layers, which Gemma3ForCausalLM has not"),
        ("jamba", {}, "is for models with full attention in all layers"),
    ],
)
def test_what_is_not_supported_is_refused(
    tiny_model: TinyModels, name: str, settings: dict[str, object], reason: str
) -> None:
    with pytest.raises(CheckpointError, match=f"kv_budget {reason}"):
        load(tiny_model(name).folder, kv_budget=24, **settings)


@pytest.mark.parametrize(
    ("device", "place", "reason"),
    [
        ("cuda", Place(), "is for CPU, not for cuda"),
        ("cpu", Place(size=2), "is for one process, not for tensor_parallel"),
    ],
)
def test_other_devices_and_several_processes_are_refused(
    tiny_model: TinyModels, device: str, place: Place, reason: str
) -> None:
    runner = load(tiny_model("llama").folder)._core._runner
    model: CausalLM = runner._model  # type: ignore[attr-defined]
    with pytest.raises(CheckpointError, match=f"kv_budget {reason}"):
        check_budget(ARCHITECTURES["LlamaForCausalLM"], model, torch.device(device), torch.float32, place.size)


@pytest.mark.parametrize("page_tokens", [4, 16])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_the_pool_holds_at_first_is_never_read_but_for_the_null_page(
    tiny_model: TinyModels, dtype: str, page_tokens: int
) -> None:
    clean, poisoned = (load_budgeted(tiny_model, dtype=dtype, page_tokens=page_tokens) for _ in range(2))
    plan = poisoned._core._cache.plan
    for kind in plan.types:
        pages = poisoned._core._runner._pages[kind.name][plan.ratio(kind) :]  # type: ignore[attr-defined]
        pages.fill_(-1)  # NaN in every dtype
    assert tokens_of(poisoned, PROMPTS, LONG) == tokens_of(clean, PROMPTS, LONG)
