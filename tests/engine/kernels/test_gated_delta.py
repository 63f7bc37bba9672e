"""The gated delta rule in plain torch and in C++, against the recurrence as the paper writes it, in float64."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from engine.kernels import reference
from engine.kernels.cpu.gated_delta import gated_delta
from engine.kernels.state_kernels import DeltaWeights, StatesInPlace
from tests.engine.kernels.delta_steps import SIZES, STEPS, Inputs, Sizes, Step, delta_weights
from tests.engine.kernels.libraries import USABLE, library

DTYPES = (torch.float32, torch.bfloat16)


def compute(name: str, inputs: Inputs, weights: DeltaWeights, states: StatesInPlace, threads: int = 2) -> torch.Tensor:
    parts = (inputs.qkv, inputs.gate, inputs.a, inputs.b, weights, states)
    return reference.gated_delta(*parts) if name == "torch" else gated_delta(library(name, threads), *parts)


def recurrence(sizes: Sizes, step: Step, inputs: Inputs, weights: DeltaWeights, states: StatesInPlace) -> torch.Tensor:
    """Token by token, head by head; updates the states."""
    output = torch.zeros(step.num_tokens, sizes.heads, sizes.value_dim, dtype=torch.float64)
    first = 0
    for start, length, page in zip(step.starts, step.lengths, step.pages, strict=True):
        for head in range(sizes.heads if page >= 0 else 0):
            state = states.pages[page, head].double() if start else torch.zeros(sizes.key_dim, sizes.value_dim).double()
            rate, bias = weights.rates[head].double(), weights.step_bias[head].double()
            for t in range(first, first + length):
                query, key, value = (
                    inputs.qkv[t]
                    .double()
                    .split([sizes.key_heads * sizes.key_dim] * 2 + [sizes.heads * sizes.value_dim])
                )
                key_head = head * sizes.key_heads // sizes.heads
                query, key = (part.view(-1, sizes.key_dim)[key_head] for part in (query, key))
                query, key = (part / (part.square().sum() + 1e-6).sqrt() for part in (query, key))
                state = state * (rate * F.softplus(inputs.a[t, head].double() + bias)).exp()
                wanted = value.view(-1, sizes.value_dim)[head] - state.T @ key
                state = state + torch.outer(key, inputs.b[t, head].double().sigmoid() * wanted)
                read = state.T @ query / sizes.key_dim**0.5
                normed = F.rms_norm(read, read.shape, weights.norm.double(), weights.eps)
                gate = inputs.gate[t].double().view(-1, sizes.value_dim)[head]
                output[t, head] = normed * F.silu(gate)
            states.pages[page, head] = state.float()
        first += length
    return output.flatten(1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", ["torch", *USABLE])
def test_output_and_states_are_those_of_the_recurrence(name: str, sizes: Sizes, step: Step, dtype: torch.dtype) -> None:
    inputs, weights = Inputs.random(step.num_tokens, sizes, dtype), delta_weights(sizes)
    ours, theirs = step.states(sizes), step.states(sizes)
    output = compute(name, inputs, weights, ours)
    expected = recurrence(sizes, step, inputs, weights, theirs)
    tolerance = 2e-5 if dtype == torch.float32 else 8e-3
    assert output.dtype == dtype
    torch.testing.assert_close(output.double(), expected, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(ours.pages, theirs.pages, atol=1e-5, rtol=1e-5, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", USABLE)
def test_a_token_is_the_same_to_the_last_bit_in_any_chunk_beside_any_others(name: str, dtype: torch.dtype) -> None:
    sizes, length = SIZES[0], 71
    inputs, weights = Inputs.random(length, sizes, dtype), delta_weights(sizes)
    whole = Step((0,), (length,), (3,)).states(sizes)
    expected = compute(name, inputs, weights, whole, threads=1)
    pages = Step((0,), (1,), (3,)).states(sizes).pages
    outputs = []
    for first, last in ((0, 1), (1, 2), (2, 40), (40, 71)):
        step = Step((first, 0), (last - first, 2), (3, 5))
        part = inputs.rows(first, last)
        beside = Inputs(*(torch.cat((rows, rows[:1], rows[:1])) for rows in (part.qkv, part.gate, part.a, part.b)))
        states = replace(step.states(sizes), pages=pages)
        outputs.append(compute(name, beside, weights, states, threads=3)[:-2])
    assert torch.equal(torch.cat(outputs), expected)
    assert torch.equal(pages[3], whole.pages[3])
