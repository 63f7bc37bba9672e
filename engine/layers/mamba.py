"""Selective state space layer (Mamba, Gu and Dao 2023): a short convolution over time, then a linear recurrence whose
coefficients depend on the token.

T = tokens of the step, I = channels, N = numbers of state per channel, K = taps of the convolution.
"""

from dataclasses import dataclass
from typing import Self

import torch

from engine.attention.backend import ForwardBatch, StateShape
from engine.attention.rotation import Rotation
from engine.kernels.state_kernels import StateKernels
from engine.layers.linear import Linear
from engine.layers.norm import RMSNorm
from engine.layers.weights import WeightSource


@dataclass(frozen=True, slots=True)
class MambaSizes:
    """Sizes of one layer, read from a checkpoint's config."""

    hidden: int
    num_channels: int  #: I
    num_states: int  #: N
    num_taps: int  #: K
    rank: int  #: of the time step dt, before its projection to the channels
    has_bias: bool  #: in the input and output projections
    has_conv_bias: bool

    def state_shapes(self, dtype: torch.dtype) -> tuple[StateShape, StateShape]:
        """The states of one layer. The ssm state is in float32: it is rounded after every step, and tokens should not
        depend on where steps end."""
        return (
            StateShape("conv", (self.num_taps - 1, self.num_channels), dtype),
            StateShape("ssm", (self.num_channels, self.num_states), torch.float32),
        )


@dataclass(frozen=True, slots=True)
class MambaWeights:
    """Weights of one layer, bound to their operators."""

    in_proj: Linear  #: [2 * I, hidden]: the convolution's input, then the gate
    conv: torch.Tensor  #: [I, 1, K]
    conv_bias: torch.Tensor | None  #: [I]
    x_proj: Linear  #: [rank + 2 * N, I]: dt before its projection, then B and C
    dt_proj: Linear  #: [I, rank] with bias
    a_log: torch.Tensor  #: [I, N]
    d: torch.Tensor  #: [I]
    out_proj: Linear  #: [hidden, I]
    kernels: StateKernels
    norms: tuple[RMSNorm, RMSNorm, RMSNorm] | None = None  #: of dt, B and C (Jamba)

    @classmethod
    def load(
        cls,
        weights: WeightSource,
        name: str,
        sizes: MambaSizes,
        norms: tuple[RMSNorm, RMSNorm, RMSNorm] | None = None,
    ) -> Self:
        """Takes the tensors of the layer `name`, under the names of Hugging Face checkpoints."""
        hidden, channels, rank = sizes.hidden, sizes.num_channels, sizes.rank
        return cls(
            in_proj=Linear.load(weights, f"{name}.in_proj", hidden, 2 * channels, bias=sizes.has_bias),
            conv=weights.take(f"{name}.conv1d.weight", channels, 1, sizes.num_taps),
            conv_bias=weights.take(f"{name}.conv1d.bias", channels) if sizes.has_conv_bias else None,
            x_proj=Linear.load(weights, f"{name}.x_proj", channels, rank + 2 * sizes.num_states, bias=False),
            dt_proj=Linear.load(weights, f"{name}.dt_proj", rank, channels, bias=True),
            a_log=weights.take(f"{name}.A_log", channels, sizes.num_states),
            d=weights.take(f"{name}.D", channels),
            out_proj=Linear.load(weights, f"{name}.out_proj", channels, hidden, bias=sizes.has_bias),
            kernels=weights.operators.state_kernels,
            norms=norms,
        )


class Mamba:
    """One Mamba layer; its two states live in the pages of the sequences."""

    def __init__(self, conv_id: int, ssm_id: int, weights: MambaWeights) -> None:
        """conv_id, ssm_id: ids of the two states, in the order of MambaSizes.state_shapes."""
        self.is_capturable = weights.kernels.is_capturable
        self._conv_id = conv_id
        self._ssm_id = ssm_id
        self._weights = weights
        self._taps = weights.conv[:, 0].t().contiguous()  # [K, I]
        self._a = -weights.a_log.float().exp()
        self._d = weights.d.float()

    def __call__(self, x: torch.Tensor, rotation: Rotation | None, batch: ForwardBatch) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]; advances both states of each sequence."""
        states, weights, kernels = batch.states, self._weights, self._weights.kernels
        assert states is not None
        convolved, gate = weights.in_proj(x).chunk(2, dim=-1)
        convolved = kernels.causal_conv(convolved, self._taps, weights.conv_bias, states.in_place(self._conv_id))
        rank = weights.x_proj(convolved)
        num_states = self._a.shape[1]
        dt, b, c = torch.split(rank, [rank.shape[1] - 2 * num_states, num_states, num_states], dim=-1)
        if weights.norms is not None:
            dt, b, c = (norm(part.contiguous()) for norm, part in zip(weights.norms, (dt, b, c), strict=True))
        in_place = states.in_place(self._ssm_id)
        scanned = kernels.selective_scan(convolved, weights.dt_proj(dt), b, c, gate, self._a, self._d, in_place)
        return weights.out_proj(scanned)
