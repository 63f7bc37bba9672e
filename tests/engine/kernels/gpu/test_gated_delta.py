"""The gated delta rule of Triton, with a decay for every head or for every channel of a key, against the reference:
chunks, new sequences, padding, groups of heads."""

from dataclasses import replace

import pytest
import torch

from engine.kernels.gpu import state_kernels
from engine.kernels.reference import state_kernels as reference
from tests.engine.kernels.delta_steps import SIZES, Inputs, Sizes
from tests.engine.kernels.gpu.closeness import DTYPES, assert_near
from tests.engine.kernels.recurrent_steps import STEPS, Step

#: Sizes, and whether every channel of a key decays at its own rate.
KINDS = [(sizes, False) for sizes in SIZES] + [(SIZES[1], True), (Sizes(2, 2, 16, 24), True)]


@pytest.mark.sampled(4)
@pytest.mark.first_minutes(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", [STEPS["decode"], STEPS["prompts and a decode"]], ids=["decode", "prompts"])
@pytest.mark.parametrize(("sizes", "is_by_channel"), KINDS, ids=str)
def test_output_and_states_are_those_of_the_reference(
    sizes: Sizes, is_by_channel: bool, step: Step, dtype: torch.dtype, device: torch.device
) -> None:
    inputs = Inputs.random(sum(step.lengths), sizes, dtype, device, is_by_channel=is_by_channel)
    ours, theirs = (step.states(sizes.state, torch.float32, device) for _ in range(2))
    output = inputs.read_by(state_kernels, slice(None), ours)
    expected = inputs.read_by(reference, slice(None), theirs)
    torch.testing.assert_close(ours.pages, theirs.pages, atol=1e-5, rtol=1e-5, equal_nan=True)
    if dtype == torch.float32:
        torch.testing.assert_close(output, expected, atol=2e-5, rtol=2e-5)
    else:
        assert_near(output, expected)


@pytest.mark.sampled
@pytest.mark.parametrize(("sizes", "is_by_channel"), [KINDS[0], KINDS[-1]], ids=str)
def test_a_prompt_in_chunks_gives_the_same_bits_as_at_once(
    sizes: Sizes, is_by_channel: bool, device: torch.device
) -> None:
    length = 13
    inputs = Inputs.random(length, sizes, torch.float32, device, is_by_channel=is_by_channel)
    whole = Step((0,), (length,), (3,)).states(sizes.state, torch.float32, device)
    expected = inputs.read_by(state_kernels, slice(None), whole)
    pages, outputs = torch.full_like(whole.pages, float("nan")), []
    for first, last in ((0, 1), (1, 6), (6, 13)):
        states = Step((first,), (last - first,), (3,)).states(sizes.state, torch.float32, device)
        outputs.append(inputs.read_by(state_kernels, slice(first, last), replace(states, pages=pages)))
    assert torch.equal(torch.cat(outputs), expected)
    assert torch.equal(pages[3], whole.pages[3])
