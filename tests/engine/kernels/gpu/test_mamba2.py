"""The recurrence of Mamba-2 on pages, against the reference: chunks, new sequences, padding, groups of heads; short
sequences token by token, long ones in chunks."""

from dataclasses import dataclass, replace

import pytest
import torch

from engine.kernels.gpu import state_kernels
from engine.kernels.reference import state_kernels as reference
from engine.kernels.state_kernels import ScanHeads, StateKernels, StatesInPlace
from tests.engine.kernels.gpu.closeness import DTYPES, assert_near
from tests.engine.kernels.recurrent_steps import STEPS, Step, random_heads, random_rows

#: Prompts of several chunks, of one and a short one, and beside them what goes token by token, and padding.
LONG = Step((0, 4, 9, 2, 0, 7), (130, 1, 70, 33, 48, 64), (3, 5, -1, 1, 2, 6))


@dataclass(frozen=True)
class Inputs:
    x: torch.Tensor
    dt: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor
    heads: ScanHeads

    @classmethod
    def random(cls, num_tokens: int, shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> "Inputs":
        """Of heads in two groups."""
        num_heads, num_channels, num_numbers = shape
        return cls(
            random_rows(num_tokens, num_heads * num_channels, dtype, device, 1),
            random_rows(num_tokens, num_heads, dtype, device, 2) * 4 - 2,
            random_rows(num_tokens, 2 * num_numbers, dtype, device, 3) / num_numbers**0.5,
            random_rows(num_tokens, 2 * num_numbers, dtype, device, 4) / num_numbers**0.5,
            random_heads(num_heads, device),
        )

    def scanned_by(self, kernels: StateKernels, states: StatesInPlace, tokens: slice = slice(None)) -> torch.Tensor:
        x, dt, b, c = (part[tokens] for part in (self.x, self.dt, self.b, self.c))
        return kernels.head_scan(x, dt, b, c, self.heads, states)


@pytest.mark.sampled(4)
@pytest.mark.first_minutes(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("shape", [(4, 8, 16), (6, 5, 3), (2, 20, 256)], ids=str)
def test_recurrence_and_its_states_are_those_of_the_reference(
    step: Step, shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device
) -> None:
    ours, theirs = (step.states(shape, torch.float32, device) for _ in range(2))
    inputs = Inputs.random(sum(step.lengths), shape, dtype, device)
    output = inputs.scanned_by(state_kernels, ours)
    expected = inputs.scanned_by(reference, theirs)
    torch.testing.assert_close(ours.pages, theirs.pages, atol=2e-5, rtol=1e-5, equal_nan=True)
    if dtype == torch.float32:
        torch.testing.assert_close(output, expected, atol=2e-5, rtol=1e-5)
    else:
        assert_near(output, expected)


@pytest.mark.sampled(2)
@pytest.mark.first_minutes
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(4, 8, 16), (2, 40, 3)], ids=str)
def test_long_prompts_in_chunks_are_those_of_the_reference(
    shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device
) -> None:
    ours, theirs = (LONG.states(shape, torch.float32, device) for _ in range(2))
    inputs = Inputs.random(sum(LONG.lengths), shape, dtype, device)
    output = inputs.scanned_by(state_kernels, ours)
    expected = inputs.scanned_by(reference, theirs)
    # On a device factors of products have the 10 bits of tf32.
    tolerance = 2e-5 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(ours.pages, theirs.pages, atol=tolerance, rtol=tolerance, equal_nan=True)
    if dtype == torch.float32:
        torch.testing.assert_close(output, expected, atol=5e-5, rtol=5e-5)
    else:
        assert_near(output, expected, num_roundings=2)


def test_a_decode_has_the_same_bits_beside_long_prompts_and_without(device: torch.device) -> None:
    shape = (2, 8, 4)
    inputs = Inputs.random(sum(LONG.lengths), shape, torch.float32, device)
    together = LONG.states(shape, torch.float32, device)
    output = inputs.scanned_by(state_kernels, together)
    alone = Step(LONG.starts[1:2], LONG.lengths[1:2], LONG.pages[1:2]).states(shape, torch.float32, device)
    assert torch.equal(inputs.scanned_by(state_kernels, alone, slice(130, 131)), output[130:131])
    assert torch.equal(alone.pages[5], together.pages[5])


def test_a_short_prompt_in_chunks_gives_the_same_bits_as_at_once(device: torch.device) -> None:
    shape, length = (2, 8, 4), 13
    inputs = Inputs.random(length, shape, torch.float32, device)
    whole = Step((0,), (length,), (3,)).states(shape, torch.float32, device)
    expected = inputs.scanned_by(state_kernels, whole)
    pages, outputs = torch.full_like(whole.pages, float("nan")), []
    for first, last in ((0, 1), (1, 6), (6, 13)):
        states = Step((first,), (last - first,), (3,)).states(shape, torch.float32, device)
        outputs.append(inputs.scanned_by(state_kernels, replace(states, pages=pages), slice(first, last)))
    assert torch.equal(torch.cat(outputs), expected)
    assert torch.equal(pages[3], whole.pages[3])
