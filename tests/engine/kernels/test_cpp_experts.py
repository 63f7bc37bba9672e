"""Mixtures of experts of the C++ operators, against the same products called one by one."""

from collections.abc import Sequence

import pytest
import torch

from engine.kernels.cpu.operators import CppOperators
from engine.kernels.operators import Activation, ExpertParts, Routing
from engine.kernels.quantised import quantised
from engine.kernels.reference import choose_experts
from engine.layers.experts import chosen_by_host, each_by_itself
from engine.layers.linear import Linear
from engine.layers.mlp import MLP, GatedMLP
from tests.engine.kernels.libraries import USABLE, library

EXPERTS, HIDDEN = 6, 32
FORMS = ["plain", "int8", "int4"]


def operators(instruction_set: str, dtype: torch.dtype, form: str = "plain", num_threads: int = 2) -> CppOperators:
    return CppOperators(
        library(instruction_set, num_threads), dtype, has_int8_weights=form == "int8", has_int4_weights=form == "int4"
    )


def gated(own: CppOperators, size: int, *, has_bias: bool = False) -> list[GatedMLP]:
    """Random experts of that intermediate size."""
    generator = torch.Generator().manual_seed(1)

    def linear(outputs: int, inputs: int) -> Linear:
        weight = torch.randn(outputs, inputs, generator=generator) * inputs**-0.5
        bias = torch.randn(outputs, generator=generator) if has_bias else None
        return Linear.bind(own, weight.to(own.dtype), bias)

    return [GatedMLP(linear(2 * size, HIDDEN), linear(HIDDEN, size), own.silu_mul) for _ in range(EXPERTS)]


def rows(num_tokens: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and scores. No two scores of a row are equal, in any dtype; no token chooses the last expert."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(num_tokens, HIDDEN, generator=generator).to(dtype)
    scores = torch.stack([torch.randperm(EXPERTS - 1, generator=generator) for _ in range(num_tokens)])
    return x, torch.nn.functional.pad(scores / 4, (0, 1), value=-1.0).to(dtype)


def one_by_one(
    experts: Sequence[GatedMLP] | Sequence[MLP], routing: Routing, x: torch.Tensor, scores: torch.Tensor
) -> torch.Tensor:
    """The sum in float32 of what each chosen expert gives."""
    chosen, weights = choose_experts(scores, routing)
    total = torch.zeros(x.shape)
    for index in range(len(experts)):
        tokens, places = (chosen == index).nonzero(as_tuple=True)
        if len(tokens):
            factors = weights[tokens, places, None]
            own = (x[tokens].float() * factors).to(x.dtype) if routing.scales_inputs else x[tokens]
            result = experts[index].partial(own).float()
            total.index_add_(0, tokens, result if routing.scales_inputs else result * factors)
    return total.to(x.dtype)


def mixed(
    own: CppOperators, experts: Sequence[GatedMLP] | Sequence[MLP], routing: Routing, x: torch.Tensor, s: torch.Tensor
) -> torch.Tensor:
    mixture = own.mixture([ExpertParts(e.up.multiply, e.activation, e.down.multiply) for e in experts], routing)
    assert mixture is not None
    return mixture(x, s)


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("instruction_set", USABLE)
def test_a_mixture_is_the_sum_over_its_experts(instruction_set: str, dtype: torch.dtype, num_threads: int) -> None:
    """Whole panels of gates, and sizes that end within one; few and many rows; with and without biases."""
    for form in FORMS:
        own = operators(instruction_set, dtype, form, num_threads)
        for size, has_bias in ((96, False), (40, True)):
            experts = gated(own, size, has_bias=has_bias)
            for num_tokens in (1, 3, 70):
                x, scores = rows(num_tokens, dtype)
                for routing in (Routing(2, sums_to_one=True), Routing(3, sums_to_one=False)):
                    expected = one_by_one(experts, routing, x, scores)
                    ours = mixed(own, experts, routing, x, scores)
                    tolerance = 1e-6 if dtype == torch.float32 else 8e-3
                    torch.testing.assert_close(ours, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("instruction_set", USABLE)
def test_a_token_has_the_same_bits_alone_and_in_several_batches(instruction_set: str, dtype: torch.dtype) -> None:
    """28,000 choices of 640 bytes do not fit into a batch of 16 MiB; those of 320 bytes, in bfloat16, do."""
    own = operators(instruction_set, dtype)
    experts, routing = gated(own, 32), Routing(2, sums_to_one=True)
    x, scores = rows(500, dtype)
    many = x.repeat(28, 1), scores.repeat(28, 1)
    together = mixed(own, experts, routing, *many)
    assert torch.equal(together, together[:500].repeat(28, 1))
    for row in range(0, 500, 50):
        alone = mixed(own, experts, routing, x[row : row + 1], scores[row : row + 1])
        assert torch.equal(alone[0], together[row])


@pytest.mark.parametrize("instruction_set", USABLE)
def test_weights_may_be_factors_on_inputs_and_experts_may_have_no_gate(instruction_set: str) -> None:
    own = operators(instruction_set, torch.float32)
    gates = gated(own, 24)
    plain = [
        MLP(Linear.bind(own, torch.eye(HIDDEN)), Linear.bind(own, torch.eye(HIDDEN) * e), own.relu) for e in range(6)
    ]
    x, scores = rows(9, torch.float32)
    for experts in (gates, plain):
        for routing in (
            Routing(2, sums_to_one=True, is_sigmoid=True, scale=2.5),
            Routing(1, False, scales_inputs=True),
        ):
            expected = one_by_one(experts, routing, x, scores)
            torch.testing.assert_close(mixed(own, experts, routing, x, scores), expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_choice_is_that_of_the_reference(dtype: torch.dtype) -> None:
    """For equal scores, too: experts give their own number, so that the sum tells which were chosen."""
    own = operators(USABLE[0], dtype)
    zero, ones = torch.zeros(HIDDEN, HIDDEN), torch.ones(HIDDEN)
    experts = [
        MLP(Linear.bind(own, zero, ones), Linear.bind(own, zero, ones * 2.0**e), own.relu) for e in range(EXPERTS)
    ]
    x = torch.zeros(200, HIDDEN, dtype=dtype)
    scores = torch.randint(0, 4, (200, EXPERTS), generator=torch.Generator().manual_seed(3)).to(dtype)
    for routing in (Routing(3, sums_to_one=True), Routing(3, sums_to_one=False)):
        expected = one_by_one(experts, routing, x, scores)
        torch.testing.assert_close(mixed(own, experts, routing, x, scores), expected)


def test_a_row_of_nan_leaves_others_alone() -> None:
    own = operators(USABLE[0], torch.float32)
    x, scores = rows(4, torch.float32)
    clean = mixed(own, gated(own, 24), Routing(2, sums_to_one=True), x, scores)
    scores[1, 3] = float("nan")
    output = mixed(own, gated(own, 24), Routing(2, sums_to_one=True), x, scores)
    assert output[1].isnan().all()
    assert torch.equal(output[[0, 2, 3]], clean[[0, 2, 3]])


def test_experts_that_differ_are_called_by_themselves() -> None:
    """In the bits of their weights, in size, or with an activation that the library does not have."""
    own = operators(USABLE[0], torch.float32)
    routing = Routing(2, sums_to_one=True)

    def has_mixture(*experts: tuple[Linear, Linear], activation: Activation = own.silu_mul) -> bool:
        parts = [ExpertParts(up.multiply, activation, down.multiply) for up, down in experts]
        return own.mixture(parts, routing) is not None

    weight = torch.randn(48, HIDDEN, generator=torch.Generator().manual_seed(0))
    plain, other = Linear.bind(own, weight), Linear.bind(own, weight[:40])
    four, eight = (Linear.bind(own, quantised(weight, bits, 32)) for bits in (4, 8))
    down = Linear.bind(own, torch.randn(HIDDEN, 24))
    assert has_mixture((plain, down), (plain, down))
    assert has_mixture((four, down), (four, down))
    assert not has_mixture((four, down), (eight, down))
    assert not has_mixture((four, down), (plain, down))
    assert not has_mixture((other, down), (plain, down))
    assert not has_mixture((plain, down), activation=torch.nn.functional.silu)


def test_a_model_on_these_operators_has_one_call_for_its_experts() -> None:
    """The same as its experts one after another."""
    own = operators(USABLE[0], torch.float32)
    experts, routing = gated(own, 24), Routing(2, sums_to_one=True)
    x, scores = rows(12, torch.float32)
    torch.testing.assert_close(
        chosen_by_host(own, experts, routing)(x, scores), each_by_itself(experts, routing)(x, scores)
    )
