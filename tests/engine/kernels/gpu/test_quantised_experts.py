"""Experts with packed codes against the grouped products of their dequantised weights."""

from dataclasses import replace

import pytest
import torch

from engine.kernels import reference
from engine.kernels.gpu.dequantise import rows_of
from engine.kernels.gpu.operators import GpuOperators
from engine.kernels.gpu.packed_codes import PackedCodes
from engine.kernels.gpu.quantised_experts import PackedExperts, quantised_experts
from engine.kernels.operators import ClampedGate, ExpertOptions, Routing, TanhGelu
from engine.kernels.quantised import QuantisedMatrix, QuantisedStack
from tests.engine.kernels.gpu.closeness import assert_near
from tests.engine.kernels.gpu.quantised_matrices import KINDS, int4, int4_in_another_order
from tests.engine.kernels.gpu.test_grouped_experts import choices

HIDDEN, SIZE, EXPERTS, CHOSEN = 64, 32, 5, 2


def stack(kind: str, outputs: int, inputs: int, dtype: torch.dtype, device: torch.device) -> QuantisedStack:
    def matrix(index: int) -> QuantisedMatrix:
        made = KINDS[kind](outputs, inputs, 32)
        return replace(made, codes=made.codes.roll(index, 0), scales=made.scales / 2**index).to(device, dtype)

    return QuantisedStack(EXPERTS, matrix)


def plain(stack: QuantisedStack) -> torch.Tensor:
    return torch.stack([stack[index].dequantised() for index in range(len(stack))])


@pytest.mark.first_minutes(2)
@pytest.mark.parametrize("kind", ["int4", "int4_with_zeros", "int8_of_large_scales", "fp8", "mxfp4"])
@pytest.mark.parametrize("num_tokens", [1, 9])
def test_the_sum_of_the_chosen_experts_is_that_of_the_dequantised_ones(
    kind: str, num_tokens: int, device: torch.device
) -> None:
    dtype = torch.float16 if kind in ("int4_with_zeros", "mxfp4") else torch.float32
    gate_up, down = stack(kind, 2 * SIZE, HIDDEN, dtype, device), stack(kind, HIDDEN, SIZE, dtype, device)
    packed = PackedExperts.of(gate_up), PackedExperts.of(down)
    assert packed[0] is not None
    assert packed[1] is not None
    chosen, weights = (part.to(device) for part in choices(num_tokens, EXPERTS, CHOSEN))
    x = torch.randn(num_tokens, HIDDEN, generator=torch.Generator().manual_seed(1)).to(dtype).to(device) / 4
    ours = quantised_experts(x, chosen, weights, packed[0], packed[1])
    expected = reference.grouped_experts(x, chosen, weights, plain(gate_up), plain(down))
    scale = float(expected.abs().max())
    assert_near(ours / scale, expected / scale, num_roundings=3)


@pytest.mark.parametrize("gate", [ClampedGate(alpha=1.7, limit=0.6), TanhGelu()])
def test_experts_may_have_biases_and_another_gate(gate: ClampedGate | TanhGelu, device: torch.device) -> None:
    """In tiles of 64 rows: the average expert has 16."""
    gate_up, down = (
        stack("mxfp4", 2 * SIZE, HIDDEN, torch.float16, device),
        stack("mxfp4", HIDDEN, SIZE, torch.float16, device),
    )
    chosen, weights = (part.to(device) for part in choices(40, EXPERTS, CHOSEN))
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(40, HIDDEN, generator=generator).half().to(device)
    biases = [torch.randn(EXPERTS, size, generator=generator).to(device) for size in (2 * SIZE, HIDDEN)]
    packed = PackedExperts.of(gate_up), PackedExperts.of(down)
    assert packed[0] is not None
    assert packed[1] is not None
    options = ExpertOptions(biases[0], biases[1], gate)
    ours = quantised_experts(x, chosen, weights, packed[0], packed[1], options)
    expected = reference.grouped_experts(x, chosen, weights, plain(gate_up), plain(down), options)
    assert_near(ours, expected, num_roundings=4)


def test_matrices_of_one_stack_may_have_one_zero_point_and_several(device: torch.device) -> None:
    own = [KINDS[kind](16, 64, 32).to(device, torch.float32) for kind in ("int4", "int4_with_zeros", "int4")]
    own[2] = replace(own[2], scales=own[2].scales / 16)
    packed = PackedExperts.of(QuantisedStack(3, lambda index: own[index]))
    assert packed is not None
    assert packed.words.shape == (3, 16, 16)
    for index, matrix in enumerate(own):
        codes = PackedCodes(
            packed.form, packed.words[index], packed.scales[index], float(packed.factors[index]), None, packed.dtype
        )
        weights = rows_of(codes, torch.arange(16, device=device)).cpu()
        torch.testing.assert_close(weights, matrix.dequantised().cpu(), atol=1e-6, rtol=1e-6)


def test_matrices_that_differ_otherwise_need_products_of_their_own() -> None:
    for other in (int4(16, 64, 16), int4_in_another_order(16, 64, 32), KINDS["int8"](16, 64, 32)):
        matrices = [int4(16, 64, 32), other]
        assert PackedExperts.of(QuantisedStack(2, matrices.__getitem__)) is None


@pytest.mark.parametrize("bits", [4, 8])
def test_experts_of_16_bits_are_rounded_where_weights_are(bits: int, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    gate_up = torch.randn(EXPERTS, 2 * SIZE, HIDDEN, generator=generator).to(device) / 8
    down = torch.randn(EXPERTS, HIDDEN, SIZE, generator=generator).to(device) / 8
    x = torch.randn(3, HIDDEN, generator=generator).to(device)
    scores = torch.randn(3, EXPERTS, generator=generator).to(device)
    routing = Routing(CHOSEN, sums_to_one=True)
    exact, rounded = (
        operators.grouped_experts(gate_up, down, routing)(x, scores)
        for operators in (GpuOperators(), GpuOperators(has_int4_weights=bits == 4, has_int8_weights=bits == 8))
    )
    error = float((rounded - exact).norm() / exact.norm())
    assert (0.02 if bits == 4 else 0.002) < error < (0.2 if bits == 4 else 0.02)
