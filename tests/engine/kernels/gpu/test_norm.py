"""Norm kernels with the residual update against their references, on strided rows."""

import pytest
import torch

from engine.kernels import reference
from engine.kernels.gpu import norm
from tests.engine.kernels.gpu.closeness import DTYPES, assert_near


def _rows(num_rows: int, size: int, dtype: torch.dtype, device: torch.device, seed: int) -> torch.Tensor:
    rows = torch.randn(num_rows, size + 8, generator=torch.Generator().manual_seed(seed)) * 3
    return rows.to(dtype).to(device)[:, 4:-4]


@pytest.mark.first_minutes(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 16, 96, 576])
@pytest.mark.parametrize("has_update", [True, False])
def test_norms_and_the_new_stream_are_those_of_the_reference(
    dtype: torch.dtype, size: int, has_update: bool, device: torch.device
) -> None:
    weight = torch.rand(size, device=device) + 0.5  # float32, as in Gemma
    bias = torch.rand(size, device=device).to(dtype)
    update = _rows(3, size, dtype, device, 1) if has_update else None
    streams = [_rows(3, size, dtype, device, 0) for _ in range(4)]
    ours = [norm.rms_norm(streams[0], update, weight, 1e-5), norm.layer_norm(streams[1], update, weight, bias, 1e-2)]
    expected = [
        reference.rms_norm(streams[2], update, weight, 1e-5),
        reference.layer_norm(streams[3], update, weight, bias, 1e-2),
    ]
    for one, other in zip([*ours, *streams[:2]], [*expected, *streams[2:]], strict=True):
        assert_near(one, other, num_roundings=1 + has_update)


def test_numbers_whose_squares_have_no_float16_are_normed(device: torch.device) -> None:
    stream = torch.full((1, 32), 300.0, dtype=torch.float16, device=device)
    stream[0, ::2] = -300
    normed = norm.rms_norm(stream, None, torch.ones(32, device=device, dtype=torch.float16), 1e-5)
    assert_near(normed, stream / 300)


def test_no_rows_give_no_rows(device: torch.device) -> None:
    assert norm.rms_norm(torch.empty(0, 8, device=device), None, torch.ones(8, device=device), 1e-5).shape == (0, 8)
