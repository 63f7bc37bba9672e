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
STEP = Step((0, 4, 9, 2, 0, 7), (130, 1, 70, 33, 48, 64), (3, 5, -1, 1, 2, 6))
SIZES = (Sizes(2, 1, 16, 40), Sizes(3, 3, 5, 7))


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


@pytest.mark.first_minutes(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_output_and_states_are_those_of_the_reference(sizes: Sizes, dtype: torch.dtype, device: torch.device) -> None:
    _check(Inputs.random(sum(STEP.lengths), sizes, dtype, device), sizes, device)


@pytest.mark.parametrize("step", [-40.0, 0.0, 40.0], ids=["keeps all", "forgets some", "forgets at once"])
def test_one_token_again_and_again_is_no_worse(step: float, device: torch.device) -> None:
    """Equal keys, each written with full strength: 1 + A is as far from 1 as it can be."""
    sizes = SIZES[0]
    inputs = Inputs.random(sum(STEP.lengths), sizes, torch.float32, device)
    qkv = inputs.qkv[:1].expand_as(inputs.qkv).contiguous()
    same = replace(inputs, qkv=qkv, a=torch.full_like(inputs.a, step), b=torch.full_like(inputs.b, 20.0))
    _check(same, sizes, device)


def test_a_decode_has_the_same_bits_beside_long_prompts_and_without(device: torch.device) -> None:
    sizes = SIZES[0]
    inputs = Inputs.random(sum(STEP.lengths), sizes, torch.float32, device)
    together = STEP.states(sizes.state, torch.float32, device)
    output = inputs.read_by(state_kernels, slice(None), together)
    alone = Step(STEP.starts[1:2], STEP.lengths[1:2], STEP.pages[1:2]).states(sizes.state, torch.float32, device)
    assert torch.equal(inputs.read_by(state_kernels, slice(130, 131), alone), output[130:131])
    assert torch.equal(alone.pages[5], together.pages[5])
