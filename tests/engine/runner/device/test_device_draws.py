"""How the runner of devices draws: as engine/sampling does, in any company, and without waiting for the device."""

from dataclasses import replace

import pytest
import torch

from engine.batch import PENDING_TOKEN, PageTableUpdate, StepPlan
from engine.kernels.torch_operators import TorchOperators
from engine.runner import EagerRunner
from engine.runner.device.device_runner import DeviceRunner
from engine.sampling.sampler import SamplingRow, sample
from engine.sampling_params import SamplingParams
from tests.engine.runner.device.device_runners import (
    PROMPTS,
    SLOTS,
    TinyModels,
    device_runner,
    eager_runner,
    in_random_company,
    share,
    torch_machinery,
)
from tests.engine.runner.device.tape import NoWaiting, TapeRecorder, WaitsForDevice
from tests.engine.stepper import GREEDY, Running, Stepper, generate, random_prompt

#: What changes logits before a token is drawn, and what is asked of them afterwards.
PENALISED = SamplingParams(temperature=0.7, repetition_penalty=1.4, presence_penalty=0.5, frequency_penalty=0.3)
EVERYTHING = replace(PENALISED, logit_bias={5: 3.0, 250: -100.0, 7: 1.5}, min_tokens=3, logprobs=4, top_p=0.95)
KINDS = [
    GREEDY,
    replace(GREEDY, repetition_penalty=1.8, frequency_penalty=1.0),
    SamplingParams(temperature=0.9, logprobs=3),
    SamplingParams(temperature=0.0, min_tokens=4, stop_token_ids=tuple(range(150))),
    SamplingParams(temperature=1.1, top_p=0.8, logprobs=0),
    EVERYTHING,
    replace(PENALISED, logit_bias={9: -4.0}),
    SamplingParams(temperature=1.2, typical_p=0.6, top_k=30, allowed_token_ids=tuple(range(0, 200, 3)), logprobs=1),
]


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.8),
        SamplingParams(temperature=1.3, top_k=20, top_p=0.9),
        SamplingParams(temperature=2.0, min_p=0.05),
        SamplingParams(temperature=1.0, top_k=2**40),
    ],
    ids=str,
)
def test_random_tokens_are_those_of_engine_sampling(tiny_model: TinyModels, params: SamplingParams) -> None:
    folder = tiny_model("llama").folder
    wanted = generate(eager_runner(folder), PROMPTS, 8, chunk=64, params=params)
    assert in_random_company(device_runner(folder, max_running=SLOTS), params) == wanted


def test_requests_that_change_logits_share_steps_with_those_that_do_not(
    tiny_model: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("changed_logits", "logprobs"):
        monkeypatch.setattr(f"engine.runner.device.{module}.ROWS_AT_ONCE", 3)  # so that it takes several copies
    folder = tiny_model("llama").folder

    def continued(runner: EagerRunner | DeviceRunner) -> list[Running]:
        stepper = Stepper(runner, chunk=16)
        running = [
            Running(slot, prompt, KINDS[slot % len(KINDS)], seed=slot) for slot, prompt in enumerate(PROMPTS[:8])
        ]
        for _ in range(9):
            stepper.step(running)
        return running

    recorder = TapeRecorder()
    ours_all = continued(device_runner(folder, torch_machinery(recorder)))
    assert sum(recorder.num_replays) == 6, "of nine steps all but the three with chunks of prompts"
    plain = continued_plainly(eager_runner(folder))
    for ours, wanted in zip(ours_all, continued(eager_runner(folder)), strict=True):
        assert ours.output == wanted.output
        assert [t.logprob for t in ours.drawn] == pytest.approx([t.logprob for t in wanted.drawn], abs=1e-4)
        assert [[i for i, _ in t.top_logprobs] for t in ours.drawn] == [
            [i for i, _ in t.top_logprobs] for t in wanted.drawn
        ]
    assert ours_all[1].output != plain[1], "penalties make a difference"


def continued_plainly(runner: EagerRunner | DeviceRunner) -> list[list[int]]:
    return generate(runner, PROMPTS[:8], 6, chunk=16)


@pytest.mark.parametrize("params", [replace(PENALISED, temperature=0.0), EVERYTHING], ids=["greedy", "random"])
def test_penalties_count_the_same_tokens_in_any_company(tiny_model: TinyModels, params: SamplingParams) -> None:
    folder = tiny_model("llama").folder
    wanted = generate(eager_runner(folder), PROMPTS, 8, chunk=64, params=params)
    assert in_random_company(device_runner(folder, max_running=SLOTS), params) == wanted


def test_pending_tokens_never_visit_the_host(tiny_model: TinyModels) -> None:
    """A prompt of one slot beside decodes of others, with two steps in flight all the time."""
    model = tiny_model("llama")
    runner = device_runner(model.folder)
    name = runner.pool_plan.types[0].name
    prompts = [random_prompt(1, 6), random_prompt(2, 4), random_prompt(3, 5)]
    updates = tuple(PageTableUpdate(slot, name, 0, (4 * slot + 1, 4 * slot + 2, 4 * slot + 3)) for slot in range(3))
    with NoWaiting():
        runner.launch(StepPlan(0, updates, (), (share(2, prompts[2]), share(0, prompts[0]))))
        # Slot 1 computes its prompt while the others decode.
        pending = [share(slot, [PENDING_TOKEN], len(prompts[slot])) for slot in (0, 2)]
        runner.launch(StepPlan(1, (), (), (*pending, share(1, prompts[1]))))
    drawn = {(0, slot): tokens[0].token_id for slot, tokens in zip((2, 0), runner.collect().samples, strict=True)}
    with NoWaiting():
        # Slot 0 is told its token, the others have theirs.
        known = share(0, [1], len(prompts[0]) + 1)
        pending = [share(slot, [PENDING_TOKEN], len(prompts[slot]) + (slot == 2)) for slot in (1, 2)]
        runner.launch(StepPlan(2, (), (), (pending[1], known, pending[0])))
    for step, slots in ((1, (0, 2, 1)), (2, (2, 0, 1))):
        output = runner.collect()
        assert output.step == step
        drawn |= {(step, slot): tokens[0].token_id for slot, tokens in zip(slots, output.samples, strict=True)}
    assert [drawn[step, 2] for step in range(3)] == model.greedy(prompts[2], 3)
    assert [drawn[step, 1] for step in (1, 2)] == model.greedy(prompts[1], 2)
    first = model.greedy(prompts[0], 2)
    assert [drawn[0, 0], drawn[1, 0]] == first
    assert [drawn[2, 0]] == model.greedy([*prompts[0], first[0], 1], 1)


def test_penalties_biases_and_log_probabilities_wait_for_nothing(tiny_model: TinyModels) -> None:
    """Two steps in flight all the time; a slot goes to another sequence in between."""
    folder = tiny_model("llama").folder
    runner = device_runner(folder)
    name = runner.pool_plan.types[0].name
    prompts, others = [random_prompt(1, 6), random_prompt(2, 4)], [random_prompt(3, 5), random_prompt(4, 3)]
    params = [EVERYTHING, replace(PENALISED, temperature=0.0)]
    updates = tuple(PageTableUpdate(slot, name, 0, (4 * slot + 1, 4 * slot + 2, 4 * slot + 3)) for slot in range(2))
    outputs = []
    step = 0
    for turn in (prompts, others):
        for index in range(5):
            is_prompt = index == 0
            sequences = tuple(
                share(
                    slot,
                    prompt if is_prompt else [PENDING_TOKEN],
                    0 if is_prompt else len(prompt) + index - 1,
                    params=params[slot],
                    seeds=(slot,),
                    output_index=index,
                    history=tuple(prompt) if is_prompt else None,
                )
                for slot, prompt in enumerate(turn)
            )
            with NoWaiting():
                runner.launch(StepPlan(step, updates if is_prompt else (), (), sequences))
            step += 1
            if step > 1:
                outputs.append(runner.collect())
    outputs.append(runner.collect())
    for slot in range(2):
        wanted = [
            generate(eager_runner(folder), [[1]] * slot + [turn[slot]], 5, chunk=64, params=params[slot])[slot]
            for turn in (prompts, others)
        ]
        drawn = [output.samples[slot][0] for output in outputs]
        assert [token.token_id for token in drawn] == wanted[0] + wanted[1]
        assert [len(token.top_logprobs) for token in drawn] == [4 if slot == 0 else 0] * 10


def test_what_looks_at_numbers_on_the_host_is_seen_to_wait() -> None:
    rows = [SamplingRow(PENALISED, 0, 0, [1, 2])]
    with NoWaiting(), pytest.raises(WaitsForDevice):
        sample(torch.zeros(1, 9), rows, frozenset(), TorchOperators().argmax)
