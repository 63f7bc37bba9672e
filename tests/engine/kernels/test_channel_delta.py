"""The delta rule with a decay for every channel, against the recurrence as the paper writes it, in float64."""

import pytest
import torch
import torch.nn.functional as F

from engine.kernels.reference import state_kernels
from engine.kernels.state_kernels import DeltaWeights, StatesInPlace
from tests.engine.kernels.delta_steps import CPU
from tests.engine.kernels.recurrent_steps import STEPS, Step, random_rows

HEADS, KEY_DIM, VALUE_DIM = 3, 5, 7
KEYS, VALUES = HEADS * KEY_DIM, HEADS * VALUE_DIM
STATE = (HEADS, KEY_DIM, VALUE_DIM)
WIDTHS = (2 * KEYS + VALUES, VALUES, KEYS, HEADS)


def weights() -> DeltaWeights:
    generator = torch.Generator().manual_seed(9)
    rates, bias, norm = (torch.rand(size, generator=generator) for size in (HEADS, KEYS, VALUE_DIM))
    return DeltaWeights(-(rates * 3).exp() * 0.1, bias, norm, 1e-6)


def inputs(num_tokens: int) -> list[torch.Tensor]:
    return [random_rows(num_tokens, width, torch.float32, CPU, seed) for seed, width in enumerate(WIDTHS)]


def computed(rows: list[torch.Tensor], states: StatesInPlace) -> torch.Tensor:
    qkv, gate, a, b = rows
    return state_kernels.channel_delta(qkv, gate, a, b, weights(), states)


def recurrence(step: Step, rows: list[torch.Tensor], states: StatesInPlace) -> torch.Tensor:
    """S(t) = (1 - beta k k^T) Diag(alpha) S(t - 1) + beta k v^T, token by token, head by head; updates the states."""
    own, first = weights(), 0
    output = torch.zeros(sum(step.lengths), HEADS, VALUE_DIM, dtype=torch.float64)
    for start, length, page in zip(step.starts, step.lengths, step.pages, strict=True):
        for head in range(HEADS if page >= 0 else 0):
            state = states.pages[page, head].double() if start else torch.zeros(STATE[1:]).double()
            for t in range(first, first + length):
                qkv, gate, a, b = (part[t].double() for part in rows)
                query, key, value = (part.view(HEADS, -1)[head] for part in qkv.split([KEYS, KEYS, VALUES]))
                query, key = (part / (part.square().sum() + 1e-6).sqrt() for part in (query, key))
                alpha = (own.rates[head] * F.softplus(a + own.step_bias).view(HEADS, -1)[head]).exp()
                beta = b[head].sigmoid()
                forget = torch.eye(KEY_DIM).double() - beta * torch.outer(key, key)
                state = forget @ torch.diag(alpha) @ state + beta * torch.outer(key, value)
                read = state.T @ query / KEY_DIM**0.5
                normed = F.rms_norm(read, read.shape, own.norm.double(), own.eps)
                output[t, head] = normed * gate.view(HEADS, -1)[head].sigmoid()
            states.pages[page, head] = state.float()
        first += length
    return output.flatten(1)


@pytest.mark.parametrize("step", STEPS.values(), ids=list(STEPS))
def test_the_reference_is_the_recurrence(step: Step) -> None:
    rows = inputs(sum(step.lengths))
    ours, theirs = (step.states(STATE, torch.float32, CPU) for _ in range(2))
    output = computed(rows, ours)
    torch.testing.assert_close(output.double(), recurrence(step, rows, theirs), atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(ours.pages, theirs.pages, atol=1e-5, rtol=1e-5, equal_nan=True)


def test_bits_do_not_depend_on_how_a_prompt_is_divided() -> None:
    rows = inputs(20)
    whole = Step((0,), (20,), (1,)).states(STATE, torch.float32, CPU)
    at_once = computed(rows, whole)
    pages, parts, first = None, [], 0
    for length in (7, 1, 12):
        states = Step((first,), (length,), (1,)).states(STATE, torch.float32, CPU)
        if pages is not None:
            states.pages.copy_(pages)
        parts.append(computed([part[first : first + length] for part in rows], states))
        pages, first = states.pages, first + length
    assert torch.equal(torch.cat(parts), at_once)
    assert pages is not None
    assert torch.equal(pages[1], whole.pages[1])
