"""The gated delta rule in plain torch, against the recurrence as the paper writes it, in float64."""

import pytest
import torch
import torch.nn.functional as F

from engine.kernels.reference import state_kernels
from engine.kernels.state_kernels import StatesInPlace
from tests.engine.kernels.delta_steps import CPU, SIZES, Inputs, Sizes
from tests.engine.kernels.recurrent_steps import STEPS, Step

#: Longer than a chunk of the reference.
LONG = Step((8, 0), (150, 65), (4, 2))


def recurrence(sizes: Sizes, step: Step, inputs: Inputs, states: StatesInPlace) -> torch.Tensor:
    """Token by token, head by head; updates the states."""
    output = torch.zeros(sum(step.lengths), sizes.heads, sizes.value_dim, dtype=torch.float64)
    weights, first = inputs.weights, 0
    channels = [sizes.key_heads * sizes.key_dim] * 2 + [sizes.heads * sizes.value_dim]
    for start, length, page in zip(step.starts, step.lengths, step.pages, strict=True):
        for head in range(sizes.heads if page >= 0 else 0):
            state = states.pages[page, head].double() if start else torch.zeros(sizes.state[1:]).double()
            for t in range(first, first + length):
                query, key, value = inputs.qkv[t].double().split(channels)
                key_head = head * sizes.key_heads // sizes.heads
                query, key = (part.view(-1, sizes.key_dim)[key_head] for part in (query, key))
                query, key = (part / (part.square().sum() + 1e-6).sqrt() for part in (query, key))
                step_size = F.softplus(inputs.a[t, head].double() + weights.step_bias[head])
                state = state * (weights.rates[head] * step_size).exp()
                wanted = value.view(-1, sizes.value_dim)[head] - state.T @ key
                state = state + torch.outer(key, inputs.b[t, head].double().sigmoid() * wanted)
                read = state.T @ query / sizes.key_dim**0.5
                normed = F.rms_norm(read, read.shape, weights.norm.double(), weights.eps)
                output[t, head] = normed * F.silu(inputs.gate[t].double().view(-1, sizes.value_dim)[head])
            states.pages[page, head] = state.float()
        first += length
    return output.flatten(1)


@pytest.mark.parametrize("step", [*STEPS.values(), LONG], ids=[*STEPS, "chunks of the reference"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_reference_is_the_recurrence(sizes: Sizes, step: Step) -> None:
    inputs = Inputs.random(sum(step.lengths), sizes, torch.float32)
    ours, theirs = (step.states(sizes.state, torch.float32, CPU) for _ in range(2))
    output = inputs.read_by(state_kernels, slice(None), ours)
    expected = recurrence(sizes, step, inputs, theirs)
    torch.testing.assert_close(output.double(), expected, atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(ours.pages, theirs.pages, atol=1e-5, rtol=1e-5, equal_nan=True)
