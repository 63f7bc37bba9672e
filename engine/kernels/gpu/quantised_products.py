"""The products of a model with quantised weights, and who computes them: our kernel, or cuBLAS on weights that are
decoded into a buffer just before.

Up to 16 rows it is always our kernel. The operators beside a product are part of it, norms only up to 64 rows. For more
rows the number from which cuBLAS takes over is chosen once for each shape of weights, between loading and the first
step: by the architecture's table, else by timing both. Where nothing can be timed it is a fixed one.
"""

import logging
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from engine.kernels.gpu import quantised_product
from engine.kernels.gpu.dequantise import dequantise, rows_of
from engine.kernels.gpu.packed_codes import CodeForm, PackedCodes
from engine.kernels.gpu.quantised_product import CodeTiles, tiles_of
from engine.kernels.gpu.skinny_product import ROW_TILES, Activation, InputNorm, ProductWorkspace
from engine.kernels.gpu.tuning import TABLES, ProductKey, tuned_product
from engine.kernels.hardware import architecture_of, num_multiprocessors
from engine.kernels.operators import LinearFunction, WorkTimer

_log = logging.getLogger(__name__)

#: Numbers of rows at which both are timed, and from which on cuBLAS computes if nothing is timed.
TIMED_ROWS = (64, 256, 1024)
_LIBRARY_ROWS = 1024
#: Decoded weights are multiplied in pieces of at most this size.
_BUFFER_BYTES = 64 * 2**20
#: Weights of more numbers take no norm above 16 rows: each program norms all rows of x, which costs instructions that
#: are the bound of quantised products, and then more time than a launch (estimated for 64 rows).
_MOST_NORMED = 1 << 24
#: Numbers of rows that tables of tiles have entries for (ProductKey).
ROW_COUNTS = (ROW_TILES[0], 64, 256)
#: Largest difference from cuBLAS's results, as a share of the largest of them: a few roundings to 16 bits.
_TOLERANCE = 0.02


class QuantisedProduct:
    """x [R, in] -> x weight^T + bias [R, out] for a packed weight."""

    def __init__(self, products: "QuantisedProducts", weight: PackedCodes, bias: torch.Tensor | None) -> None:
        """Made by QuantisedProducts.bind. bias [out], of the weight's dtype."""
        self.weight = weight
        self.bias = bias
        self._products = products

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [R, in] -> [R, out], newly allocated."""
        tiles = self.tiles(len(x))
        return self._products.by_library(x, self) if tiles is None else self.own(x, tiles)

    def tiles(self, num_rows: int) -> CodeTiles | None:
        """The tiles of quantised_product for that many rows; None: cuBLAS computes them."""
        return self._products.tiles(self.weight, num_rows)

    def own(self, x: torch.Tensor, tiles: CodeTiles) -> torch.Tensor:
        """x [R, in] -> [R, out] by quantised_product, newly allocated."""
        return self._new(x, tiles, None, Activation.NONE)

    def folds(self, num_rows: int) -> bool:
        """As FoldingProduct.folds."""
        return self.tiles(num_rows) is not None

    def takes_norm(self, num_rows: int) -> bool:
        """As FoldingProduct.takes_norm. With act-order norm weights would have to be in that order, too."""
        numbers = self.weight.num_outputs * self.weight.form.size
        return self.weight.order is None and (num_rows <= ROW_TILES[0] or numbers <= _MOST_NORMED)

    def fused(self, x: torch.Tensor, norm: InputNorm | None, activation: Activation) -> torch.Tensor:
        """As FoldingProduct.fused."""
        tiles = self.tiles(len(x))
        assert tiles is not None
        return self._new(x, tiles, norm, activation)

    def add(self, x: torch.Tensor, stream: torch.Tensor) -> int:
        """As FoldingProduct.add."""
        tiles = self.tiles(len(x))
        assert tiles is not None
        self._multiply(x, stream, tiles, None, Activation.NONE, is_added=True)
        if not quantised_product.is_one_tile(len(x), tiles):
            return 0
        return quantised_product.num_squares(self.weight.num_outputs, tiles)

    def _new(self, x: torch.Tensor, tiles: CodeTiles, norm: InputNorm | None, activation: Activation) -> torch.Tensor:
        channels = self.weight.num_outputs
        num_outputs = channels if activation is Activation.NONE else channels // 2
        output = torch.empty((len(x), num_outputs), dtype=x.dtype, device=x.device)
        self._multiply(x, output, tiles, norm, activation, is_added=False)
        return output

    def _multiply(
        self,
        x: torch.Tensor,
        output: torch.Tensor,
        tiles: CodeTiles,
        norm: InputNorm | None,
        activation: Activation,
        *,
        is_added: bool,
    ) -> None:
        if self.weight.order is not None:
            x = x.index_select(1, self.weight.order)
        products = self._products
        workspace = products.workspace(x.device)
        products.multiply(
            x, self.weight, self.bias, output, workspace, tiles, norm=norm, activation=activation, is_added=is_added
        )


@dataclass
class QuantisedProducts:
    """Binds products, and chooses who computes them. One for each model."""

    workspace: Callable[[torch.device], ProductWorkspace]
    multiply: Callable[..., None] = quantised_product.multiply  #: tests pass one that their recorder sees
    dequantise: Callable[..., None] = dequantise  #: likewise
    library: Callable[..., object] = torch.mm  #: cuBLAS
    look_up: Callable[[PackedCodes, torch.Tensor], torch.Tensor] = rows_of  #: likewise
    tables: Path = TABLES
    #: Until `choose`; weights are not kept alive.
    _unsettled: dict[tuple[CodeForm, int], weakref.ref[QuantisedProduct]] = field(default_factory=dict)
    _library_rows: dict[tuple[CodeForm, int], int] = field(default_factory=dict)
    _tables: dict[tuple[CodeForm, int], Mapping[int, CodeTiles]] = field(default_factory=dict)
    _buffers: dict[tuple[torch.device, torch.dtype], torch.Tensor] = field(default_factory=dict)

    def bind(self, weight: PackedCodes, bias: torch.Tensor | None) -> QuantisedProduct:
        """bias [out]: kept, not copied."""
        product = QuantisedProduct(self, weight, None if bias is None else bias.to(weight.dtype))
        self._unsettled.setdefault((weight.form, weight.num_outputs), weakref.ref(product))
        return product

    def embedding(self, table: PackedCodes) -> LinearFunction:
        """ids [T] -> rows of the table [T, in]."""
        return lambda ids: self.look_up(table, ids)

    @property
    def summary(self) -> str:
        """For logs and metrics: how many shapes of weights are quantised; empty if none is."""
        count = len(self._library_rows)
        return f"quantised products for {count} shape{'s' if count > 1 else ''}" if count else ""

    def tiles(self, weight: PackedCodes, num_rows: int) -> CodeTiles | None:
        """The tiles of quantised_product; None: cuBLAS."""
        shape = weight.form, weight.num_outputs
        if num_rows >= self._library_rows.get(shape, _LIBRARY_ROWS):
            return None
        count = next((count for count in ROW_COUNTS if count >= num_rows), 0)
        if (measured := self._tables.get(shape, {}).get(count)) is not None:
            return measured
        multiprocessors = num_multiprocessors(weight.words.device)
        return tiles_of(weight.form, weight.num_outputs, num_rows, weight.dtype.itemsize, multiprocessors)

    def by_library(self, x: torch.Tensor, product: QuantisedProduct) -> torch.Tensor:
        """The product of cuBLAS with decoded weights, newly allocated."""
        weight = product.weight
        outputs, size = weight.num_outputs, weight.form.size
        result = torch.empty((len(x), outputs), dtype=x.dtype, device=x.device)
        buffer = self._buffer(x.device, x.dtype)
        most = max(len(buffer) // size, 1)
        for first in range(0, outputs, most):
            count = min(most, outputs - first)
            part = buffer[: count * size].view(count, size)
            self.dequantise(weight, first, part)
            self.library(x, part.T, out=result[:, first : first + count])
        return result if product.bias is None else result.add_(product.bias)

    def choose(self, timer: WorkTimer | None) -> None:
        """Choose for every shape that was bound since the last call. timer: None: only by the table."""
        for shape, reference in self._unsettled.items():
            product = reference()
            if product is None:
                continue
            weight = product.weight
            self._buffer(weight.words.device, weight.dtype)  # not first while a graph is captured
            self._tables[shape] = self._measured(weight)
            rows = _LIBRARY_ROWS
            if timer is not None:
                rows = next((count for count in TIMED_ROWS if not self.is_faster(product, count, timer)), 1 << 30)
            self._library_rows[shape] = rows
        self._unsettled.clear()

    def is_faster(self, product: QuantisedProduct, num_rows: int, timer: WorkTimer) -> bool:
        """Whether our kernel computes that many rows in less time than cuBLAS, and the same numbers."""
        weight = product.weight
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(num_rows, weight.form.size, generator=generator).to(weight.dtype).to(weight.words.device)
        multiprocessors = num_multiprocessors(x.device)
        tiles = tiles_of(weight.form, weight.num_outputs, num_rows, x.itemsize, multiprocessors)
        expected = self.by_library(x, product)
        error = (product.own(x, tiles) - expected).abs().max() / expected.abs().max()
        if not bool(error < _TOLERANCE):
            _log.error("the quantised product of %d rows with %s differs from cuBLAS's", num_rows, weight.form)
            return False
        own_s = timer(lambda: _discard(product.own(x, tiles)))
        library_s = timer(lambda: _discard(self.by_library(x, product)))
        _log.info(
            "product of %d rows with quantised %d x %d: %.1f us, %.1f by cuBLAS",
            *(num_rows, weight.form.size, weight.num_outputs, 1e6 * own_s, 1e6 * library_s),
        )
        return own_s < library_s

    def _measured(self, weight: PackedCodes) -> Mapping[int, CodeTiles]:
        architecture = architecture_of(weight.words.device)
        found = {}
        for count in ROW_COUNTS:
            key = ProductKey.of_codes(weight.form.name, weight.dtype, weight.form.size, weight.num_outputs, count)
            values = tuned_product(key, architecture, self.tables)
            if values:
                found[count] = CodeTiles(**values)
        return found

    def _buffer(self, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
        """For decoded weights, [numbers]."""
        if (device, dtype) not in self._buffers:
            self._buffers[device, dtype] = torch.empty(_BUFFER_BYTES // dtype.itemsize, dtype=dtype, device=device)
        return self._buffers[device, dtype]


def _discard(_: torch.Tensor) -> None: ...
