"""Gated short convolution (LFM2): a few taps over time between two gates, with a state of a few inputs.

T = tokens of the step, K = taps.
"""

import torch

from engine.attention.backend import ForwardBatch, StateShape
from engine.attention.rotation import Rotation
from engine.layers.linear import Linear
from engine.layers.weights import WeightSource


class ShortConv:
    """out(c * convolution(b * x)) with b, c, x = in(input)."""

    def __init__(
        self, state_id: int, weights: WeightSource, name: str, hidden: int, num_taps: int, *, bias: bool
    ) -> None:
        """Takes the tensors of the layer `name`. bias: in the convolution and both projections."""
        self._state_id = state_id
        self._kernels = weights.operators.state_kernels
        self.is_capturable = self._kernels.is_capturable
        self._in_proj = Linear.load(weights, f"{name}.in_proj", hidden, 3 * hidden, bias=bias)
        self._taps = weights.take(f"{name}.conv.weight", hidden, 1, num_taps)[:, 0].t().contiguous()  # [K, hidden]
        self._conv_bias = weights.take(f"{name}.conv.bias", hidden) if bias else None
        self._out_proj = Linear.load(weights, f"{name}.out_proj", hidden, hidden, bias=bias)

    @staticmethod
    def state_shape(hidden: int, num_taps: int, dtype: torch.dtype) -> StateShape:
        """The state of one layer: the last K - 1 inputs of the convolution."""
        return StateShape("conv", (num_taps - 1, hidden), dtype)

    def __call__(self, x: torch.Tensor, rotation: Rotation | None, batch: ForwardBatch) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]; advances the state of each sequence."""
        assert batch.states is not None
        before, after, inputs = self._in_proj(x).chunk(3, dim=-1)
        state = batch.states.in_place(self._state_id)
        convolved = self._kernels.causal_conv(before * inputs, self._taps, self._conv_bias, state, has_silu=False)
        return self._out_proj(convolved.mul_(after))
