"""Who computes a product with quantised weights: our kernel, or cuBLAS with decoded weights."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from engine.kernels.gpu import quantised_products
from engine.kernels.gpu.dequantise import dequantise
from engine.kernels.gpu.operators import GpuOperators
from engine.kernels.gpu.packed_codes import packed
from engine.kernels.gpu.products import Products
from engine.kernels.gpu.quantised_product import CodeTiles, multiply
from engine.kernels.gpu.quantised_products import QuantisedProduct, QuantisedProducts
from engine.kernels.gpu.tuning import TABLES, ProductKey, as_entry
from engine.kernels.hardware import architecture_of
from tests.engine.kernels.gpu.closeness import assert_near
from tests.engine.kernels.gpu.quantised_matrices import int4_in_another_order, int4_with_zeros
from tests.engine.kernels.gpu.test_products import first_is_faster, first_is_slower

MATRIX = int4_with_zeros(24, 64, 32)
TILES = CodeTiles(block_n=16, block_r=16, read=16, splits=1, num_warps=4, num_stages=2)


class Counted:
    """Products whose calls of our kernel and of the decoder are counted."""

    def __init__(self, device: torch.device, own: Callable[..., None] = multiply, tables: Path | None = None) -> None:
        self.own, self.decoded = 0, 0
        self._own = own
        self.products = QuantisedProducts(
            Products().workspace,
            multiply=self._multiply,
            dequantise=self._dequantise,
            tables=TABLES if tables is None else tables,
        )
        codes = packed(MATRIX.to(device, torch.float32))
        assert codes is not None
        self.product: QuantisedProduct = self.products.bind(codes, None)

    def _multiply(self, *args: object, **named: object) -> None:
        self.own += 1
        self._own(*args, **named)

    def _dequantise(self, *args: object) -> None:
        self.decoded += 1
        dequantise(*args)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes 64 to 1,024 rows takes 20 to 60 here."""
    monkeypatch.setattr(quantised_products, "TIMED_ROWS", (20, 40, 60))
    monkeypatch.setattr(quantised_products, "_LIBRARY_ROWS", 60)


def rows(num_rows: int, device: torch.device) -> torch.Tensor:
    return torch.randn(num_rows, 64, generator=torch.Generator().manual_seed(1)).to(device)


def test_without_a_measurement_cublas_computes_large_steps(device: torch.device) -> None:
    counted = Counted(device)
    counted.products.choose(None)
    weight = MATRIX.dequantised().to(device)
    for num_rows, wanted in ((3, (1, 0)), (59, (2, 0)), (60, (2, 1))):
        x = rows(num_rows, device)
        assert_near(counted.product(x), x @ weight.T, num_roundings=10)
        assert (counted.own, counted.decoded) == wanted
    assert counted.products.summary == "quantised products for 1 shape"


def test_where_ours_is_slower_cublas_takes_over_early_but_not_decodes(device: torch.device) -> None:
    counted = Counted(device)
    counted.products.choose(first_is_slower())
    assert counted.product.tiles(20) is None
    assert counted.product.tiles(16) is not None
    assert not counted.product.folds(20)


def test_where_ours_is_faster_it_computes_everything(device: torch.device) -> None:
    counted = Counted(device)
    counted.products.choose(first_is_faster())
    assert counted.product.tiles(1 << 20) is not None


def test_a_kernel_that_computes_something_else_is_not_used_for_many_rows(
    device: torch.device, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(x: torch.Tensor, weight: object, bias: object, output: torch.Tensor, *_: object, **__: object) -> None:
        output.fill_(float("nan"))

    counted = Counted(device, wrong)
    counted.products.choose(first_is_faster())
    assert counted.product.tiles(20) is None
    assert "differs from cuBLAS" in caplog.text


def test_weights_larger_than_the_buffer_are_decoded_in_pieces(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantised_products, "_BUFFER_BYTES", 10 * 64 * 4)
    counted = Counted(device)
    codes = packed(int4_in_another_order(24, 64, 32).to(device, torch.float32))
    assert codes is not None
    bias = torch.arange(24.0, device=device)
    product, x = counted.products.bind(codes, bias), rows(61, device)
    expected = x @ int4_in_another_order(24, 64, 32).dequantised().to(device).T + bias
    assert_near(product(x), expected, num_roundings=10)
    assert counted.decoded == 3


def test_an_entry_of_the_table_has_the_tiles(tmp_path: Path, device: torch.device) -> None:
    key = ProductKey.of_codes("int4 with zeros in groups of 32", torch.float32, 64, 24, 16)
    entry = as_entry(key, asdict(TILES))
    name = f"sm_{architecture_of(device)}.json"
    (tmp_path / name).write_text(json.dumps({"entries": [entry]}))
    counted = Counted(device, tables=tmp_path)
    counted.products.choose(None)
    assert counted.product.tiles(1) == counted.product.tiles(16) == TILES
    assert counted.product.tiles(17) != TILES


def test_a_tied_table_that_is_quantised_is_kept_once(device: torch.device) -> None:
    matrix = MATRIX.to(device, torch.float32)
    embed, head = GpuOperators().tied_embedding(matrix)
    assert isinstance(head, QuantisedProduct)
    weight = MATRIX.dequantised().to(device)
    torch.testing.assert_close(embed(torch.tensor([5, 0], device=device)), weight[[5, 0]])
    assert_near(head(rows(2, device)), rows(2, device) @ weight.T, num_roundings=10)
