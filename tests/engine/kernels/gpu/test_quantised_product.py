"""Products with packed codes against those with the dequantised weights, for every kind of codes, in every form that a
step has: few rows and many, norm, activation, addition, act-order."""

from dataclasses import replace

import pytest
import torch

from engine.kernels.gpu.dequantise import dequantise, rows_of
from engine.kernels.gpu.packed_codes import CodeForm, Kind, Scales, packed
from engine.kernels.gpu.quantised_product import CodeTiles, multiply, num_squares, tiles_of
from engine.kernels.gpu.skinny_product import Activation, InputNorm, ProductWorkspace
from engine.kernels.quantised import QuantisedMatrix
from engine.kernels.reference import skinny_product as reference
from tests.engine.kernels.gpu.closeness import assert_near
from tests.engine.kernels.gpu.quantised_matrices import KINDS, fp8, int4, int4_with_zeros, mxfp4

#: The interpreter's own products of bfloat16 are wrong.
DTYPES = (torch.float32, torch.float16, *([torch.bfloat16] if torch.cuda.is_available() else []))
TILES = CodeTiles(block_n=16, block_r=16, read=16, splits=1, num_warps=4, num_stages=2)
NAMES = {Activation.NONE: None, Activation.SILU_MUL: "silu", Activation.GELU_TANH_MUL: "gelu"}
#: Outputs, inputs, group: whole blocks; blocks of padding, groups inside a slot; one group; several blocks of a group.
SHAPES = [(16, 512, 128), (24, 96, 32), (20, 72, 24), (16, 160, 160)]


def rows(num_rows: int, size: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.randn(num_rows, size + 8, generator=torch.Generator().manual_seed(0)).to(dtype).to(device)[:, 8:]


def assert_equal_within_rounding(ours: torch.Tensor, expected: torch.Tensor) -> None:
    """Weights are rounded to the dtype of x in both; sums of many of them, and their order, differ."""
    size = float(expected.abs().max())
    assert_near(ours / size, expected / size, num_roundings=2)


@pytest.mark.first_minutes(2)
@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_those_of_plain_torch(kind: str, device: torch.device) -> None:
    """Of whole matrices from any output on, and of rows that ids choose."""
    for outputs, inputs, group in SHAPES:
        matrix = KINDS[kind](outputs, inputs, 32 if kind == "mxfp4" and inputs % 32 == 0 else group)
        codes = packed(matrix.to(device, torch.float32))
        assert codes is not None
        expected = matrix.dequantised().to(device)
        tolerance = 1e-6 * float(expected.abs().max())
        ids = torch.tensor([3, outputs - 1, 0, 3, 7], device=device)
        torch.testing.assert_close(rows_of(codes, ids), expected[ids], atol=tolerance, rtol=0)
        part = torch.full((outputs - 5, inputs), torch.nan, device=device)
        dequantise(codes, 5, part)
        torch.testing.assert_close(part, expected[5:], atol=tolerance, rtol=0)


@pytest.mark.first_minutes(3)
@pytest.mark.parametrize(("kind", "dtype"), [*((kind, DTYPES[-1]) for kind in KINDS), ("int4_with_zeros", DTYPES[0])])
def test_rows_times_weights(kind: str, dtype: torch.dtype, device: torch.device) -> None:
    workspace = ProductWorkspace.allocate(device)
    for outputs, inputs, group in SHAPES:
        matrix = KINDS[kind](outputs, inputs, 32 if kind == "mxfp4" and inputs % 32 == 0 else group)
        codes = packed(matrix.to(device, dtype))
        assert codes is not None
        bias = torch.randn(outputs, generator=torch.Generator().manual_seed(2)).to(dtype).to(device)
        for num_rows, splits in ((1, 2), (20, 1)):
            x = rows(num_rows, inputs, dtype, device)
            tiles = replace(TILES, splits=splits, read=codes.form.words if splits == 1 else 16)
            output = x.new_empty(num_rows, outputs)
            own = x if codes.order is None else x.index_select(1, codes.order)
            multiply(own, codes, bias, output, workspace, tiles)
            weight = matrix.dequantised().to(dtype).to(device)
            assert_equal_within_rounding(output, reference.multiply(x, weight, bias, None, 0.0, None, None))
        assert not workspace.counters.any()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", list(Activation))
@pytest.mark.parametrize(("num_rows", "block_r"), [(3, 16), (40, 64), (40, 32)])
def test_neighbours_are_part_of_the_product(
    dtype: torch.dtype, activation: Activation, num_rows: int, block_r: int, device: torch.device
) -> None:
    """stream += output(attended), then up(norm(stream)); the norm is a part of products whose rows are one tile."""
    hidden, wide = 96, 80
    output_matrix, up_matrix = int4_with_zeros(hidden, hidden, 32), fp8(wide, hidden, 96)
    attended, stream = rows(num_rows, hidden, dtype, device), rows(num_rows, hidden, dtype, device).clone() / 2
    weights = [matrix.dequantised().to(dtype).to(device) for matrix in (output_matrix, up_matrix)]
    output_codes, up_codes = (packed(matrix.to(device, dtype)) for matrix in (output_matrix, up_matrix))
    assert output_codes is not None
    assert up_codes is not None
    tiles = replace(TILES, block_r=block_r, splits=2 if num_rows <= block_r else 1)
    workspace = ProductWorkspace.allocate(device)
    expected_stream = reference.multiply(attended, weights[0], None, None, 0.0, None, stream)
    multiply(attended, output_codes, None, stream, workspace, tiles, is_added=True)
    assert_equal_within_rounding(stream, expected_stream)

    norm_weight = torch.rand(hidden, generator=torch.Generator().manual_seed(4)).to(device) + 1
    norm = InputNorm(norm_weight, 1e-5, num_squares(hidden, tiles)) if num_rows <= block_r else None
    folded = None if norm is None else norm_weight
    expected = reference.multiply(stream, weights[1], None, folded, 1e-5, NAMES[activation], None)
    ups = stream.new_empty(expected.shape)
    multiply(stream, up_codes, None, ups, workspace, tiles, norm=norm, activation=activation)
    assert_equal_within_rounding(ups / 2, expected / 2)


def test_bits_of_a_row_do_not_depend_on_other_rows(device: torch.device) -> None:
    codes = packed(int4(32, 512, 128).to(device, torch.float32))
    assert codes is not None
    x, workspace = rows(16, 512, torch.float32, device), ProductWorkspace.allocate(device)
    together, alone = x.new_empty(16, 32), x.new_empty(1, 32)
    for tiles in (TILES, replace(TILES, splits=3)):
        multiply(x, codes, None, together, workspace, tiles)
        multiply(x[7:8], codes, None, alone, workspace, tiles)
        assert torch.equal(together[7:8], alone)


def test_small_floats_lose_nothing(device: torch.device) -> None:
    """Every code of both kinds, subnormal ones, too, with scales of any power of two."""
    for matrix in (fp8(1, 256, 128), mxfp4(1, 256, 32)):
        codes = torch.arange(256).to(torch.uint8)[None]
        codes = codes % 16 if matrix.bits == 4 else torch.where((codes & 0x7F) == 0x7F, 0, codes)
        for exponent in (-100, -7, 0, 30):
            groups = matrix.scales.shape[1]
            every = replace(matrix, codes=codes, scales=torch.full((1, groups), 2.0**exponent))
            found = packed(every.to(device, torch.float32))
            assert found is not None
            assert torch.equal(rows_of(found, torch.tensor([0], device=device)).cpu(), every.dequantised())


def test_groups_of_almost_no_scale_are_their_minimum(device: torch.device) -> None:
    """As GGUF stores groups whose weights are all the same: a minimum, and a scale that is nothing beside it."""
    scales, zeros = torch.tensor([[1e-6, 0.01]]), torch.tensor([[1e5, 3.0]])
    matrix = QuantisedMatrix(int4(1, 64, 32).codes, scales, 4, zeros)
    found = packed(matrix.to(device, torch.float32))
    assert found is not None
    weights = rows_of(found, torch.tensor([0], device=device)).cpu()
    torch.testing.assert_close(weights, matrix.dequantised(), atol=1e-6, rtol=2e-3)


def test_words_are_as_small_as_the_codes_allow() -> None:
    """Bits of a weight: codes, and 32 bits for a group, or 8 in MXFP4; little padding."""
    for matrix, bits in (
        (int4(64, 4096, 128), 4.25),
        (int4_with_zeros(64, 4096, 128), 4.25),
        (mxfp4(64, 2880, 32), 4.25 * 1.03),
        (fp8(64, 14336, 128), 8.25),
        (int4(64, 896, 128), 4.25),
    ):
        codes = packed(matrix)
        assert codes is not None
        assert codes.nbytes * 8 <= bits * matrix.codes.numel() * 1.001


def test_a_code_book_of_other_numbers_is_left_to_plain_torch() -> None:
    book = torch.linspace(-1, 1, 16)
    assert packed(QuantisedMatrix(int4(8, 32, 32).codes, torch.ones(8, 1), 4, book=book)) is None


@pytest.mark.parametrize("num_rows", [1, 16, 17, 64, 65, 2000])
@pytest.mark.parametrize("shape", [(4096, 6144), (14336, 4096), (1024, 1024), (64, 16), (4096, 128256)])
def test_tiles_suit_the_workspace_and_every_row(num_rows: int, shape: tuple[int, int]) -> None:
    size, channels = shape
    for kind, scales in ((Kind.INT4, Scales.WITH_ZEROS), (Kind.E4M3, Scales.FLOAT32)):
        form = replace(_form(), kind=kind, scales=scales, size=size)
        tiles = tiles_of(form, channels, num_rows, 2, 132)
        num_tiles = -(-channels // tiles.block_n)
        assert tiles.splits == 1 or num_tiles * tiles.splits * tiles.block_n * tiles.block_r <= 2048 * 64 * 16
        assert tiles.splits == 1 or num_rows <= tiles.block_r
        assert form.words % tiles.read == 0


def _form() -> CodeForm:
    codes = packed(int4(8, 256, 128))
    assert codes is not None
    return codes.form
