"""Weights that are rounded when they are loaded: the error of each form, in plain torch and in C++, and tied tables in
8 bits."""

import math
from collections import deque

import pytest
import torch
import torch.nn.functional as F

from engine.kernels.cpu.functions import CppGroupedLinear
from engine.kernels.cpu.operators import CppOperators
from engine.kernels.cpu.weight_memory import PrivateMemory
from engine.kernels.quantised import QuantisedMatrix, RoundedForm, quantised
from tests.engine.kernels.libraries import USABLE, library


def weights(outputs: int, inputs: int) -> torch.Tensor:
    """Normal weights, and one of 200 ten times as large."""
    generator = torch.Generator().manual_seed(outputs + inputs)
    values = torch.randn(outputs, inputs, generator=generator) * 0.02
    return values * torch.where(torch.rand(values.shape, generator=generator) < 0.005, 10.0, 1.0)


def by_range(weight: torch.Tensor, bits: int, group_size: int) -> torch.Tensor:
    """Rounded with an integer zero point: of four ranges of each group the one of the least squared error."""
    groups, steps = weight.view(len(weight), -1, group_size), (1 << bits) - 1
    low, high = groups.amin(2, keepdim=True).clamp(max=0), groups.amax(2, keepdim=True).clamp(min=0)
    found = []
    for shrink in (1.0, 0.93, 0.86, 0.8):
        scale = (high - low) * shrink / steps
        zero = (-low * shrink / scale).round()
        found.append((((groups / scale).round() + zero).clamp(0, steps) - zero) * scale)
    errors = torch.stack([(each - groups).square().sum(2, keepdim=True) for each in found])
    return torch.stack(found).gather(0, errors.argmin(0, keepdim=True).expand(1, *groups.shape))[0].view(weight.shape)


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize(("bits", "group_size"), [(4, 32), (4, 64), (5, 64), (6, 64)])
def test_the_search_is_better_than_a_choice_of_ranges(bits: int, group_size: int) -> None:
    weight = weights(96, 640)
    ours, other = quantised(weight, bits, group_size).dequantised(), by_range(weight, bits, group_size)
    groups = weight.view(96, -1, group_size)
    factors = (groups.square().mean(2, keepdim=True) + groups.square()).sqrt()  # as in what the search minimises
    sums = [(factors * (each.view(groups.shape) - groups).square()).sum() for each in (ours, other)]
    assert sums[0] < 0.9 * sums[1]
    assert relative(ours, weight) < relative(other, weight)


@pytest.mark.parametrize("instruction_set", USABLE)
@pytest.mark.parametrize("has_importance", [False, True])
@pytest.mark.parametrize("inputs", [640, 96, 40, 42])
def test_the_search_in_cpp_is_the_one_in_torch(instruction_set: str, has_importance: bool, inputs: int) -> None:
    """Sums are added in another order, so single weights may be one code apart."""
    weight, form = weights(50, inputs), RoundedForm.int4(inputs)
    weight[3], weight[4, : form.group_size] = 0.0, 0.25
    importance = torch.rand(inputs) + 0.01 if has_importance else None
    operators = CppOperators(library(instruction_set), torch.float32, has_int4_weights=True)
    operators.importance = None if importance is None else deque([importance])
    found = operators._layer(weight)
    assert isinstance(found, QuantisedMatrix)
    wanted = quantised(weight, form.bits, form.group_size, importance)
    assert (found.codes != wanted.codes).float().mean() < 0.02
    errors = [relative(each.dequantised(), weight) for each in (found, wanted)]
    assert errors[0] == pytest.approx(errors[1], rel=0.01)
    assert torch.equal(found.dequantised()[3], weight[3])
    assert torch.equal(found.dequantised()[4, : form.group_size], weight[4, : form.group_size])


def test_importance_makes_weights_of_large_inputs_more_exact() -> None:
    weight, importance = weights(200, 256), torch.ones(256)
    importance[::16] = 400.0
    x = torch.randn(64, 256) * importance.sqrt()
    errors = [
        relative(F.linear(x, quantised(weight, 5, 64, factors).dequantised()), F.linear(x, weight))
        for factors in (importance, None)
    ]
    assert errors[0] < 0.8 * errors[1]


@pytest.mark.parametrize("instruction_set", USABLE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("inputs", [640, 256, 40, 42])
def test_products_of_rounded_weights_are_near_the_exact_ones(
    instruction_set: str, dtype: torch.dtype, inputs: int
) -> None:
    """Also where one input is 40 times as large as the others: it costs only its own block."""
    weight, bias = weights(90, inputs), torch.randn(90)
    x = torch.randn(33, inputs)
    x[:, 5] *= 40.0
    x = x.to(dtype)
    wanted = F.linear(x.double(), weight.double(), bias.double())
    plain = F.linear(x[:, 6:].double(), weight[:, 6:].double())  # without the large one
    for bits, bound in ((8, 0.025), (4, 0.09)):
        operators = CppOperators(
            library(instruction_set), dtype, has_int8_weights=bits == 8, has_int4_weights=bits == 4
        )
        memory = operators.weight_memory
        assert isinstance(memory, PrivateMemory)
        multiply = operators.linear(weight, bias)
        result = multiply(x)
        assert torch.equal(multiply(x[:1]), result[:1])
        assert torch.equal(multiply(torch.zeros_like(x)), bias.to(dtype).expand(33, -1))
        error = (result.double() - wanted).norm() / wanted.norm()
        assert error < bound
        if inputs == 640:
            assert (result.double() - wanted).norm() / plain.norm() < 4 * bound
        form = (RoundedForm.int8 if bits == 8 else RoundedForm.int4)(inputs)
        assert operators.bits_per_weight == form.bits_per_weight
        if inputs % 128 == 0:
            panels = library(instruction_set).panel_outputs
            held = sum(span.num_bytes for span in memory.spans) - 4 * (90 + -90 % panels)  # less a factor per output
            assert held * 8 == form.bits_per_weight * inputs * (90 + -90 % panels)


def test_forms_of_rounded_weights() -> None:
    assert RoundedForm.int4(640) == RoundedForm(5, 64, 64)
    assert RoundedForm.int4(640).bits_per_weight == 5.5
    assert RoundedForm.int8(640).bits_per_weight == RoundedForm.head(640).bits_per_weight == 8.125
    assert RoundedForm.int8(640).block_size == 2 * RoundedForm.head(640).block_size == 64
    assert RoundedForm.int4(96).bits == 5
    assert (RoundedForm.int4(48).bits, RoundedForm.int4(48).group_size) == (4, 16)
    assert (RoundedForm.int4(42).bits, RoundedForm.int4(42).group_size) == (4, 42)
    operators = CppOperators(library(), torch.float32, has_int8_weights=True)
    products = (operators.linear(weights(48, 640), None), operators.head(weights(48, 640), None))
    assert [product.block_bytes for product in products if isinstance(product, CppGroupedLinear)] == [80, 160]


@pytest.mark.parametrize("instruction_set", USABLE)
@pytest.mark.parametrize("form", ["int8", "int4", "book"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_a_tied_table_is_kept_once(instruction_set: str, form: str, dtype: torch.dtype) -> None:
    """Embeddings are the rows that the head multiplies with, in 8 bits; also of tables with a code book."""
    size = 128
    operators = CppOperators(
        library(instruction_set), dtype, has_int8_weights=form == "int8", has_int4_weights=form == "int4"
    )
    exact = weights(130, size)
    table: torch.Tensor | QuantisedMatrix = exact.to(dtype)
    wanted = quantised(exact.to(dtype), 8, 128).dequantised()
    if form == "book":  # FP8 with a scale for each output
        book = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().nan_to_num(0.0)
        scales = exact.abs().amax(1, keepdim=True) / 448
        codes = (exact / scales).to(torch.float8_e4m3fn).view(torch.uint8)
        table = QuantisedMatrix(codes, scales, 8, book=book)
        wanted = table.dequantised()
    embed, head = operators.tied_embedding(table)
    memory = operators.weight_memory
    assert isinstance(memory, PrivateMemory)
    padded = 130 + -130 % library(instruction_set).panel_outputs
    assert sum(span.num_bytes for span in memory.spans) <= padded * (size * 8.5 / 8 + 4)
    rows = embed(torch.tensor([0, 129, 7, 7] * 20))
    assert rows.dtype == dtype
    tolerance = 0.02 if form == "book" else 4e-3 if dtype == torch.bfloat16 else 1e-3
    assert relative(rows.float(), wanted[[0, 129, 7, 7] * 20]) < tolerance
    columns = head(torch.eye(size, dtype=dtype))  # one input at a time, which is exact in 8 bits
    torch.testing.assert_close(columns.T[[0, 129, 7, 7] * 20], rows, atol=2e-4, rtol=1e-2)
    assert math.isfinite(float(rows.float().norm()))
