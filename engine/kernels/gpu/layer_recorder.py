"""Decoder layers for decode steps, with each product's neighbours folded into it where skinny_product or
quantised_product computes it.

A layer of Llama then takes six launches instead of nine: norm and product of heads; pages; attention; product and
addition; norm, product and activation; product and addition. The sums of squares of the stream go from the
product that adds to it to the product that reads its norm. Where cuBLAS computes a product, its neighbours are kernels
of their own, as in larger steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from engine.kernels.gpu.norm import RMSNorm
from engine.kernels.gpu.products import Product
from engine.kernels.gpu.quantised_products import QuantisedProduct
from engine.kernels.gpu.skinny_product import Activation, InputNorm
from engine.kernels.operators import Activation as ActivationFunction
from engine.kernels.operators import Adapted, AttendFunction, HeadNormWeights, NormFunction

_PRODUCTS = Product | QuantisedProduct


class FoldingProduct(Protocol):
    """A product that can have its neighbours folded in."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The product alone: x [R, in] -> [R, out]."""
        ...

    def folds(self, num_rows: int) -> bool:
        """Whether `fused` without a norm and `add` serve for that many rows."""
        ...

    def takes_norm(self, num_rows: int) -> bool:
        """Whether `fused` also takes a norm, where `folds` is true."""
        ...

    def fused(self, x: torch.Tensor, norm: InputNorm | None, activation: Activation) -> torch.Tensor:
        """activation(norm(x) weight^T + bias), newly allocated."""
        ...

    def add(self, x: torch.Tensor, stream: torch.Tensor) -> int:
        """stream += x weight^T + bias. Returns the number of sums of squares of each row of the new stream that the
        workspace holds until the next such call, num_squares of InputNorm; 0: it holds none."""
        ...


@dataclass
class _Stream:
    """The residual stream between two parts."""

    rows: torch.Tensor  #: [R, hidden]
    update: torch.Tensor | None  #: still to be added
    num_squares: int = 0  #: sums of squares of each row in the workspace; 0: they are not known

    def normed(self, norm: NormFunction, product: FoldingProduct, activation: Activation | None) -> torch.Tensor | None:
        """product(norm(stream)) with that activation, in one launch; None, with nothing done, if that is not
        possible."""
        if activation is None or not product.folds(len(self.rows)):
            return None
        folded = None
        if self.num_squares and isinstance(norm, RMSNorm) and product.takes_norm(len(self.rows)):
            folded = InputNorm(norm.float_weight, norm.eps, self.num_squares)
        rows = self.rows if folded is not None else norm(self.rows, self.update)
        return product.fused(rows, folded, activation)

    def add(self, product: FoldingProduct, x: torch.Tensor, output_norm: NormFunction | None, *, is_last: bool) -> None:
        """Add output_norm(product(x)), now or with the next norm. is_last: it stays in `update`."""
        self.update, self.num_squares = None, 0
        if output_norm is None and not is_last and product.folds(len(x)):
            self.num_squares = product.add(x, self.rows)
            return
        update = product(x)
        self.update = update if output_norm is None else output_norm(update, None)


class _Part(Protocol):
    def run(self, stream: _Stream, attend: AttendFunction, *, is_last: bool) -> None: ...


@dataclass(frozen=True)
class _Attention:
    norm: NormFunction
    qkv: FoldingProduct
    layer_id: int
    rotation: int | None
    head_norms: HeadNormWeights | None
    output: FoldingProduct
    output_norm: NormFunction | None

    def run(self, stream: _Stream, attend: AttendFunction, *, is_last: bool) -> None:
        heads = stream.normed(self.norm, self.qkv, Activation.NONE)
        if heads is None:
            heads = self.qkv(self.norm(stream.rows, stream.update))
        attended = attend(self.layer_id, heads, self.rotation, self.head_norms)
        stream.add(self.output, attended, self.output_norm, is_last=is_last)


@dataclass(frozen=True)
class _FeedForward:
    norm: NormFunction
    up: FoldingProduct
    activation: ActivationFunction
    folded: Activation | None  #: the same as part of a product; None: it is a launch of its own
    down: FoldingProduct
    output_norm: NormFunction | None

    def run(self, stream: _Stream, attend: AttendFunction, *, is_last: bool) -> None:
        wide = stream.normed(self.norm, self.up, self.folded)
        if wide is None:
            wide = self.activation(self.up(self.norm(stream.rows, stream.update)))
        stream.add(self.down, wide, self.output_norm, is_last=is_last)


class LayerRecorder:
    """The Recorder of CUDA operators, and what runs its recording."""

    has_adapters = False  # their updates stand between a product and its neighbours

    def __init__(self, activations: Mapping[ActivationFunction, Activation]) -> None:
        """activations: those that products can have folded in."""
        self._activations = activations
        self._parts: list[_Part] = []

    def attention(
        self,
        norm: NormFunction,
        qkv: Adapted,
        layer_id: int,
        rotation: int | None,
        head_norms: HeadNormWeights | None,
        output: Adapted,
        output_norm: NormFunction | None,
        *,
        has_update: bool,
    ) -> bool:
        """As Recorder.attention."""
        heads, out = qkv.multiply, output.multiply
        if not (isinstance(heads, _PRODUCTS) and isinstance(out, _PRODUCTS)):
            return False
        self._parts.append(_Attention(norm, heads, layer_id, rotation, head_norms, out, output_norm))
        return True

    def feed_forward(
        self,
        norm: NormFunction,
        up: Adapted,
        activation: ActivationFunction,
        down: Adapted,
        output_norm: NormFunction | None,
        *,
        is_parallel: bool,
    ) -> bool:
        """As Recorder.feed_forward."""
        ups, downs = up.multiply, down.multiply
        if is_parallel or not (isinstance(ups, _PRODUCTS) and isinstance(downs, _PRODUCTS)):
            return False
        folded = self._activations.get(activation)
        self._parts.append(_FeedForward(norm, ups, activation, folded, downs, output_norm))
        return True

    def run(self, rows: torch.Tensor, update: torch.Tensor | None, attend: AttendFunction) -> torch.Tensor:
        """As RunsLayers.run."""
        stream = _Stream(rows, update)
        for number, part in enumerate(self._parts, start=1):
            part.run(stream, attend, is_last=number == len(self._parts))
        assert stream.update is not None
        return stream.update
