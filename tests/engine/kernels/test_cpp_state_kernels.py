"""C++ kernels of recurrent layers against the reference, on every instruction set that this machine can run."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch

from engine.kernels.cpu.state_kernels import CppStateKernels
from engine.kernels.reference import state_kernels as reference
from engine.kernels.state_kernels import StateKernels, StatesInPlace
from tests.engine.kernels.delta_steps import Inputs, Sizes
from tests.engine.kernels.libraries import USABLE, library
from tests.engine.kernels.recurrent_steps import STEPS, Step, random_heads, random_rows

CPU = torch.device("cpu")
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 8e-3}
#: (kernels, first and last token, states) -> output of those tokens
Call = Callable[[StateKernels, slice, StatesInPlace], torch.Tensor]


@dataclass(frozen=True)
class Case:
    """A call of one kernel, with inputs for some tokens."""

    shape: tuple[int, ...]  #: of a state
    state_dtype: torch.dtype
    call: Call
    slack: float = 1.0  #: factor on the tolerance in float32


def convolution(num_tokens: int, dtype: torch.dtype, num_channels: int, num_taps: int) -> Case:
    x = random_rows(num_tokens, num_channels, dtype, CPU, 1)
    taps = random_rows(num_taps, num_channels, dtype, CPU, 2).contiguous()
    bias = random_rows(1, num_channels, dtype, CPU, 3)[0].contiguous() if num_taps > 3 else None

    def call(kernels: StateKernels, tokens: slice, states: StatesInPlace) -> torch.Tensor:
        return kernels.causal_conv(x[tokens], taps, bias, states, has_silu=num_taps > 3)

    return Case((num_taps - 1, num_channels), dtype, call)


def scan(num_tokens: int, dtype: torch.dtype, num_channels: int, num_numbers: int) -> Case:
    x, dt, gate = (random_rows(num_tokens, num_channels, dtype, CPU, seed) for seed in (1, 2, 3))
    dt = dt * 8 - 4  # softplus: flat, curved and straight
    b, c = (random_rows(num_tokens, num_numbers, dtype, CPU, seed) for seed in (4, 5))
    generator = torch.Generator().manual_seed(6)
    a = -torch.rand(num_channels, num_numbers, generator=generator) - 0.1
    d = torch.rand(num_channels, generator=generator)

    def call(kernels: StateKernels, tokens: slice, states: StatesInPlace) -> torch.Tensor:
        return kernels.selective_scan(x[tokens], dt[tokens], b[tokens], c[tokens], gate[tokens], a, d, states)

    return Case((num_channels, num_numbers), torch.float32, call)


def delta(num_tokens: int, dtype: torch.dtype, sizes: Sizes, *, is_by_channel: bool = False) -> Case:
    # What a token adds depends on all tokens before it, so roundings add up.
    inputs = Inputs.random(num_tokens, sizes, dtype, is_by_channel=is_by_channel)
    return Case(sizes.state, torch.float32, inputs.read_by, slack=5.0)


def heads_scan(num_tokens: int, dtype: torch.dtype, num_heads: int, num_channels: int, num_numbers: int) -> Case:
    x = random_rows(num_tokens, num_heads * num_channels, dtype, CPU, 1)
    dt = random_rows(num_tokens, num_heads, dtype, CPU, 2) * 4 - 2
    b, c = (random_rows(num_tokens, 2 * num_numbers, dtype, CPU, seed) for seed in (3, 4))
    heads = random_heads(num_heads, CPU)

    def call(kernels: StateKernels, tokens: slice, states: StatesInPlace) -> torch.Tensor:
        return kernels.head_scan(x[tokens], dt[tokens], b[tokens], c[tokens], heads, states)

    return Case((num_heads, num_channels, num_numbers), torch.float32, call)


#: (tokens, dtype) -> case; with whole vectors only, and with parts of one
CASES: dict[str, Callable[[int, torch.dtype], Case]] = {
    "convolution": lambda tokens, dtype: convolution(tokens, dtype, 160, 4),
    "convolution, parts": lambda tokens, dtype: convolution(tokens, dtype, 70, 3),
    "scan": lambda tokens, dtype: scan(tokens, dtype, 64, 16),
    "scan, parts": lambda tokens, dtype: scan(tokens, dtype, 37, 5),
    "delta": lambda tokens, dtype: delta(tokens, dtype, Sizes(4, 2, 16, 64)),
    "delta, parts": lambda tokens, dtype: delta(tokens, dtype, Sizes(6, 6, 5, 23)),
    "channel delta": lambda tokens, dtype: delta(tokens, dtype, Sizes(2, 2, 16, 64), is_by_channel=True),
    "channel delta, parts": lambda tokens, dtype: delta(tokens, dtype, Sizes(3, 3, 5, 23), is_by_channel=True),
    "heads": lambda tokens, dtype: heads_scan(tokens, dtype, 4, 64, 32),
    "heads, parts": lambda tokens, dtype: heads_scan(tokens, dtype, 6, 19, 21),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Callable[[int, torch.dtype], Case]:
    return CASES[request.param]


@pytest.fixture(params=TOLERANCE, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    dtype: torch.dtype = request.param
    return dtype


@pytest.mark.parametrize("instruction_set", USABLE)
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_outputs_and_states_are_those_of_the_reference(
    case: Callable[[int, torch.dtype], Case], step: Step, dtype: torch.dtype, instruction_set: str
) -> None:
    made = case(sum(step.lengths), dtype)
    ours, theirs = (step.states(made.shape, made.state_dtype, CPU) for _ in range(2))
    output = made.call(CppStateKernels(library(instruction_set), dtype), slice(None), ours)
    wanted = made.call(reference, slice(None), theirs)
    tolerances = {**TOLERANCE, torch.float32: made.slack * TOLERANCE[torch.float32]}
    tolerance = tolerances[dtype] * float(wanted.abs().max())
    torch.testing.assert_close(output, wanted, atol=tolerance, rtol=0)
    tolerance = tolerances[made.state_dtype] * float(theirs.pages.nan_to_num().abs().max())
    torch.testing.assert_close(ours.pages, theirs.pages, atol=tolerance, rtol=0, equal_nan=True)


def test_bits_depend_neither_on_steps_nor_on_threads_nor_on_other_sequences(
    case: Callable[[int, torch.dtype], Case], dtype: torch.dtype
) -> None:
    length = 130  # enough work for the second thread
    made = case(2 * length, dtype)
    alone, threads = (CppStateKernels(library(num_threads=number), dtype) for number in (1, 2))
    whole = Step((0, 0), (length, length), (3, 1)).states(made.shape, made.state_dtype, CPU)
    wanted = made.call(threads, slice(None), whole)
    pages, outputs = torch.full_like(whole.pages, float("nan")), []
    for first, last in ((0, 1), (1, 2), (2, 60), (60, length)):
        states = Step((first,), (last - first,), (1,)).states(made.shape, made.state_dtype, CPU)
        outputs.append(made.call(alone, slice(length + first, length + last), replace(states, pages=pages)))
    assert torch.equal(torch.cat(outputs), wanted[length:])
    assert torch.equal(pages[1], whole.pages[1])


@pytest.mark.parametrize("instruction_set", USABLE)
@pytest.mark.parametrize("is_gated_first", [True, False])
@pytest.mark.parametrize(("num_rows", "num_groups", "size"), [(3, 2, 48), (300, 3, 21)])
def test_the_gated_norm_is_that_of_the_reference(
    num_rows: int, num_groups: int, size: int, is_gated_first: bool, dtype: torch.dtype, instruction_set: str
) -> None:
    x, gate = (random_rows(num_rows, num_groups * size, dtype, CPU, seed) for seed in (1, 2))
    weight = random_rows(1, num_groups * size, torch.float32, CPU, 3)[0].contiguous()
    arguments = x.contiguous(), gate, weight, 1e-5, num_groups
    output = CppStateKernels(library(instruction_set), dtype).gated_norm(*arguments, is_gated_first=is_gated_first)
    wanted = reference.gated_norm(*arguments, is_gated_first=is_gated_first)
    tolerance = TOLERANCE[dtype] * float(wanted.abs().max())
    torch.testing.assert_close(output, wanted, atol=tolerance, rtol=0)
