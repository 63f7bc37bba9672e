"""Convolution and selective scan of Mamba layers on pages, against the reference: chunks, new sequences, padding."""

from dataclasses import replace

import pytest
import torch

from engine.kernels import reference
from engine.kernels.gpu import mamba
from tests.engine.kernels.gpu.closeness import DTYPES, assert_near
from tests.engine.kernels.recurrent_steps import STEPS, Step, random_rows


@pytest.mark.first_minutes
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize(("num_channels", "num_taps", "has_bias"), [(24, 4, True), (300, 3, False)])
def test_convolution_and_its_states_are_those_of_the_reference(
    step: Step, num_channels: int, num_taps: int, has_bias: bool, dtype: torch.dtype, device: torch.device
) -> None:
    ours, theirs = (step.states((num_taps - 1, num_channels), dtype, device) for _ in range(2))
    x = random_rows(sum(step.lengths), num_channels, dtype, device, 1)
    taps = random_rows(num_taps, num_channels, dtype, device, 2).contiguous()
    bias = random_rows(1, num_channels, dtype, device, 3)[0].contiguous() if has_bias else None
    output = mamba.causal_conv(x, taps, bias, ours, has_silu=has_bias)
    expected = reference.causal_conv(x, taps, bias, theirs, has_silu=has_bias)
    assert_near(output, expected)
    assert torch.equal(ours.pages.nan_to_num(7), theirs.pages.nan_to_num(7))  # copies of inputs: bit for bit


@pytest.mark.first_minutes(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize(("num_channels", "num_states"), [(40, 16), (5, 3)])
def test_recurrence_and_its_states_are_those_of_the_reference(
    step: Step, num_channels: int, num_states: int, dtype: torch.dtype, device: torch.device
) -> None:
    ours, theirs = (step.states((num_channels, num_states), torch.float32, device) for _ in range(2))
    num_tokens = sum(step.lengths)
    x, dt, gate = (random_rows(num_tokens, num_channels, dtype, device, seed) for seed in (1, 2, 3))
    dt = dt * 8 - 4  # softplus: flat, curved and straight
    b, c = (random_rows(num_tokens, num_states, dtype, device, seed) for seed in (4, 5))
    a = -torch.rand(num_channels, num_states, device=device) - 0.1
    d = torch.rand(num_channels, device=device)
    output = mamba.selective_scan(x, dt, b, c, gate, a, d, ours)
    expected = reference.selective_scan(x, dt, b, c, gate, a, d, theirs)
    torch.testing.assert_close(ours.pages, theirs.pages, atol=1e-5, rtol=1e-5, equal_nan=True)
    if dtype == torch.float32:
        torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
    else:
        assert_near(output, expected)


def test_a_prompt_in_chunks_gives_the_same_bits_as_at_once(device: torch.device) -> None:
    num_channels, num_states, length = 8, 4, 13
    sizes = (num_channels, num_channels, num_states, num_states, num_channels)
    x, dt, b, c, gate = (random_rows(length, size, torch.float32, device, seed) for seed, size in enumerate(sizes))
    a, d = -torch.rand(num_channels, num_states, device=device), torch.rand(num_channels, device=device)
    whole = Step((0,), (length,), (3,)).states((num_channels, num_states), torch.float32, device)
    expected = mamba.selective_scan(x, dt, b, c, gate, a, d, whole)
    chunked, outputs = whole, []
    for first, last in ((0, 1), (1, 6), (6, 13)):
        step = Step((first,), (last - first,), (3,)).states((num_channels, num_states), torch.float32, device)
        chunked = replace(step, pages=chunked.pages if first else torch.full_like(whole.pages, float("nan")))
        part = slice(first, last)
        outputs.append(mamba.selective_scan(x[part], dt[part], b[part], c[part], gate[part], a, d, chunked))
    assert torch.equal(torch.cat(outputs), expected)
    assert torch.equal(chunked.pages[3], whole.pages[3])
