"""Decoder layers for steps of few rows, with each product's neighbours folded into it where skinny_product computes it.

A layer of Llama then takes seven launches instead of ten: norm and product of heads; pages; attention and its merge;
product and addition; norm, product and activation; product and addition. The sums of squares of the stream go from the
product that adds to it to the product that reads its norm. Where cuBLAS computes a product, its neighbours are kernels
of their own, as in larger steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from engine.kernels.gpu.norm import RMSNorm
from engine.kernels.gpu.products import Product
from engine.kernels.gpu.skinny_product import Activation, InputNorm
from engine.kernels.operators import Activation as ActivationFunction
from engine.kernels.operators import Adapted, AttendFunction, HeadNormWeights, NormFunction


@dataclass
class _Stream:
    """The residual stream between two parts."""

    rows: torch.Tensor  #: [R, hidden]
    update: torch.Tensor | None  #: still to be added
    num_squares: int = 0  #: sums of squares of each row in the workspace; 0: they are not known

    def normed(self, norm: NormFunction, product: Product, activation: Activation | None) -> torch.Tensor | None:
        """product(norm(stream)) with that activation, in one launch; None, with nothing done, if that is not
        possible."""
        tiles = product.tiles(len(self.rows))
        if tiles is None or activation is None:
            return None
        if self.num_squares and isinstance(norm, RMSNorm):
            folded = InputNorm(norm.float_weight, norm.eps, self.num_squares)
            return product.own(self.rows, tiles, norm=folded, activation=activation)
        return product.own(norm(self.rows, self.update), tiles, activation=activation)

    def add(self, product: Product, x: torch.Tensor, output_norm: NormFunction | None, *, is_last: bool) -> None:
        """Add output_norm(product(x)), now or with the next norm. is_last: it stays in `update`."""
        tiles = product.tiles(len(x))
        self.update, self.num_squares = None, 0
        if tiles is not None and output_norm is None and not is_last:
            self.num_squares = product.add(x, self.rows, tiles)
            return
        update = product(x)
        self.update = update if output_norm is None else output_norm(update, None)


class _Part(Protocol):
    def run(self, stream: _Stream, attend: AttendFunction, *, is_last: bool) -> None: ...


@dataclass(frozen=True)
class _Attention:
    norm: NormFunction
    qkv: Product
    layer_id: int
    rotation: int | None
    head_norms: HeadNormWeights | None
    output: Product
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
    up: Product
    activation: ActivationFunction
    folded: Activation | None  #: the same as part of a product; None: it is a launch of its own
    down: Product
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
        if not (isinstance(heads, Product) and isinstance(out, Product)):
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
        if is_parallel or not (isinstance(ups, Product) and isinstance(downs, Product)):
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
