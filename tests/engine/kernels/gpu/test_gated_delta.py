"""The gated delta rule of Triton, against the reference: chunks, new sequences, padding, groups of heads."""

from dataclasses import replace

import pytest
import torch

from engine.kernels import reference
from engine.kernels.gpu.gated_delta import gated_delta
from engine.kernels.state_kernels import DeltaWeights, StatesInPlace
from tests.engine.kernels.delta_steps import SIZES, STEPS, Inputs, Sizes, Step, delta_weights
from tests.engine.kernels.gpu.closeness import DTYPES, assert_near


def compute(inputs: Inputs, weights: DeltaWeights, states: StatesInPlace) -> torch.Tensor:
    return gated_delta(inputs.qkv, inputs.gate, inputs.a, inputs.b, weights, states)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", [STEPS["decode"], STEPS["prompts and a decode"]], ids=["decode", "prompts"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_output_and_states_are_those_of_the_reference(
    sizes: Sizes, step: Step, dtype: torch.dtype, device: torch.device
) -> None:
    inputs, weights = Inputs.random(step.num_tokens, sizes, dtype, device), delta_weights(sizes, device)
    ours, theirs = step.states(sizes, device), step.states(sizes, device)
    output = compute(inputs, weights, ours)
    expected = reference.gated_delta(inputs.qkv, inputs.gate, inputs.a, inputs.b, weights, theirs)
    torch.testing.assert_close(ours.pages, theirs.pages, atol=1e-5, rtol=1e-5, equal_nan=True)
    if dtype == torch.float32:
        torch.testing.assert_close(output, expected, atol=2e-5, rtol=2e-5)
    else:
        assert_near(output, expected)


def test_a_prompt_in_chunks_gives_the_same_bits_as_at_once(device: torch.device) -> None:
    sizes, length = SIZES[0], 13
    inputs, weights = Inputs.random(length, sizes, torch.float32, device), delta_weights(sizes, device)
    whole = Step((0,), (length,), (3,)).states(sizes, device)
    expected = compute(inputs, weights, whole)
    pages = Step((0,), (1,), (3,)).states(sizes, device).pages
    outputs = []
    for first, last in ((0, 1), (1, 6), (6, 13)):
        states = replace(Step((first,), (last - first,), (3,)).states(sizes, device), pages=pages)
        outputs.append(compute(inputs.rows(first, last), weights, states))
    assert torch.equal(torch.cat(outputs), expected)
    assert torch.equal(pages[3], whole.pages[3])
