"""The matrix products of a model: cuBLAS, or for few rows skinny_product, where that was measured to be faster.

The choice is made once, between loading and the first step, for each shape of weights and number of rows: from the
table of the architecture (engine/kernels/tuned) if it has the shape, else by timing both on all weights of the shape,
so that they come from memory as they do in a step. Without a table and without a timer (on CPU) cuBLAS stays.
"""

import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F

from engine.kernels.gpu import skinny_product
from engine.kernels.gpu.skinny_product import (
    MAX_ROWS,
    ROW_TILES,
    Activation,
    InputNorm,
    ProductTiles,
    ProductWorkspace,
    formula_tiles,
)
from engine.kernels.gpu.tuning import TABLES, ProductKey, tuned_product
from engine.kernels.hardware import architecture_of, num_multiprocessors
from engine.kernels.operators import WorkTimer

_log = logging.getLogger(__name__)

#: Numbers of rows that are timed; a step takes the choice of the next larger one.
ROW_COUNTS = (1, 2, 4, 8, *ROW_TILES)
#: Weights that are timed together: many times the second-level cache.
_TIMED_BYTES = 512 * 2**20
#: Largest difference from cuBLAS's results, as a share of the largest of them: a few roundings to 16 bits.
_TOLERANCE = 0.02
#: Rows of each launch where a row's bits must not depend on the number of rows.
_INVARIANT_ROWS = 16


@dataclass(frozen=True, slots=True)
class _Shape:
    """A shape of weights: all products of one shape are computed in the same way."""

    dtype: torch.dtype
    size: int
    channels: int


class Product:
    """x [R, in] -> x weight^T + bias [R, out]: the LinearFunction of CUDA."""

    def __init__(self, products: "Products", weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        """Made by Products.bind. weight [out, in], bias [out]."""
        self.weight = weight
        self.bias = bias
        self.shape = _Shape(weight.dtype, weight.shape[1], weight.shape[0])
        self._products = products

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [R, in] -> [R, out], newly allocated."""
        if self._products.is_batch_invariant:
            return self._by_blocks(x)
        tiles = self.tiles(len(x))
        return self._products.library(x, self.weight, self.bias) if tiles is None else self.own(x, tiles)

    def _by_blocks(self, x: torch.Tensor) -> torch.Tensor:
        """Every row by the same kernel and tile, in as many launches as that takes."""
        tiles = self._products.tiles(self.shape, 1)
        assert tiles is not None
        output = torch.empty((len(x), self.shape.channels), dtype=x.dtype, device=x.device)
        workspace = self._products.workspace(x.device)
        for rows, results in zip(x.split(_INVARIANT_ROWS), output.split(_INVARIANT_ROWS), strict=True):
            self._products.multiply(
                rows, self.weight, self.bias, results, workspace, tiles,
                norm=None, activation=Activation.NONE, is_added=False,
            )  # fmt: skip
        return output

    def tiles(self, num_rows: int) -> ProductTiles | None:
        """The tiles of skinny_product for that many rows; None: cuBLAS computes them."""
        return self._products.tiles(self.shape, num_rows)

    def own(
        self,
        x: torch.Tensor,
        tiles: ProductTiles,
        *,
        norm: InputNorm | None = None,
        activation: Activation = Activation.NONE,
    ) -> torch.Tensor:
        """activation(norm(x) weight^T + bias) by skinny_product, newly allocated."""
        num_outputs = self.shape.channels if activation is Activation.NONE else self.shape.channels // 2
        output = torch.empty((len(x), num_outputs), dtype=x.dtype, device=x.device)
        workspace = self._products.workspace(x.device)
        self._products.multiply(
            x, self.weight, self.bias, output, workspace, tiles, norm=norm, activation=activation, is_added=False
        )
        return output

    def folds(self, num_rows: int) -> bool:
        """As FoldingProduct.folds."""
        return not self._products.is_batch_invariant and self.tiles(num_rows) is not None

    def takes_norm(self, num_rows: int) -> bool:
        """As FoldingProduct.takes_norm."""
        return True

    def fused(self, x: torch.Tensor, norm: InputNorm | None, activation: Activation) -> torch.Tensor:
        """As FoldingProduct.fused."""
        tiles = self.tiles(len(x))
        assert tiles is not None
        return self.own(x, tiles, norm=norm, activation=activation)

    def add(self, x: torch.Tensor, stream: torch.Tensor) -> int:
        """As FoldingProduct.add."""
        tiles = self.tiles(len(x))
        assert tiles is not None
        workspace = self._products.workspace(x.device)
        self._products.multiply(
            x, self.weight, self.bias, stream, workspace, tiles, norm=None, activation=Activation.NONE, is_added=True
        )
        return skinny_product.num_squares(self.shape.channels, tiles)


@dataclass
class Products:
    """Binds products, and chooses who computes them. One for each model."""

    multiply: Callable[..., None] = skinny_product.multiply  #: tests pass one that their recorder sees
    library: Callable[..., torch.Tensor] = F.linear  #: cuBLAS
    num_multiprocessors: int | None = None  #: None: those of the device
    architecture: int | None = None  #: likewise; whose table is read
    tables: Path = TABLES
    #: A row has the same bits beside any number of rows: all products are ours, with one tile for each shape, and no
    #: operator is folded in, since that is possible for few rows only.
    is_batch_invariant: bool = False
    #: Until `choose`; weights are not kept alive.
    _unsettled: dict[_Shape, list[weakref.ref[Product]]] = field(default_factory=dict)
    _chosen: dict[_Shape, Mapping[int, ProductTiles]] = field(default_factory=dict)  #: row count -> tiles
    _workspaces: dict[torch.device, ProductWorkspace] = field(default_factory=dict)

    def bind(self, weight: torch.Tensor, bias: torch.Tensor | None) -> Product:
        """weight [out, in], bias [out]: kept, not copied."""
        product = Product(self, weight, bias)
        self._unsettled.setdefault(product.shape, []).append(weakref.ref(product))
        return product

    @property
    def summary(self) -> str:
        """For logs and metrics: how many shapes have products of our own; empty if none has."""
        own = sum(1 for rows in self._chosen.values() if rows)
        return f"own products for {own} of {len(self._chosen)} shapes" if own else ""

    def tiles(self, shape: _Shape, num_rows: int) -> ProductTiles | None:
        """The tiles of skinny_product; None: cuBLAS."""
        chosen = self._chosen.get(shape)
        if not chosen or num_rows > MAX_ROWS:
            return None
        return chosen.get(next(count for count in ROW_COUNTS if count >= num_rows))

    def workspace(self, device: torch.device) -> ProductWorkspace:
        """The workspace of all products of a device."""
        if device not in self._workspaces:
            self._workspaces[device] = ProductWorkspace.allocate(device)
        return self._workspaces[device]

    def choose(self, timer: WorkTimer | None) -> None:
        """Choose for every shape that was bound since the last call. timer: None: only by the table."""
        for shape, references in self._unsettled.items():
            products = [product for reference in references if (product := reference()) is not None]
            if products and all(product.weight.is_contiguous() for product in products):
                self._chosen[shape] = self._choose(shape, products, timer)
        self._unsettled.clear()
        if self.summary:
            _log.info("products of 1 to %d rows: %s", MAX_ROWS, self.summary)

    def _choose(
        self, shape: _Shape, products: Sequence[Product], timer: WorkTimer | None
    ) -> Mapping[int, ProductTiles]:
        device = products[0].weight.device
        multiprocessors = self.num_multiprocessors or num_multiprocessors(device)
        if self.is_batch_invariant:
            tiles = formula_tiles(shape.size, shape.channels, _INVARIANT_ROWS, shape.dtype.itemsize, multiprocessors)
            return dict.fromkeys(ROW_COUNTS, tiles)
        chosen = {}
        for count in ROW_COUNTS:
            key = ProductKey.of(shape.dtype, shape.size, shape.channels, count)
            measured = tuned_product(key, self.architecture or architecture_of(device), self.tables)
            if measured is not None:
                if measured:
                    chosen[count] = ProductTiles(**measured)
            elif timer is not None:
                tiles = formula_tiles(shape.size, shape.channels, count, shape.dtype.itemsize, multiprocessors)
                if self.is_faster(shape, products, tiles, count, timer):
                    chosen[count] = tiles
        return chosen

    def is_faster(
        self, shape: _Shape, products: Sequence[Product], tiles: ProductTiles, num_rows: int, timer: WorkTimer
    ) -> bool:
        """Whether skinny_product computes that many rows in less time than cuBLAS, and the same numbers."""
        weight = products[0].weight
        timed = products[: max(1, _TIMED_BYTES // weight.nbytes)]
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(num_rows, shape.size, generator=generator).to(shape.dtype).to(weight.device)
        expected = self.library(x, weight, None)
        error = (Product(self, weight, None).own(x, tiles) - expected).abs().max() / expected.abs().max()
        if not bool(error < _TOLERANCE):
            _log.error("the product of %d rows with %s differs from cuBLAS's: not used", num_rows, shape)
            return False

        def ours() -> None:
            for product in timed:
                product.own(x, tiles)

        def library() -> None:
            for product in timed:
                self.library(x, product.weight, product.bias)

        own_s, library_s = timer(ours), timer(library)
        _log.info(
            "product of %d rows with %d x %d: %.1f us, %.1f by cuBLAS",
            *(num_rows, shape.size, shape.channels),
            *(1e6 * seconds / len(timed) for seconds in (own_s, library_s)),
        )
        return own_s < library_s
