"""The recurrence of Mamba-2 on pages, against the reference: chunks, new sequences, padding, groups of heads."""

from dataclasses import replace

import pytest
import torch

from engine.kernels import reference
from engine.kernels.gpu import mamba2
from tests.engine.kernels.gpu.closeness import DTYPES, assert_near
from tests.engine.kernels.recurrent_steps import STEPS, Step, random_heads, random_rows


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize(("num_heads", "num_channels", "num_numbers"), [(4, 8, 16), (6, 5, 3), (2, 20, 256)])
def test_recurrence_and_its_states_are_those_of_the_reference(
    step: Step, num_heads: int, num_channels: int, num_numbers: int, dtype: torch.dtype, device: torch.device
) -> None:
    shape = num_heads, num_channels, num_numbers
    ours, theirs = (step.states(shape, torch.float32, device) for _ in range(2))
    num_tokens, heads = sum(step.lengths), random_heads(num_heads, device)
    x = random_rows(num_tokens, num_heads * num_channels, dtype, device, 1)
    dt = random_rows(num_tokens, num_heads, dtype, device, 2) * 4 - 2
    b, c = (random_rows(num_tokens, 2 * num_numbers, dtype, device, seed) / num_numbers**0.5 for seed in (3, 4))
    output = mamba2.head_scan(x, dt, b, c, heads, ours)
    expected = reference.head_scan(x, dt, b, c, heads, theirs)
    torch.testing.assert_close(ours.pages, theirs.pages, atol=2e-5, rtol=1e-5, equal_nan=True)
    if dtype == torch.float32:
        torch.testing.assert_close(output, expected, atol=2e-5, rtol=1e-5)
    else:
        assert_near(output, expected)


def test_a_prompt_in_chunks_gives_the_same_bits_as_at_once(device: torch.device) -> None:
    shape, length, heads = (2, 8, 4), 13, random_heads(2, device)
    x, dt, b, c = (random_rows(length, size, torch.float32, device, size) for size in (16, 2, 4, 4))
    whole = Step((0,), (length,), (3,)).states(shape, torch.float32, device)
    expected = mamba2.head_scan(x, dt, b, c, heads, whole)
    pages, outputs = torch.full_like(whole.pages, float("nan")), []
    for first, last in ((0, 1), (1, 6), (6, 13)):
        step = Step((first,), (last - first,), (3,)).states(shape, torch.float32, device)
        part = slice(first, last)
        outputs.append(mamba2.head_scan(x[part], dt[part], b[part], c[part], heads, replace(step, pages=pages)))
    assert torch.equal(torch.cat(outputs), expected)
    assert torch.equal(pages[3], whole.pages[3])
