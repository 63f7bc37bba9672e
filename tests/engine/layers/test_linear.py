import pytest
import torch
import torch.nn.functional as F

from engine.layers.linear import Linear


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 5, 64])
def test_packed_weights_give_the_plain_product(dtype: torch.dtype, rows: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    weight, bias = torch.randn(40, 24, generator=generator).to(dtype), torch.randn(40, generator=generator).to(dtype)
    x = torch.randn(rows, 24, generator=generator).to(dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 5e-2
    torch.testing.assert_close(Linear(weight, bias)(x), F.linear(x, weight, bias), atol=tolerance, rtol=tolerance)


def test_the_source_tensor_may_change_after_packing() -> None:
    weight = torch.eye(8)
    linear = Linear(weight)
    weight.zero_()
    assert torch.equal(linear(torch.ones(1, 8)), torch.ones(1, 8))
