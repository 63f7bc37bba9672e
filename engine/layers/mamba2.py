"""State space layer of Mamba-2 (Dao and Gu 2024): a short convolution over time, then a linear recurrence of heads
whose channels share one decay per token, and a gated norm.

T = tokens of the step, H = heads, P = channels of a head, I = H P, G = groups of heads with the same B and C, S =
numbers of state per channel, K = taps of the convolution, C = I + 2 G S: channels of the convolution.
"""

from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F

from engine.attention.backend import ForwardBatch, StateShape
from engine.attention.rotation import Rotation
from engine.kernels.state_kernels import ScanHeads, StateKernels
from engine.layers.linear import Linear
from engine.layers.weights import WeightSource


@dataclass(frozen=True, slots=True)
class Mamba2Sizes:
    """Sizes and settings of one layer, read from a checkpoint's config."""

    hidden: int
    num_heads: int  #: H
    head_dim: int  #: P
    num_groups: int  #: G
    num_states: int  #: S
    num_taps: int  #: K
    step_limits: tuple[float, float]
    norm_eps: float
    has_bias: bool = False  #: in the input projection
    has_output_bias: bool = False
    has_conv_bias: bool = True
    has_norm: bool = True  #: at the end; without one the output is only gated
    is_gated_first: bool = True  #: before the norm

    @property
    def num_channels(self) -> int:
        """I."""
        return self.num_heads * self.head_dim

    @property
    def num_convolved(self) -> int:
        """C."""
        return self.num_channels + 2 * self.num_groups * self.num_states

    def state_shapes(self, dtype: torch.dtype) -> tuple[StateShape, StateShape]:
        """The states of one layer. The ssm state is in float32: it is rounded after every step, and tokens should not
        depend on where steps end."""
        return (
            StateShape("conv", (self.num_taps - 1, self.num_convolved), dtype),
            StateShape("ssm", (self.num_heads, self.head_dim, self.num_states), torch.float32),
        )


@dataclass(frozen=True, slots=True)
class Mamba2Weights:
    """Weights of one layer, bound to their operators."""

    in_proj: Linear  #: [I + C + H, hidden]: the gate, the convolution's input (x, B, C), dt
    taps: torch.Tensor  #: [K, C]
    conv_bias: torch.Tensor | None  #: [C]
    heads: ScanHeads
    norm: torch.Tensor | None  #: [I] float32
    out_proj: Linear  #: [hidden, I]
    kernels: StateKernels

    @classmethod
    def load(cls, weights: WeightSource, name: str, sizes: Mamba2Sizes) -> Self:
        """Takes the tensors of the layer `name`, under the names of Hugging Face checkpoints."""
        channels, convolved, num_heads = sizes.num_channels, sizes.num_convolved, sizes.num_heads
        a_log, d, dt_bias = (weights.take(f"{name}.{part}", num_heads).float() for part in ("A_log", "D", "dt_bias"))
        return cls(
            in_proj=Linear.load(
                weights, f"{name}.in_proj", sizes.hidden, channels + convolved + num_heads, bias=sizes.has_bias
            ),
            taps=weights.take(f"{name}.conv1d.weight", convolved, 1, sizes.num_taps)[:, 0].t().contiguous(),
            conv_bias=weights.take(f"{name}.conv1d.bias", convolved) if sizes.has_conv_bias else None,
            heads=ScanHeads(-a_log.exp(), d, dt_bias, sizes.step_limits),
            norm=weights.take(f"{name}.norm.weight", channels).float() if sizes.has_norm else None,
            out_proj=Linear.load(weights, f"{name}.out_proj", channels, sizes.hidden, bias=sizes.has_output_bias),
            kernels=weights.operators.state_kernels,
        )


class Mamba2:
    """One Mamba-2 layer; its two states live in the pages of the sequences."""

    def __init__(
        self,
        conv_id: int,
        ssm_id: int,
        sizes: Mamba2Sizes,
        weights: Mamba2Weights,
        factors: tuple[float, float, float, float, float] | None = None,
    ) -> None:
        """conv_id, ssm_id: ids of the two states, in the order of Mamba2Sizes.state_shapes. factors: of the gate, x, B,
        C and dt (Falcon-H1)."""
        self.is_capturable = weights.kernels.is_capturable
        self._conv_id = conv_id
        self._ssm_id = ssm_id
        channels, numbers = sizes.num_channels, sizes.num_groups * sizes.num_states
        self._parts = [channels, sizes.num_convolved, sizes.num_heads]
        self._convolved_parts = [channels, numbers, numbers]
        self._sizes = sizes
        self._weights = weights
        self._factors: torch.Tensor | None = None  # [I + C + H]
        if factors is not None:
            lengths = torch.tensor([channels, *self._convolved_parts, sizes.num_heads])
            self._factors = torch.tensor(factors).repeat_interleave(lengths).to(weights.taps)

    def __call__(self, x: torch.Tensor, rotation: Rotation | None, batch: ForwardBatch) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]; advances both states of each sequence."""
        states, weights, kernels = batch.states, self._weights, self._weights.kernels
        assert states is not None
        projected = weights.in_proj(x)
        if self._factors is not None:
            projected *= self._factors
        gate, convolved, dt = projected.split(self._parts, dim=-1)
        convolved = kernels.causal_conv(convolved, weights.taps, weights.conv_bias, states.in_place(self._conv_id))
        inputs, b, c = convolved.split(self._convolved_parts, dim=-1)
        scanned = kernels.head_scan(inputs, dt, b, c, weights.heads, states.in_place(self._ssm_id))
        if weights.norm is None:
            return weights.out_proj(scanned * F.silu(gate))
        sizes = self._sizes
        return weights.out_proj(
            kernels.gated_norm(
                scanned, gate, weights.norm, sizes.norm_eps, sizes.num_groups, is_gated_first=sizes.is_gated_first
            )
        )
