"""Quantised matrices of every kind that kernels decode, with random codes."""

from collections.abc import Callable

import torch

from engine.kernels.quantised import QuantisedMatrix, quantised

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def _codes(outputs: int, inputs: int, bits: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(outputs + inputs)
    return torch.randint(0, 1 << bits, (outputs, inputs), generator=generator).to(torch.uint8)


def _scales(outputs: int, groups: int, largest: float = 0.02) -> torch.Tensor:
    """Float16 numbers, as checkpoints have them."""
    generator = torch.Generator().manual_seed(outputs * groups)
    return (torch.rand(outputs, groups, generator=generator) * largest).half().float()


def int4(outputs: int, inputs: int, group: int) -> QuantisedMatrix:
    return QuantisedMatrix(_codes(outputs, inputs, 4), _scales(outputs, inputs // group), 4, 8)


def int4_with_zeros(outputs: int, inputs: int, group: int) -> QuantisedMatrix:
    zeros = _codes(outputs, inputs // group, 4).float()
    return QuantisedMatrix(_codes(outputs, inputs, 4), _scales(outputs, inputs // group), 4, zeros)


def int4_in_another_order(outputs: int, inputs: int, group: int) -> QuantisedMatrix:
    order = torch.randperm(inputs, generator=torch.Generator().manual_seed(1))
    zeros = _codes(outputs, inputs // group, 4).float()
    return QuantisedMatrix(_codes(outputs, inputs, 4), _scales(outputs, inputs // group), 4, zeros, order=order)


def int4_rounded(outputs: int, inputs: int, group: int) -> QuantisedMatrix:
    weight = torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(1)) / 8
    matrix = quantised(weight, 4, group)
    assert isinstance(matrix.zeros, torch.Tensor)
    return QuantisedMatrix(matrix.codes, matrix.scales.half().float(), 4, matrix.zeros.half().float())


def int8(outputs: int, inputs: int, group: int) -> QuantisedMatrix:
    return QuantisedMatrix(_codes(outputs, inputs, 8), _scales(outputs, inputs // group, 0.003), 8, 128)


def int8_of_large_scales(outputs: int, inputs: int, group: int) -> QuantisedMatrix:
    return QuantisedMatrix(_codes(outputs, inputs, 8), _scales(outputs, inputs // group, 3.0), 8, 128)


def int8_with_zeros(outputs: int, inputs: int, group: int) -> QuantisedMatrix:
    zeros = _codes(outputs, inputs // group, 8).float()
    return QuantisedMatrix(_codes(outputs, inputs, 8), _scales(outputs, inputs // group, 0.003), 8, zeros)


def int6(outputs: int, inputs: int, group: int) -> QuantisedMatrix:
    return QuantisedMatrix(_codes(outputs, inputs, 6), -_scales(outputs, inputs // group, 0.01), 6, 32)


def fp8(outputs: int, inputs: int, group: int) -> QuantisedMatrix:
    codes = _codes(outputs, inputs, 8)
    codes[(codes & 0x7F) == 0x7F] = 1  # NaN; 1 is the smallest subnormal number
    book = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().nan_to_num(0.0)
    return QuantisedMatrix(codes, _scales(outputs, inputs // group, 0.001) * 1.1, 8, book=book)


def mxfp4(outputs: int, inputs: int, group: int) -> QuantisedMatrix:
    exponents = torch.randint(-9, -2, (outputs, inputs // group), generator=torch.Generator().manual_seed(1))
    values = torch.tensor(_E2M1)
    return QuantisedMatrix(
        _codes(outputs, inputs, 4), torch.exp2(exponents.float()), 4, book=torch.cat((values, -values))
    )


#: kind -> (outputs, inputs, group) -> matrix
KINDS: dict[str, Callable[[int, int, int], QuantisedMatrix]] = {
    made.__name__: made
    for made in (
        int4,
        int4_with_zeros,
        int4_in_another_order,
        int4_rounded,
        int8,
        int8_of_large_scales,
        int8_with_zeros,
        int6,
        fp8,
        mxfp4,
    )
}
