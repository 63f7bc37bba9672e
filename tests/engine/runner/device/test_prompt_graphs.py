"""Steps with prompts in pieces: which numbers of tokens have graphs, which steps replay them, and the same tokens."""

from pathlib import Path

import pytest
import torch

from engine.batch import PageTableUpdate, StepPlan
from engine.runner import EagerRunner
from engine.runner.device.device_runner import DeviceRunner
from engine.runner.device.prompt_graphs import MAX_TOKENS, token_counts
from engine.runner.runner import run_step
from tests.engine.checkpoints import save
from tests.engine.runner.device.device_runners import (
    SLOTS,
    TinyModels,
    TorchWithGroupedExperts,
    TorchWithStateKernels,
    device_runner,
    eager_runner,
    in_random_company,
    share,
    torch_machinery,
)
from tests.engine.runner.device.tape import TapeRecorder
from tests.engine.stepper import GREEDY, Running, Stepper, random_prompt


def continued(runner: EagerRunner | DeviceRunner) -> list[list[int]]:
    """Prompts of every number of tokens up to 64, each beside a sequence that decodes."""
    outputs = []
    for length in (1, 8, 15, 16, 23, 30, 31, 40, 47, 60, 63):
        stepper = Stepper(runner, chunk=64)
        decoding, prompt = Running(0, random_prompt(1, 5), GREEDY), Running(1, random_prompt(2, length), GREEDY)
        stepper.step([decoding])
        for _ in range(4):
            stepper.step([decoding, prompt])
        outputs += [decoding.output, prompt.output]
    return outputs


@pytest.mark.parametrize("largest", [1, 16, 40, 64, 500, 2048])
def test_at_most_a_third_of_a_step_is_padding(largest: int) -> None:
    counts = token_counts(largest)
    assert counts[-1] == min(largest, MAX_TOKENS)
    for num_tokens in range(16, counts[-1] + 1):
        count = next(count for count in counts if count >= num_tokens)
        assert 3 * (count - num_tokens) <= count


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2", "gpt2", "ministral3"])
def test_every_number_of_tokens_is_replayed_and_no_token_changes(tiny_model: TinyModels, name: str) -> None:
    folder = tiny_model(name).folder
    recorder = TapeRecorder()
    runner = device_runner(folder, torch_machinery(recorder), max_running=SLOTS)
    assert runner.prompt_graphs is not None
    assert runner.prompt_graphs.counts == (16, 24, 32, 48, 64)
    assert continued(runner) == continued(eager_runner(folder))
    assert len(recorder.piece_replays) == 5
    for counts in recorder.piece_replays:
        assert len(counts) == len(runner._model.attention_shapes) + 1
        assert min(counts) == max(counts) > 0, "a step replays all pieces"


def test_steps_that_need_a_decision_of_the_host_are_not_replayed(tiny_model: TinyModels, tmp_path: Path) -> None:
    recorder = TapeRecorder()
    runner = device_runner(tiny_model("mixtral").folder, torch_machinery(recorder), max_running=SLOTS)
    assert in_random_company(runner, GREEDY)
    assert not recorder.piece_replays, "the host chooses the experts"
    folder = save("mamba", tmp_path).folder
    runner = device_runner(folder, torch_machinery(recorder), TorchWithStateKernels(), max_running=SLOTS)
    assert runner.prompt_graphs is None, "states are looked up for each step"
    runner = device_runner(tiny_model("llama").folder, torch_machinery(recorder), enforce_eager=True)
    run_step(runner, StepPlan(0, (), (), (share(0, random_prompt(1, 20)),)))
    assert not recorder.piece_replays


def test_experts_that_the_device_chooses_are_replayed(tiny_model: TinyModels) -> None:
    recorder = TapeRecorder()
    folder = tiny_model("mixtral").folder
    runner = device_runner(folder, torch_machinery(recorder), TorchWithGroupedExperts(), max_running=SLOTS)
    assert runner.prompt_graphs is not None
    assert runner.prompt_graphs.counts == (16, 24, 32, 48, 64)
    assert continued(runner) == continued(eager_runner(folder))
    assert len(recorder.piece_replays) == 5
    assert all(min(counts) > 0 for counts in recorder.piece_replays)


def test_padding_of_an_earlier_step_writes_nothing(tiny_model: TinyModels) -> None:
    """The second step has nine tokens in a graph of sixteen: seven rows hold tokens of the first."""
    runner = device_runner(tiny_model("llama").folder)
    (kind,) = runner.pool_plan.types
    (pages,) = runner._pages.values()
    before = (PageTableUpdate(0, kind.name, 0, (1, 2, 3, 4)),)
    run_step(runner, StepPlan(0, before, (), (share(0, random_prompt(1, 16)),)))
    written = pages[1:5].clone()
    table = (PageTableUpdate(1, kind.name, 0, (5, 6, 7)),)
    run_step(runner, StepPlan(1, table, (), (share(1, random_prompt(2, 9)),)))
    assert torch.equal(pages[1:5], written)
    assert pages[5:8].any(dim=1).all()
    assert not pages[0].any()
    assert not pages[8:].any()


def test_a_step_of_more_tokens_than_the_largest_graph_runs_without(
    tiny_model: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.runner.device.prompt_graphs.MAX_TOKENS", 20)
    folder = tiny_model("llama").folder
    recorder = TapeRecorder()
    runner = device_runner(folder, torch_machinery(recorder), max_running=SLOTS)
    assert runner.prompt_graphs is not None
    assert runner.prompt_graphs.counts == (16, 20)
    assert continued(runner) == continued(eager_runner(folder))
    assert all(recorder.piece_replays[0])
