"""The gated delta rule over long prompts, chunk by chunk, against the reference, which goes token by token."""

from dataclasses import replace

import pytest
import torch

from engine.kernels.gpu import state_kernels
from engine.kernels.reference import state_kernels as reference
from tests.engine.kernels.delta_steps import Inputs, Sizes
from tests.engine.kernels.gpu.closeness import assert_near
from tests.engine.kernels.recurrent_steps import Step

#: Prompts of several chunks, of one and a short one, and beside them what goes token by token, and padding.
STEP = Step((0, 4, 9, 2, 0, 7), (70, 1, 50, 3, 48, 64), (3, 5, -1, 1, 2, 6))
SIZES = (Sizes(2, 1, 16, 40), Sizes(3, 3, 5, 7))
#: Sizes, and whether every channel of a key decays at its own rate.
KINDS = [(sizes, False) for sizes in SIZES] + [(SIZES[1], True), (Sizes(2, 2, 16, 40), True)]


def _check(inputs: Inputs, sizes: Sizes, device: torch.device) -> None:
    ours, theirs = (STEP.states(sizes.state, torch.float32, device) for _ in range(2))
    output = inputs.read_by(state_kernels, slice(None), ours)
    expected = inputs.read_by(reference, slice(None), theirs)
    if inputs.qkv.dtype == torch.float32:
        torch.testing.assert_close(ours.pages, theirs.pages, atol=2e-5, rtol=2e-5, equal_nan=True)
        torch.testing.assert_close(output, expected, atol=5e-5, rtol=5e-5)
        return
    # On a device factors of products have the 10 bits of tf32.
    torch.testing.assert_close(ours.pages, theirs.pages, atol=1e-2, rtol=1e-2, equal_nan=True)
    assert_near(output, expected, num_roundings=4)


@pytest.mark.sampled(3)
@pytest.mark.first_minutes(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("sizes", "is_by_channel"), KINDS, ids=str)
def test_output_and_states_are_those_of_the_reference(
    sizes: Sizes, is_by_channel: bool, dtype: torch.dtype, device: torch.device
) -> None:
    _check(Inputs.random(sum(STEP.lengths), sizes, dtype, device, is_by_channel=is_by_channel), sizes, device)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("step", [-40.0, 0.0, 40.0], ids=["keeps all", "forgets some", "forgets at once"])
@pytest.mark.parametrize(("sizes", "is_by_channel"), [KINDS[0], KINDS[-1]], ids=str)
def test_one_token_again_and_again_is_no_worse(
    sizes: Sizes, is_by_channel: bool, step: float, device: torch.device
) -> None:
    """Equal keys, each written with full strength: 1 + A is as far from 1 as it can be."""
    inputs = Inputs.random(sum(STEP.lengths), sizes, torch.float32, device, is_by_channel=is_by_channel)
    qkv = inputs.qkv[:1].expand_as(inputs.qkv).contiguous()
    same = replace(inputs, qkv=qkv, a=torch.full_like(inputs.a, step), b=torch.full_like(inputs.b, 20.0))
    _check(same, sizes, device)


def test_channels_that_forget_at_once_leave_those_that_keep_all_exact(device: torch.device) -> None:
    """Half of the channels decay by exp(-80) and more with each token, which no product of 16 tokens' factors holds."""
    sizes = KINDS[-1][0]
    inputs = Inputs.random(sum(STEP.lengths), sizes, torch.float32, device, is_by_channel=True)
    steps = inputs.a.clone()
    steps[:, ::2], steps[:, 1::2] = 200.0, -20.0
    _check(replace(inputs, a=steps), sizes, device)


@pytest.mark.sampled
@pytest.mark.parametrize(("sizes", "is_by_channel"), [KINDS[0], KINDS[-1]], ids=str)
def test_a_decode_has_the_same_bits_beside_long_prompts_and_without(
    sizes: Sizes, is_by_channel: bool, device: torch.device
) -> None:
    inputs = Inputs.random(sum(STEP.lengths), sizes, torch.float32, device, is_by_channel=is_by_channel)
    together = STEP.states(sizes.state, torch.float32, device)
    output = inputs.read_by(state_kernels, slice(None), together)
    place = STEP.lengths[0]
    alone = Step(STEP.starts[1:2], STEP.lengths[1:2], STEP.pages[1:2]).states(sizes.state, torch.float32, device)
    assert torch.equal(inputs.read_by(state_kernels, slice(place, place + 1), alone), output[place : place + 1])
    assert torch.equal(alone.pages[5], together.pages[5])
