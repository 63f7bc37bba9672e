"""One step after another: page tables, copies, sampling, and what loading tells about a model."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.attention.backend import ForwardBatch
from engine.batch import PENDING_TOKEN, PageCopy, PageMove, PageTableUpdate, SampledToken, ScheduledSequence, StepPlan
from engine.config import EngineConfig
from engine.errors import CheckpointError
from engine.llm import LLM
from engine.prompt_reading import PooledRows
from engine.runner import EagerRunner, LoadedModel, load_runner
from engine.runner.device.device_runner import DeviceRunner
from engine.runner.runner import Runner, run_step
from engine.sampling_params import SamplingParams
from tests.engine.checkpoints import CONTEXT, VOCAB_SIZE, TinyModel
from tests.engine.runner.device.device_runners import load_device
from tests.engine.stepper import GREEDY, Running, Stepper, generate, random_prompt

TinyModels = Callable[[str], TinyModel]
Loader = Callable[..., LoadedModel]
PAGE_TOKENS = 4
RANDOM = SamplingParams(temperature=1.0, top_p=0.95)


def load_eager(folder: Path, **settings: object) -> LoadedModel:
    defaults: dict[str, object] = {"device": "cpu", "page_tokens": PAGE_TOKENS, "kv_cache_bytes": 2 << 20}
    defaults |= {"max_running": 8, "num_threads": 1}
    return load_runner(EngineConfig(str(folder), **{**defaults, **settings}))  # type: ignore[arg-type]


@pytest.fixture(params=[load_eager, load_device], ids=["eager", "device"])
def load(request: pytest.FixtureRequest) -> Loader:
    """Every runner there is; that of devices over kernels in plain torch."""
    loader: Loader = request.param
    return loader


@pytest.fixture
def loaded(load: Loader, tiny_model: TinyModels) -> LoadedModel:
    return load(tiny_model("llama").folder)


def run(runner: Runner, *sequences: ScheduledSequence, **parts: object) -> tuple[tuple[SampledToken, ...], ...]:
    updates, copies = parts.pop("updates", ()), parts.pop("copies", ())
    plan = StepPlan(0, updates, copies, sequences, **parts)  # type: ignore[arg-type]
    return run_step(runner, plan).samples


def share(slot: int, tokens: list[int], start: int = 0, **changes: object) -> ScheduledSequence:
    sequence = ScheduledSequence(slot, slot, tuple(tokens), start, 1, GREEDY, (0,), 0)
    return replace(sequence, **changes)  # type: ignore[arg-type]


def pages(runner: Runner, slot: int, ids: list[int], start: int = 0) -> PageTableUpdate:
    return PageTableUpdate(slot, runner.pool_plan.types[0].name, start, tuple(ids))


def test_random_continuations_do_not_depend_on_chunks_neighbours_or_slots(loaded: LoadedModel) -> None:
    prompts = [random_prompt(i, length) for i, length in enumerate((9, 30, 2))]
    together = generate(loaded.runner, prompts, 10, chunk=7, params=RANDOM)
    alone = Running(5, prompts[1], RANDOM, seed=1)
    stepper = Stepper(loaded.runner, chunk=64, seed=3)
    while len(alone.drawn) < 10:
        stepper.step([alone])
    assert alone.output == together[1]


def test_a_later_sequence_may_join_and_an_earlier_one_leave(loaded: LoadedModel, tiny_model: TinyModels) -> None:
    first, second = Running(0, random_prompt(1, 17)), Running(1, random_prompt(2, 23))
    stepper = Stepper(loaded.runner, chunk=8)
    for _ in range(6):
        stepper.step([first])
    for _ in range(5):
        stepper.step([first, second])
    for _ in range(5):
        stepper.step([second])
    for sequence in (first, second):
        assert sequence.output == tiny_model("llama").greedy(sequence.prompt, len(sequence.drawn))


def test_several_samples_come_from_one_row_and_follow_their_seeds(loaded: LoadedModel) -> None:
    runner = loaded.runner
    prompt = random_prompt(3, 10)
    table = (pages(runner, 0, [1, 2, 3]),)
    forked = share(0, prompt, num_samples=3, seeds=(7, 8, 9), params=RANDOM)
    (samples,) = run(runner, forked, updates=table)
    # Each is a new sequence in its slot, and so its table is sent as a whole.
    single = [run(runner, share(0, prompt, seeds=(seed,), params=RANDOM), updates=table)[0][0] for seed in (7, 8, 9)]
    assert list(samples) == single


def test_a_pending_token_is_the_one_that_its_slot_drew_in_the_step_before(load: Loader, tiny_model: TinyModels) -> None:
    runner = load(tiny_model("llama").folder, overlap=True).runner
    prompts = random_prompt(1, 5), random_prompt(2, 3)
    updates = (pages(runner, 3, [1, 2, 3]), pages(runner, 0, [4, 5, 6]))
    first = tuple(share(slot, prompt) for slot, prompt in zip((3, 0), prompts, strict=True))
    runner.launch(StepPlan(0, updates, (), first))
    second = tuple(
        share(slot, [PENDING_TOKEN], len(prompt)) for slot, prompt in zip((0, 3), prompts[::-1], strict=True)
    )
    runner.launch(StepPlan(1, (), (), second))
    outputs = [runner.collect(), runner.collect()]
    assert [output.step for output in outputs] == [0, 1]
    drawn = [[tokens[0].token_id for tokens in output.samples] for output in outputs]
    model = tiny_model("llama")
    assert [drawn[0][0], drawn[1][1]] == model.greedy(prompts[0], 2)
    assert [drawn[0][1], drawn[1][0]] == model.greedy(prompts[1], 2)


def test_an_unfinished_prompt_draws_nothing(loaded: LoadedModel) -> None:
    runner = loaded.runner
    updates = (pages(runner, 0, [1, 2]), pages(runner, 1, [3, 4]))
    unfinished = share(1, random_prompt(2, 6), num_samples=0, seeds=())
    samples = run(runner, share(0, random_prompt(1, 6)), unfinished, updates=updates)
    assert [len(tokens) for tokens in samples] == [1, 0]
    assert run(runner, unfinished) == ((),)


def test_only_rows_that_are_read_leave_the_model(tiny_model: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = load_eager(tiny_model("llama").folder).runner
    assert isinstance(runner, EagerRunner)
    forward, counts = runner._model.forward, []

    def counted(batch: ForwardBatch) -> torch.Tensor:
        hidden = forward(batch)
        counts.append(len(hidden))
        return hidden

    monkeypatch.setattr(runner._model, "forward", counted)
    prompt = random_prompt(1, 20)
    updates = (pages(runner, 0, [1, 2, 3, 4, 5]),)
    run(runner, share(0, prompt), updates=updates)
    run(runner, share(0, prompt, num_samples=0, seeds=()), updates=updates)
    run(runner, share(0, prompt, pooled=PooledRows(0, 20)), updates=updates)
    run(runner, share(0, prompt[:5]), updates=updates)  # so few rows are not worth it
    assert counts == [1, 0, 20, 5]


def test_a_plan_without_sequences_is_only_housekeeping(loaded: LoadedModel) -> None:
    assert run(loaded.runner, updates=(pages(loaded.runner, 0, [5]),)) == ()


def test_a_copied_page_serves_like_the_original(loaded: LoadedModel, tiny_model: TinyModels) -> None:
    runner = loaded.runner
    name = runner.pool_plan.types[0].name
    prompt = random_prompt(4, 6)  # fills one page and half of another
    ((first,),) = run(runner, share(0, prompt), updates=(pages(runner, 0, [1, 2]),))
    # The fork shares page 1, gets a copy of page 2, and the original is then overwritten by another token.
    fork = (pages(runner, 1, [1, 3]),)
    ((second,),) = run(runner, share(1, [first.token_id], 6), updates=fork, copies=(PageCopy(name, 2, 3),))
    run(runner, share(0, [0], 6))
    ((third,),) = run(runner, share(1, [second.token_id], 7))
    assert [first.token_id, second.token_id, third.token_id] == tiny_model("llama").greedy(prompt, 3)


def test_pages_that_were_away_serve_as_before(load: Loader, tiny_model: TinyModels) -> None:
    runner = load(tiny_model("llama").folder, swap_bytes=1 << 16).runner
    name = runner.pool_plan.types[0].name
    prompt, other = random_prompt(4, 6), random_prompt(9, 8)
    ((first,),) = run(runner, share(0, prompt), updates=(pages(runner, 0, [1, 2]),))
    # In the step in which pages 1 and 2 go out another sequence writes them.
    outs = (PageMove(name, 1, 7), PageMove(name, 2, 3))
    run(runner, share(1, other), updates=(pages(runner, 1, [2, 1]),), swap_outs=outs)
    # In the step in which they come back one of them is copied at once, as a fork does.
    ins = (PageMove(name, 5, 7), PageMove(name, 4, 3))
    ((second,),) = run(
        runner,
        share(2, [first.token_id], 6),
        updates=(pages(runner, 2, [5, 6]),),
        copies=(PageCopy(name, 4, 6),),
        swap_ins=ins,
    )
    assert [first.token_id, second.token_id] == tiny_model("llama").greedy(prompt, 2)


def test_a_step_tells_how_long_its_moves_and_the_rest_took(load: Loader, tiny_model: TinyModels) -> None:
    runner = load(tiny_model("llama").folder, swap_bytes=1 << 16).runner
    moves = (PageMove(runner.pool_plan.types[0].name, 1, 1),)
    output = run_step(runner, StepPlan(0, (), (), (), swap_outs=moves))
    assert output.move_s > 0
    output = run_step(runner, StepPlan(1, (pages(runner, 0, [1, 2]),), (), (share(0, random_prompt(4, 6)),)))
    assert output.move_s == 0
    assert output.compute_s > 0


@pytest.mark.measured_swap_costs
def test_an_engine_knows_what_swapping_costs_before_it_first_could(tiny_model: TinyModels) -> None:
    folder = str(tiny_model("llama").folder)
    with LLM(folder, page_tokens=4, kv_cache_bytes=1 << 20, swap_bytes=1 << 16, num_threads=1) as llm:
        llm.generate([random_prompt(4, 6)], SamplingParams(max_tokens=1))
        cost = llm._core._swapper._costs.cost()  # type: ignore[union-attr]
    assert cost is not None
    assert cost.seconds_per_byte > 0
    assert cost.seconds_per_token > 0


def test_more_pages_than_the_staging_memory_holds_move_in_parts(
    load: Loader, tiny_model: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = load(tiny_model("llama").folder, swap_bytes=1 << 18).runner
    kind = runner.pool_plan.types[0]
    monkeypatch.setattr("engine.runner.host_mirror._STAGING_BYTES", 3 * kind.small_page_bytes)
    prompt = random_prompt(4, 60)
    ((first,),) = run(runner, share(0, prompt), updates=(pages(runner, 0, list(range(1, 16))),))
    run(runner, swap_outs=tuple(PageMove(kind.name, page, 40 - page) for page in range(1, 16)))
    moved = pages(runner, 0, list(range(21, 36)))
    ins = tuple(PageMove(kind.name, page + 20, 40 - page) for page in range(1, 16))
    ((again,),) = run(runner, share(0, prompt[-1:], 59), updates=(moved,), swap_ins=ins)
    assert again.token_id == first.token_id


def test_a_mirror_too_small_for_one_page_is_refused(load: Loader, tiny_model: TinyModels) -> None:
    with pytest.raises(ValueError, match="swap space"):
        load(tiny_model("llama").folder, swap_bytes=100)


def test_a_shared_prefix_is_read_by_both(loaded: LoadedModel, tiny_model: TinyModels) -> None:
    runner = loaded.runner
    prefix, rest = random_prompt(5, 8), random_prompt(6, 3)
    run(runner, share(0, prefix), updates=(pages(runner, 0, [1, 2]),))
    # Prefix hit: the second sequence starts behind the two full pages.
    ((token,),) = run(runner, share(1, rest, 8), updates=(pages(runner, 1, [1, 2, 4]),))
    assert [token.token_id] == tiny_model("llama").greedy(prefix + rest, 1)


def test_what_a_page_held_before_does_not_matter(loaded: LoadedModel, tiny_model: TinyModels) -> None:
    runner = loaded.runner
    long, short = random_prompt(7, 32), random_prompt(8, 5)
    run(runner, share(0, long), updates=(pages(runner, 0, list(range(1, 9))),))
    ((token,),) = run(runner, share(3, short), updates=(pages(runner, 3, [8, 3]),))
    ((other,),) = run(runner, share(3, [token.token_id], 5))
    assert [token.token_id, other.token_id] == tiny_model("llama").greedy(short, 2)


def test_the_model_is_described(tiny_model: TinyModels) -> None:
    loaded = load_eager(tiny_model("qwen3").folder, max_model_len=100)
    reference = tiny_model("qwen3").reference
    assert loaded.info.architecture == "Qwen3ForCausalLM"
    assert loaded.info.num_parameters == sum(parameter.numel() for parameter in reference.parameters())
    assert loaded.info.dtype == "float32"
    assert loaded.info.context_length == loaded.limits.max_model_len == 100
    assert loaded.limits.vocab_size == VOCAB_SIZE
    assert len(loaded.info.revision) == 12
    assert loaded.runner.pool_plan is loaded.pool_plan


def test_the_pool_has_the_bytes_that_were_asked_for(loaded: LoadedModel) -> None:
    plan = loaded.pool_plan
    assert (2 << 20) - plan.large_page_bytes < plan.pool_bytes <= 2 << 20


def test_a_pool_of_unstated_size_holds_every_slot_at_full_context(
    tiny_model: TinyModels, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="engine.runner.pool"):
        loaded = load_eager(tiny_model("llama").folder, kv_cache_bytes=None)
    token_bytes = 3 * 2 * 2 * 16 * 4
    usable = loaded.pool_plan.num_usable_large_pages * loaded.pool_plan.large_page_bytes
    assert usable == 8 * CONTEXT * token_bytes
    assert f"one request of up to {CONTEXT} tokens, or 8 of the full context of {CONTEXT}" in caplog.text


def test_loading_leaves_the_null_page_empty(loaded: LoadedModel) -> None:
    assert isinstance(loaded.runner, EagerRunner | DeviceRunner)
    assert not any(pages[0].any() for pages in loaded.runner._pages.values())


def test_more_context_than_the_checkpoint_has_is_refused(tiny_model: TinyModels) -> None:
    with pytest.raises(CheckpointError, match="max_model_len 257 is more than the 256 positions"):
        load_eager(tiny_model("llama").folder, max_model_len=257)


def test_bfloat16_gives_nearly_the_logprobs_of_float32(tiny_model: TinyModels) -> None:
    folder = tiny_model("llama-tied").folder
    params = replace(GREEDY, logprobs=0)
    prompt = random_prompt(2, 40)
    logprobs = []
    for dtype in ("float32", "bfloat16"):
        runner = load_eager(folder, dtype=dtype).runner
        sequence = Running(0, prompt, params)
        Stepper(runner, chunk=64).step([sequence])
        logprobs.append(sequence.drawn[0].logprob)
    assert logprobs[0] == pytest.approx(logprobs[1], abs=0.3)


def test_without_cuda_a_cuda_device_is_refused(tiny_model: TinyModels) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(CheckpointError, match="no CUDA device"):
        load_eager(tiny_model("llama").folder, device="cuda")


def test_a_closed_runner_lets_go_of_its_memory(loaded: LoadedModel) -> None:
    loaded.runner.close()
    with pytest.raises(AttributeError):
        run(loaded.runner, share(0, [1]))
