"""The runner of devices against the eager one: the same tokens from graphs, padding, and buffers that stay."""

from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import pytest
import torch

from engine.batch import PageTableUpdate, StepPlan
from engine.runner import EagerRunner, load_runner
from engine.runner.build import build_device_runner, build_eager_runner
from engine.runner.device.device_runner import DeviceRunner
from engine.runner.device.slot_sampling import NewParameters, SlotSampling
from engine.runner.runner import run_step
from engine.sampling_params import SamplingParams
from tests.engine.checkpoints import save
from tests.engine.runner.device.device_runners import (
    PROMPTS,
    SLOTS,
    TinyModels,
    TorchWithGroupedExperts,
    TorchWithStateKernels,
    device_runner,
    eager_runner,
    in_random_company,
    llm_on,
    load_device,
    settings_for,
    share,
    torch_machinery,
    with_kv_dtype,
)
from tests.engine.runner.device.tape import TapeRecorder
from tests.engine.stepper import GREEDY, Running, Stepper, generate, random_prompt

CAPTURABLE = (
    "llama",
    "qwen3",
    "olmo2",
    "gemma2",
    "gemma3",
    "gemma4",
    "gpt2",
    "phi3-partly-rotated-window",
    "ministral3",
)
NOT_CAPTURABLE = ("mixtral", "llama4", "mamba", "jamba", "deepseek-v2", "kimi-linear")


@pytest.mark.parametrize("name", CAPTURABLE + NOT_CAPTURABLE)
def test_greedy_tokens_are_those_of_the_eager_runner_in_any_company(tiny_model: TinyModels, name: str) -> None:
    folder = tiny_model(name).folder
    recorder = TapeRecorder()
    runner = device_runner(folder, torch_machinery(recorder), max_running=SLOTS)
    assert in_random_company(runner, GREEDY) == generate(eager_runner(folder), PROMPTS, 8, chunk=64)
    if name in CAPTURABLE:
        assert len(recorder.num_replays) == 6
        assert all(recorder.num_replays), "a graph of every size was used"
    else:
        assert not recorder.num_replays
    assert runner.operators_name == ("torch, CUDA graphs" if name in CAPTURABLE else "torch")


@pytest.mark.parametrize(("name", "kv_dtype"), [("qwen3", torch.int8), ("jamba", torch.float8_e4m3fn)])
def test_so_they_are_over_pages_of_8_bits(tiny_model: TinyModels, name: str, kv_dtype: torch.dtype) -> None:
    config = settings_for(tiny_model(name).folder, max_running=SLOTS)
    build = partial(build_device_runner, machinery=torch_machinery())
    runners = [load_runner(config, build=with_kv_dtype(b, kv_dtype)).runner for b in (build, build_eager_runner)]
    assert isinstance(runners[0], DeviceRunner)
    assert isinstance(runners[1], EagerRunner)
    assert in_random_company(runners[0], GREEDY) == generate(runners[1], PROMPTS, 8, chunk=64)
    dtypes = {kind.spec.kind: kind.spec.dtype for kind in runners[0].pool_plan.types}
    assert dtypes["full"] == str(kv_dtype).removeprefix("torch.")
    assert dtypes.get("recurrent", "float32") == "float32"


@pytest.mark.parametrize("name", ["mamba", "jamba", "mamba2", "lfm2", "qwen3.5"])
def test_recurrent_models_are_captured_where_kernels_move_their_states_on(tmp_path: Path, name: str) -> None:
    folder = save(name, tmp_path, **({"num_experts": 1} if name == "jamba" else {})).folder
    recorder = TapeRecorder()
    runner = device_runner(folder, torch_machinery(recorder), TorchWithStateKernels(), max_running=SLOTS)
    assert in_random_company(runner, GREEDY) == generate(eager_runner(folder), PROMPTS, 8, chunk=64)
    assert all(recorder.num_replays)
    assert len(recorder.num_replays) == 6


@pytest.mark.parametrize("name", ["mixtral", "qwen2-moe", "qwen3-moe", "gpt-oss", "jamba", "gemma4-with-experts"])
def test_mixtures_of_experts_are_captured_where_the_device_chooses_them(tiny_model: TinyModels, name: str) -> None:
    model = tiny_model(name)
    recorder = TapeRecorder()
    runner = device_runner(model.folder, torch_machinery(recorder), TorchWithGroupedExperts(), max_running=SLOTS)
    outputs = in_random_company(runner, GREEDY)
    assert outputs == generate(eager_runner(model.folder), PROMPTS, 8, chunk=64)
    assert outputs[1] == model.greedy(PROMPTS[1], 8), "those of transformers"
    assert len(recorder.num_replays) == 6, "of 1, 2, 4, 8, 16 and 17 rows"
    assert all(recorder.num_replays)


def test_graphs_are_captured_once_and_buffers_keep_their_addresses(tiny_model: TinyModels) -> None:
    recorder = TapeRecorder()
    runner = device_runner(tiny_model("gemma2").folder, torch_machinery(recorder), max_running=SLOTS)

    def addresses() -> list[int]:
        buffers = runner._buffers
        several = ("page_places", "sampling")
        tensors = [getattr(buffers, field.name) for field in fields(buffers) if field.name not in several]
        tensors += [*buffers.page_places, *buffers.sampling.all, runner._slot_sampling.parameters]
        tensors += [*runner._tables.tables.values(), runner._last_tokens, *runner._pages.values()]
        return [tensor.data_ptr() for tensor in tensors]

    assert len(recorder.num_replays) == len(runner.decode_graphs.buckets.all()) == 6
    before = addresses()
    in_random_company(runner, GREEDY, num_tokens=4)
    assert addresses() == before
    assert len(recorder.num_replays) == 6


def test_rows_of_padding_write_nothing(tiny_model: TinyModels) -> None:
    runner = device_runner(tiny_model("llama").folder)
    (kind,) = runner.pool_plan.types
    (pages,) = runner._pages.values()
    sequences = tuple(share(slot, [7], 2) for slot in range(5))  # in a graph of eight rows
    updates = tuple(PageTableUpdate(slot, kind.name, 0, (slot + 1,)) for slot in range(5))
    run_step(runner, StepPlan(0, updates, (), sequences))
    assert pages[1:6].any(dim=1).all()
    assert not pages[0].any()
    assert not pages[6:].any()


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(temperature=0.9, logprobs=1)], ids=["greedy", "sampled"])
def test_a_prompt_may_advance_by_one_token_beside_decodes(tiny_model: TinyModels, params: SamplingParams) -> None:
    """Such a step replays a graph, and samples nothing for the prompt until its last token."""
    folder = tiny_model("llama").folder

    def continued(runner: EagerRunner | DeviceRunner) -> list[list[int]]:
        stepper = Stepper(runner, chunk=1)
        running = [Running(slot, PROMPTS[slot], params, seed=slot) for slot in (3, 0, 2)]  # of 1, 3 and 5 tokens
        for _ in range(8):
            stepper.step(running)
        return [sequence.output for sequence in running]

    recorder = TapeRecorder()
    assert continued(device_runner(folder, torch_machinery(recorder))) == continued(eager_runner(folder))
    assert sum(recorder.num_replays) == 8


def test_sampling_parameters_are_sent_once_for_each_sequence(
    tiny_model: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three requests take turns in two slots, one of them with samples that get slots of their own."""
    folder = tiny_model("llama").folder
    sent: list[int] = []
    write = SlotSampling.write

    def noted(self: SlotSampling, news: NewParameters | None) -> None:
        sent.extend([] if news is None else news.slots.tolist())
        write(self, news)

    settings = {"max_running": 2}
    llm = llm_on(load_device(folder, **settings), settings_for(folder, **settings))
    monkeypatch.setattr(SlotSampling, "write", noted)
    base = SamplingParams(temperature=0.9, max_tokens=12, ignore_eos=True)
    params = [base, replace(base, temperature=0.0), replace(base, n=2, top_p=0.8)]
    params = [replace(each, seed=index) for index, each in enumerate(params)]
    results = llm.generate([random_prompt(index, 9) for index in range(3)], params)
    # The prompt with two samples sends the parameters of its slot, and once more when each sample has its own.
    assert len(sent) == 2 + 3
    plain = llm_on(load_runner(settings_for(folder, **settings)), settings_for(folder, **settings))
    wanted = plain.generate([random_prompt(index, 9) for index in range(3)], params)
    for ours, other in zip(results, wanted, strict=True):
        assert [sample.token_ids for sample in ours.outputs] == [sample.token_ids for sample in other.outputs]


def test_without_graphs_the_tokens_are_the_same(tiny_model: TinyModels) -> None:
    folder = tiny_model("qwen3").folder
    recorder = TapeRecorder()
    eager = device_runner(folder, torch_machinery(recorder), max_running=SLOTS, enforce_eager=True)
    assert in_random_company(eager, GREEDY) == in_random_company(device_runner(folder, max_running=SLOTS), GREEDY)
    assert len(recorder.num_replays) == 0
    assert eager.operators_name == "torch"


def test_batches_above_the_largest_graph_run_without_one(tiny_model: TinyModels) -> None:
    folder = tiny_model("llama").folder
    recorder = TapeRecorder()
    runner = device_runner(folder, torch_machinery(recorder), max_running=SLOTS, max_graph_batch=2)
    assert len(recorder.num_replays) == 2
    assert in_random_company(runner, GREEDY) == generate(eager_runner(folder), PROMPTS, 8, chunk=64)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="plenty of everything"),
        pytest.param({"kv_cache_bytes": 96 * 768, "enable_prefix_caching": False}, id="a pool that preempts"),
        pytest.param({"kv_cache_bytes": 96 * 768, "swap_bytes": 1 << 20}, id="a pool that swaps"),
        pytest.param({"max_batched_tokens": 7, "max_running": 3}, id="small chunks"),
        pytest.param({"overlap": False}, id="one step in flight"),
    ],
)
def test_the_whole_engine_gives_the_tokens_of_transformers(tiny_model: TinyModels, settings: dict[str, object]) -> None:
    model = tiny_model("llama")
    config = settings_for(model.folder, **settings)
    llm = llm_on(load_device(model.folder, **settings), config)
    params = SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True)
    prompts = [random_prompt(index, length) for index, length in enumerate((1, 4, 9, 30, 61, 30, 8, 17))]
    for _ in range(2):  # the second time from the prefix cache
        results = llm.generate(prompts, params)
        for prompt, result in zip(prompts, results, strict=True):
            assert result.outputs[0].token_ids == model.greedy(prompt, 16)
    stats = llm.stats()
    assert (stats.preemptions_total > 0) == ("kv_cache_bytes" in settings)
    assert (stats.swap_preemptions_total > 0) == ("swap_bytes" in settings)
    llm.close()


def test_requests_of_all_kinds_get_the_same_tokens_with_and_without_overlap(tiny_model: TinyModels) -> None:
    """Samples by fork, penalties, log probabilities, biases, late ends, in a pool too small for all of them."""
    folder = tiny_model("gemma2").folder
    base = SamplingParams(temperature=0.9, max_tokens=12, ignore_eos=True)
    kinds = [
        replace(base, temperature=0.0),
        replace(base, n=3, top_p=0.9),
        replace(base, logprobs=2),
        replace(base, presence_penalty=1.5, repetition_penalty=1.3),
        replace(base, n=2, frequency_penalty=0.9, logit_bias={3: 4.0}, logprobs=1),
        replace(base, min_tokens=6, stop_token_ids=tuple(range(100))),
        replace(base, logit_bias={7: 20.0}, top_k=5),
    ]
    params = [replace(kinds[index % len(kinds)], seed=index) for index in range(12)]
    prompts = [random_prompt(index, 1 + 5 * (index % 5)) for index in range(12)]
    outputs = []
    for overlap in (None, True, False):  # None: the eager runner
        settings = {"kv_cache_bytes": 90 * 768, "max_batched_tokens": 24, "overlap": overlap}
        config = settings_for(folder, **settings)
        llm = llm_on(load_runner(config) if overlap is None else load_device(folder, **settings), config)
        results = llm.generate(prompts, params)
        outputs.append([[sample.token_ids for sample in result.outputs] for result in results])
        assert llm.stats().preemptions_total > 0
        llm.close()
    assert outputs[0] == outputs[1] == outputs[2]


@pytest.mark.parametrize("kv_dtype", [None, torch.int8, torch.float8_e4m3fn])
def test_prefixes_that_rows_share_are_read_once_and_change_no_token(
    tiny_model: TinyModels, monkeypatch: pytest.MonkeyPatch, kv_dtype: torch.dtype | None
) -> None:
    """Two system prompts, a request of its own and samples of one prompt; the groups that share change as they end. The
    reference reads a group's prefix from the pages of its first row."""
    monkeypatch.setattr("engine.runner.device.shared_prefixes.WORTH_BYTES", 1)
    model = tiny_model("gemma2")
    systems = [random_prompt(50, 24), random_prompt(51, 37)]
    prompts = [systems[index % 2] + random_prompt(index, 1 + index % 3) for index in range(13)] + [random_prompt(60, 9)]
    params = [SamplingParams(temperature=0.0, max_tokens=6 + index, ignore_eos=True) for index in range(14)]
    samples = SamplingParams(temperature=0.8, n=3, seed=1, max_tokens=9, ignore_eos=True)
    recorder = TapeRecorder()
    settings = {"max_running": 16}
    config = settings_for(model.folder, **settings)
    build = partial(build_device_runner, machinery=torch_machinery(recorder))
    loaded = load_runner(config, build=with_kv_dtype(build, kv_dtype))
    assert isinstance(loaded.runner, DeviceRunner)
    eager_config = settings_for(model.folder, overlap=True, **settings)
    eager = load_runner(eager_config, build=with_kv_dtype(build_eager_runner, kv_dtype))
    outputs = []
    for runner in (loaded, eager):
        llm = llm_on(runner, config)
        llm.generate(systems, params[0])
        results = llm.generate([*prompts, prompts[0]], [*params, samples])
        outputs.append([[sample.token_ids for sample in result.outputs] for result in results])
    assert outputs[0] == outputs[1]
    if kv_dtype is None:
        assert outputs[0][:14] == [[model.greedy(prompt, 6 + index)] for index, prompt in enumerate(prompts)]
    num_shared = [
        count
        for bucket, count in zip(loaded.runner.decode_graphs.buckets.all(), recorder.num_replays, strict=True)
        if bucket.is_shared
    ]
    assert len(num_shared) == 2, "for 8 rows and for 16"
    assert all(num_shared)


def test_a_page_copied_for_a_fork_serves_like_the_original(tiny_model: TinyModels) -> None:
    folder = tiny_model("gemma2").folder
    config = settings_for(folder)
    params = SamplingParams(temperature=1.0, n=4, seed=3, max_tokens=9, ignore_eos=True)
    prompts = [random_prompt(4, 6), random_prompt(5, 1)]
    wanted = llm_on(load_runner(config), config).generate(prompts, params)
    results = llm_on(load_device(folder), config).generate(prompts, params)
    for ours, other in zip(results, wanted, strict=True):
        assert [sample.token_ids for sample in ours.outputs] == [sample.token_ids for sample in other.outputs]


def test_contexts_of_any_length_share_the_graphs_of_their_number_of_rows(tiny_model: TinyModels) -> None:
    folder = tiny_model("llama").folder
    recorder = TapeRecorder()
    runner = device_runner(folder, torch_machinery(recorder), max_running=SLOTS)
    assert len(recorder.num_replays) == len({1, 2, 4, 8, 16, SLOTS})
    assert in_random_company(runner, GREEDY) == generate(eager_runner(folder), PROMPTS, 8, chunk=64)


def test_loading_leaves_the_null_page_empty(tiny_model: TinyModels) -> None:
    runner = device_runner(tiny_model("jamba").folder)
    assert not any(torch.any(pages[0]) for pages in runner._pages.values())
