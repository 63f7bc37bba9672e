"""Which kernel computes a product of few rows: by the architecture's table, else by measurement, else cuBLAS's."""

import gc
import json
import weakref
from collections.abc import Callable
from dataclasses import asdict
from itertools import count
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from engine.kernels.gpu import skinny_product
from engine.kernels.gpu.operators import GpuOperators
from engine.kernels.gpu.products import ROW_COUNTS, Products
from engine.kernels.gpu.skinny_product import ProductTiles
from engine.kernels.gpu.tuning import ProductKey, as_entry, tuned_product
from engine.kernels.operators import WorkTimer
from tests.engine.kernels.gpu.closeness import assert_near

WEIGHT = torch.randn(48, 32, generator=torch.Generator().manual_seed(0)) / 4
TILES = ProductTiles(block_n=16, block_r=16, block_k=32, splits=1, num_warps=4, num_stages=2)


def first_is_faster() -> WorkTimer:
    numbers = count(1)
    return lambda work: float(next(numbers))


def first_is_slower() -> WorkTimer:
    numbers = count(0, -1)
    return lambda work: float(next(numbers))


def rows(num_rows: int, device: torch.device) -> torch.Tensor:
    return torch.randn(num_rows, 32, generator=torch.Generator().manual_seed(1)).to(device)


class Counted:
    """Products whose calls of either kernel are counted."""

    def __init__(self, own: Callable[..., None] = skinny_product.multiply) -> None:
        self.own, self.library = 0, 0
        self._multiply = own
        self.products = Products(multiply=self._own, library=self._library)

    def _own(self, *args: object, **named: object) -> None:
        self.own += 1
        self._multiply(*args, **named)

    def _library(self, *args: torch.Tensor) -> torch.Tensor:
        self.library += 1
        return F.linear(*args)


def test_without_a_measurement_the_library_computes_all_products(device: torch.device) -> None:
    counted = Counted()
    product = counted.products.bind(WEIGHT.to(device), None)
    product(rows(3, device))
    counted.products.choose(None)
    product(rows(3, device))
    assert (counted.own, counted.library) == (0, 2)
    assert counted.products.summary == ""


@pytest.mark.parametrize("num_rows", [1, 3, 16, 17, 64, 65])
def test_where_ours_are_faster_they_compute_up_to_64_rows(num_rows: int, device: torch.device) -> None:
    counted = Counted()
    product = counted.products.bind(WEIGHT.to(device), None)
    counted.products.choose(first_is_faster())
    counted.own = counted.library = 0
    x = rows(num_rows, device)
    assert_near(product(x), F.linear(x, WEIGHT.to(device)), num_roundings=2)
    assert (counted.own, counted.library) == ((1, 0) if num_rows <= 64 else (0, 1))
    assert counted.products.summary == "own products for 1 of 1 shapes"


def test_where_they_are_slower_the_library_stays(device: torch.device) -> None:
    counted = Counted()
    product = counted.products.bind(WEIGHT.to(device), None)
    counted.products.choose(first_is_slower())
    assert all(product.tiles(num_rows) is None for num_rows in ROW_COUNTS)
    assert counted.products.summary == ""


def test_a_kernel_that_computes_something_else_is_not_used(
    device: torch.device, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(
        x: torch.Tensor, weight: torch.Tensor, bias: object, output: torch.Tensor, *_: object, **__: object
    ) -> None:
        output.fill_(float("nan"))

    counted = Counted(wrong)
    product = counted.products.bind(WEIGHT.to(device), None)
    counted.products.choose(first_is_faster())
    assert product.tiles(1) is None
    assert "differs from cuBLAS" in caplog.text


def test_an_entry_of_the_table_decides_without_a_measurement(tmp_path: Path, device: torch.device) -> None:
    """Tiles where they were measured to be faster, nothing where cuBLAS was; other shapes are not in the table."""
    keys = [ProductKey.of(torch.float32, 32, 48, num_rows) for num_rows in (1, 2)]
    entries = [as_entry(keys[0], asdict(TILES)), as_entry(keys[1], {})]
    (tmp_path / "sm_90.json").write_text(json.dumps({"entries": entries}))
    assert tuned_product(keys[0], 90, tmp_path) == asdict(TILES)
    assert tuned_product(keys[1], 90, tmp_path) == {}
    assert tuned_product(ProductKey.of(torch.float32, 32, 48, 4), 90, tmp_path) is None

    products = Products(tables=tmp_path, architecture=90)
    product = products.bind(WEIGHT.to(device), None)
    products.choose(first_is_faster())
    assert product.tiles(1) == TILES
    assert product.tiles(2) is None
    assert product.tiles(4) not in (None, TILES)


def test_the_operators_name_says_how_many_shapes_have_products_of_ours(device: torch.device) -> None:
    operators = GpuOperators()
    assert operators.name == "triton"
    bound = [operators.linear(WEIGHT.to(device), None), operators.linear(WEIGHT.T.contiguous().to(device), None)]
    operators.choose_products(first_is_faster())
    assert operators.name == "triton, own products for 2 of 2 shapes"
    assert len(bound) == 2


def test_products_that_were_never_chosen_do_not_keep_weights_alive(device: torch.device) -> None:
    products, weight = Products(), WEIGHT.clone().to(device)
    alive = weakref.ref(weight)
    product = products.bind(weight, None)
    del product, weight
    gc.collect()
    assert alive() is None


def test_a_row_has_the_same_bits_in_any_number_of_rows_where_that_is_asked_for(device: torch.device) -> None:
    products = Products(is_batch_invariant=True, library=no_library)
    product = products.bind(WEIGHT.to(device), torch.ones(48, device=device))
    products.choose(None)
    x = rows(37, device)
    together = product(x)
    assert_near(together, F.linear(x, product.weight, product.bias))
    assert not product.folds(1)
    for row in (0, 15, 16, 36):
        assert torch.equal(product(x[row : row + 1]), together[row : row + 1])


def no_library(*arguments: object) -> torch.Tensor:
    raise AssertionError("cuBLAS takes another kernel for another number of rows")
