"""Products with quantised matrices: the C++ ones against the product of the rounded factors, the torch ones against the
dequantised weights."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from engine.kernels.cpu.operators import CppOperators
from engine.kernels.operators import Operators
from engine.kernels.quantised import QuantisedMatrix
from engine.kernels.torch_operators import TorchOperators
from tests.engine.kernels.libraries import USABLE, library

#: A code book of small integers and halves, as MXFP4 has it.
_BOOK = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def matrix(outputs: int, inputs: int, groups: int, kind: str, dtype: torch.dtype = torch.float32) -> QuantisedMatrix:
    generator = torch.Generator().manual_seed(outputs + inputs)
    bits = int(kind[0])
    codes = torch.randint(0, 1 << bits, (outputs, inputs), generator=generator, dtype=torch.uint8)
    scales = (torch.rand(outputs, groups, generator=generator) + 0.1).half().float() * 2.0 ** (-3 - bits)
    result = QuantisedMatrix(codes, scales, bits, 1 << (bits - 1), dtype=dtype)
    if "zeros" in kind:
        zeros = torch.randint(0, 1 << bits, (outputs, groups), generator=generator).float()
        result = replace(result, zeros=zeros)
    if "book" in kind:
        result = replace(result, zeros=0, book=_BOOK)
    if "order" in kind:
        result = replace(result, order=torch.randperm(inputs, generator=generator))
    return result


KINDS = ["4", "4 zeros", "4 book", "4 zeros order", "5 zeros", "6", "8", "8 zeros"]
#: rows, inputs, outputs, groups
SHAPES = [
    (1, 64, 96, 2),
    (2, 128, 90, 1),
    (3, 90, 24, 1),
    (9, 256, 200, 2),
    (33, 384, 100, 12),
    (130, 600, 7, 1),
    (4, 60, 50, 3),
]


def rounded_rows(x: torch.Tensor, block: int, order: torch.Tensor | None) -> torch.Tensor:
    """x in 8 bits: one scale for every block of columns."""
    columns = x.float() if order is None else x.float()[:, order]
    wide = F.pad(columns, (0, -columns.shape[1] % block)).view(len(x), -1, block)
    scales = wide.abs().amax(dim=2, keepdim=True) / 127
    steps = (wide * (1 / scales) + 0.5).floor()  # ties may fall otherwise in C++
    back = (steps.double() * scales.double()).view(len(x), -1)[:, : x.shape[1]]
    return back if order is None else back[:, torch.argsort(order)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("instruction_set", USABLE)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_cpp_product_is_that_of_the_rounded_factors(
    instruction_set: str, dtype: torch.dtype, shape: tuple[int, int, int, int], kind: str
) -> None:
    rows, inputs, outputs, groups = shape
    weight = matrix(outputs, inputs, groups, kind)
    generator = torch.Generator().manual_seed(rows)
    x, bias = (torch.randn(*size, generator=generator).to(dtype) for size in ((rows, inputs), (outputs,)))
    multiply = CppOperators(library(instruction_set), dtype).linear(weight, bias)
    padded = inputs + -inputs % (8 if inputs <= 128 else 64) if weight.group_size % 8 else inputs
    group = padded // groups
    # A group of an odd size is a block of its own.
    block = max((size for size in range(8, 129, 8) if group % size == 0), default=group)
    wanted = F.linear(rounded_rows(x, block, weight.order), weight.dequantised().double(), bias.double())
    result = multiply(x)
    tolerance = {torch.float32: 2e-3, torch.bfloat16: 5e-3}[dtype] * float(wanted.abs().max())
    torch.testing.assert_close(result.double(), wanted, atol=tolerance, rtol=0)
    assert torch.equal(multiply(torch.zeros_like(x)), bias.expand(rows, -1))
    for first, count in ((0, 1), (rows - 1, 1), (rows // 2, rows - rows // 2)):
        assert torch.equal(multiply(x[first : first + count]), result[first : first + count])
    alone = CppOperators(library(instruction_set, num_threads=1), dtype).linear(weight, bias)
    assert torch.equal(alone(x), result)


@pytest.mark.parametrize("kind", KINDS)
def test_torch_product_is_that_of_the_dequantised_weights(kind: str) -> None:
    weight = matrix(40, 64, 2, kind)
    x, bias = torch.randn(5, 64), torch.randn(40)
    result = TorchOperators().linear(weight, bias)(x)
    torch.testing.assert_close(result, F.linear(x, weight.dequantised(), bias), atol=1e-5, rtol=1e-5)
    ids = torch.tensor([3, 39, 3])
    everyone: list[Operators] = [TorchOperators(), *(CppOperators(library(each), torch.float32) for each in USABLE)]
    for operators in everyone:
        embed, head = operators.tied_embedding(weight)
        # C++ holds scales and zero points in float16.
        torch.testing.assert_close(embed(ids), weight.dequantised()[ids], atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(head(x), result - bias, atol=0.03, rtol=0)
