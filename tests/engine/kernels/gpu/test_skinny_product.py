"""Products of few rows against their reference, in every form that a decode step has: norm, activation, addition."""

from dataclasses import replace

import pytest
import torch

from engine.kernels.gpu.skinny_product import (
    Activation,
    InputNorm,
    ProductTiles,
    ProductWorkspace,
    formula_tiles,
    multiply,
    num_squares,
)
from engine.kernels.reference import skinny_product as reference
from tests.engine.kernels.gpu.closeness import assert_near

#: The interpreter's own products of bfloat16 are wrong.
DTYPES = (torch.float32, torch.float16, *([torch.bfloat16] if torch.cuda.is_available() else []))
TILES = ProductTiles(block_n=16, block_r=16, block_k=16, splits=1, num_warps=4, num_stages=3)
NAMES = {Activation.NONE: None, Activation.SILU_MUL: "silu", Activation.GELU_TANH_MUL: "gelu"}


def randoms(*shape: int, dtype: torch.dtype, device: torch.device, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(device)


@pytest.mark.first_minutes(3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize(("num_rows", "block_r"), [(1, 16), (5, 16), (16, 16), (17, 32), (50, 64), (64, 64)])
@pytest.mark.parametrize(("size", "num_outputs"), [(96, 48), (80, 40)])
def test_rows_times_weights(
    dtype: torch.dtype, splits: int, num_rows: int, block_r: int, size: int, num_outputs: int, device: torch.device
) -> None:
    """Sizes that are multiples of the tiles, and others."""
    x = randoms(num_rows, size + 16, dtype=dtype, device=device)[:, :size]
    weight = randoms(num_outputs, size, dtype=dtype, device=device, seed=1) / 8
    bias = randoms(num_outputs, dtype=dtype, device=device, seed=2)
    output, workspace = x.new_empty(num_rows, num_outputs), ProductWorkspace.allocate(device)
    multiply(x, weight, bias, output, workspace, replace(TILES, splits=splits, block_r=block_r))
    assert_near(output, reference.multiply(x, weight, bias, None, 0.0, None, None), num_roundings=2)
    assert not workspace.counters.any()


@pytest.mark.first_minutes
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize(("num_rows", "block_r"), [(3, 16), (40, 64)])
@pytest.mark.parametrize("activation", list(Activation))
def test_the_norm_of_what_a_product_has_added_goes_into_the_next_one(
    dtype: torch.dtype, splits: int, num_rows: int, block_r: int, activation: Activation, device: torch.device
) -> None:
    """As in a layer: stream += output(attended), then up(norm(stream))."""
    hidden, tiles = 64, replace(TILES, splits=splits, block_r=block_r)
    attended, stream = (randoms(num_rows, hidden, dtype=dtype, device=device, seed=seed) for seed in (0, 1))
    output_weight, up_weight = (randoms(hidden, hidden, dtype=dtype, device=device, seed=seed) / 8 for seed in (2, 3))
    norm_weight = randoms(hidden, dtype=torch.float32, device=device, seed=4) + 2
    expected_stream = reference.multiply(attended, output_weight, None, None, 0.0, None, stream)
    workspace = ProductWorkspace.allocate(device)
    multiply(attended, output_weight, None, stream, workspace, tiles, is_added=True)
    assert_near(stream, expected_stream, num_roundings=2)

    expected = reference.multiply(stream, up_weight, None, norm_weight, 1e-5, NAMES[activation], None)
    ups = stream.new_empty(expected.shape)
    norm = InputNorm(norm_weight, 1e-5, num_squares(hidden, tiles))
    multiply(stream, up_weight, None, ups, workspace, tiles, norm=norm, activation=activation)
    assert_near(ups / 8, expected / 8, num_roundings=3)


def test_norms_of_float16_do_not_overflow(device: torch.device) -> None:
    """Products of the stream and of the norm's weights would have no float16."""
    stream = torch.full((1, 16), 6e4, dtype=torch.float16, device=device)
    output, workspace = torch.empty_like(stream), ProductWorkspace.allocate(device)
    workspace.squares[0, 0] = stream.float().square().sum()
    norm = InputNorm(torch.full((16,), 8.0, device=device), 0.0, 1)
    multiply(stream, torch.eye(16, dtype=torch.float16, device=device), None, output, workspace, TILES, norm=norm)
    assert_near(output, torch.full_like(output, 8.0))


@pytest.mark.parametrize("block_r", [16, 64])
def test_bits_of_a_row_do_not_depend_on_other_rows(block_r: int, device: torch.device) -> None:
    x = randoms(block_r, 96, dtype=torch.float32, device=device)
    weight, workspace = randoms(32, 96, dtype=torch.float32, device=device, seed=1), ProductWorkspace.allocate(device)
    tiles = replace(TILES, splits=3, block_r=block_r)
    together, alone = x.new_empty(block_r, 32), x.new_empty(1, 32)
    multiply(x, weight, None, together, workspace, tiles)
    multiply(x[7:8], weight, None, alone, workspace, tiles)
    assert torch.equal(together[7:8], alone)


@pytest.mark.parametrize("num_rows", [1, 16, 17, 33, 64])
@pytest.mark.parametrize("shape", [(4096, 6144), (14336, 4096), (1024, 1024), (64, 16), (4096, 128256)])
def test_the_formula_divides_small_weights_and_leaves_large_ones_whole(shape: tuple[int, int], num_rows: int) -> None:
    size, channels = shape
    tiles = formula_tiles(size, channels, num_rows, 2, 132)
    numbers = -(-channels // tiles.block_n) * tiles.splits * tiles.block_n * tiles.block_r
    assert numbers <= ProductWorkspace.allocate(torch.device("cpu")).partials.numel() or tiles.splits == 1
    assert 1 <= tiles.splits <= 16
    assert num_rows <= tiles.block_r < max(2 * num_rows, 17)
    if (size, channels) == (1024, 1024):
        assert tiles.splits > 2
    if channels == 128256:
        assert tiles.splits == 1
