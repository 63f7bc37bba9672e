"""Activation kernels against their references."""

import pytest
import torch

from engine.kernels import reference
from engine.kernels.gpu import activation
from tests.engine.kernels.gpu.closeness import DTYPES, assert_near


@pytest.mark.first_minutes(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 48, 1030])
def test_activations_are_those_of_the_reference_for_small_and_for_large_numbers(
    dtype: torch.dtype, size: int, device: torch.device
) -> None:
    magnitudes = torch.tensor([[0.1], [2.0], [60.0]])
    rows = torch.randn(3, 2 * size + 3, generator=torch.Generator().manual_seed(size)) * magnitudes
    gate_up = rows.to(dtype).to(device)[:, 1:-2]
    assert_near(activation.silu_mul(gate_up), reference.silu_mul(gate_up))
    assert_near(activation.gelu_tanh_mul(gate_up), reference.gelu_tanh_mul(gate_up))
    assert_near(activation.gelu_tanh(gate_up), reference.gelu_tanh(gate_up))
