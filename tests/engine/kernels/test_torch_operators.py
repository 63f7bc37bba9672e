"""Plain torch products of a dtype that the processor has no instructions for."""

import pytest
import torch
import torch.nn.functional as F

from engine.kernels import torch_operators
from engine.kernels.torch_operators import TorchOperators


@pytest.mark.parametrize("has_bias", [True, False])
def test_bfloat16_without_instructions_is_multiplied_as_float32(
    monkeypatch: pytest.MonkeyPatch, has_bias: bool
) -> None:
    dtype = torch.bfloat16
    monkeypatch.setattr(torch_operators, "_is_native", lambda dtype: dtype == torch.float32)
    numbers = torch.Generator().manual_seed(1)
    x, weight = (torch.randn(shape, generator=numbers).to(dtype) for shape in ((5, 48), (96, 48)))
    bias = torch.randn(96, generator=numbers).to(dtype) if has_bias else None

    result = TorchOperators().linear(weight, bias)(x)

    wanted = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    assert result.dtype == dtype
    torch.testing.assert_close(result.double(), wanted, rtol=0, atol=float(torch.finfo(dtype).eps * wanted.abs().max()))
