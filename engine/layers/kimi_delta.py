"""Kimi delta attention (arXiv 2510.26692): a gated delta net whose states forget each channel of a key at its own rate,
and whose decay and output gate are products of few channels.

T = tokens of the step, H = heads, D = channels of a head's key and value, K = taps of the convolution.
"""

from dataclasses import dataclass

import torch

from engine.attention.backend import ForwardBatch, StateShape
from engine.attention.rotation import Rotation
from engine.kernels.state_kernels import DeltaWeights
from engine.layers.linear import Linear
from engine.layers.weights import WeightSource


@dataclass(frozen=True, slots=True)
class KimiDeltaSizes:
    """Sizes of one layer, read from a checkpoint's config."""

    hidden: int
    num_heads: int  #: H
    head_dim: int  #: D, also the channels that decay and output gate are products of
    num_taps: int  #: K
    norm_eps: float

    @property
    def channels(self) -> int:
        """H D."""
        return self.num_heads * self.head_dim

    def state_shapes(self, dtype: torch.dtype) -> tuple[StateShape, StateShape]:
        """The states of one layer. The matrices are in float32, as those of a gated delta net."""
        return (
            StateShape("conv", (self.num_taps - 1, 3 * self.channels), dtype),
            StateShape("delta", (self.num_heads, self.head_dim, self.head_dim), torch.float32),
        )


class KimiDelta:
    """The mixer of a layer; its two states live in the pages of the sequences."""

    def __init__(self, conv_id: int, weights: WeightSource, name: str, sizes: KimiDeltaSizes) -> None:
        """Takes all tensors of the layer `name`, under the names of published checkpoints. conv_id: id of the first of
        its two states, in the order of KimiDeltaSizes.state_shapes."""
        channels, rank, hidden = sizes.channels, sizes.head_dim, sizes.hidden
        self._conv_id = conv_id
        self._parts = [3 * channels, rank, rank, sizes.num_heads]
        self._in_proj = Linear.fused(
            weights,
            [f"{name}.{part}_proj" for part in ("q", "k", "v", "f_a", "g_a", "b")],
            hidden,
            [channels, channels, channels, *self._parts[1:]],
            bias=False,
        )
        self._decay = Linear.load(weights, f"{name}.f_b_proj", rank, channels, bias=False)
        self._gate = Linear.load(weights, f"{name}.g_b_proj", rank, channels, bias=False)
        self._out_proj = Linear.load(weights, f"{name}.o_proj", channels, hidden, bias=False)
        taps = [weights.take(f"{name}.{part}_conv1d.weight", channels, 1, sizes.num_taps)[:, 0] for part in "qkv"]
        self._taps = torch.cat(taps).t().contiguous()  # [K, 3 H D]
        rates = weights.take(f"{name}.A_log", 1, 1, sizes.num_heads, 1, dtype=torch.float32)
        self._delta = DeltaWeights(
            rates=-rates.flatten().exp(),
            step_bias=weights.take(f"{name}.dt_bias", channels, dtype=torch.float32),
            norm=weights.take(f"{name}.o_norm.weight", sizes.head_dim).float(),
            eps=sizes.norm_eps,
        )
        self._kernels = weights.operators.state_kernels
        self.is_capturable = self._kernels.is_capturable

    def __call__(self, x: torch.Tensor, rotation: Rotation | None, batch: ForwardBatch) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]; advances both states of each sequence."""
        states, kernels = batch.states, self._kernels
        assert states is not None
        qkv, decay, gate, strength = self._in_proj(x).split(self._parts, dim=1)
        qkv = kernels.causal_conv(qkv, self._taps, None, states.in_place(self._conv_id))
        decay, gate = self._decay(decay.contiguous()), self._gate(gate.contiguous())
        delta_states = states.in_place(self._conv_id + 1)
        return self._out_proj(kernels.channel_delta(qkv, gate, decay, strength, self._delta, delta_states))
