"""Selective state space layer (Mamba, Gu and Dao 2023): a short convolution over time, then a linear recurrence whose
coefficients depend on the token. Operators without kernels for it run plain torch: one loop over the tokens of the
longest chunk, all sequences at once.

T = tokens of the step, B = sequences, I = channels, N = numbers of state per channel, K = taps of the convolution.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F

from engine.attention.backend import ForwardBatch, IntArray, StateShape, StateStep
from engine.attention.rotation import Rotation
from engine.kernels.state_kernels import StateKernels
from engine.layers.linear import Linear
from engine.layers.norm import RMSNorm
from engine.layers.weights import WeightSource


@dataclass(frozen=True, slots=True)
class TokenOrder:
    """Which rows each token's convolution reads, and the tokens in the order of the recurrence; shared by all layers.

    The convolution's rows are the states of all sequences, K - 1 rows each, followed by the step's tokens.
    """

    taps: torch.Tensor  #: [K, T]
    kept: torch.Tensor  #: [B * (K - 1)]: rows that the next step's convolution will read
    by_time: torch.Tensor  #: [T]: the first token of every sequence, then the second ones, ...; longest sequence first
    bounds: tuple[tuple[int, int], ...]  #: half-open range of each time in by_time
    sequences: torch.Tensor  #: [B]: longest first

    @classmethod
    def of(cls, lengths: IntArray, num_taps: int, device: torch.device) -> Self:
        """lengths [B]: tokens of each sequence in the step."""
        num_states = num_taps - 1
        first_rows = np.cumsum(lengths) - lengths
        sequence_of = np.repeat(np.arange(len(lengths)), lengths)
        time_of = np.arange(len(sequence_of)) - first_rows[sequence_of]

        def rows(sequences: IntArray, times: IntArray) -> IntArray:
            """Times below zero lie before the step."""
            old = sequences * num_states + num_states + times
            return np.where(times < 0, old, len(lengths) * num_states + first_rows[sequences] + times)

        taps = np.stack([rows(sequence_of, time_of - num_states + tap) for tap in range(num_taps)])
        last = (lengths[:, None] - num_states + np.arange(num_states)).reshape(-1)
        kept = rows(np.repeat(np.arange(len(lengths)), num_states), last)
        longest_first = np.argsort(-lengths, kind="stable")
        rank_of = np.empty_like(longest_first)
        rank_of[longest_first] = np.arange(len(lengths))
        by_time = np.lexsort((rank_of[sequence_of], time_of))
        ends = np.cumsum(np.bincount(time_of)).tolist()
        return cls(
            taps=torch.from_numpy(taps).to(device),
            kept=torch.from_numpy(kept).to(device),
            by_time=torch.from_numpy(by_time).to(device),
            bounds=tuple(zip([0, *ends[:-1]], ends, strict=True)),
            sequences=torch.from_numpy(longest_first).to(device),
        )


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
    norms: tuple[RMSNorm, RMSNorm, RMSNorm] | None = None  #: of dt, B and C (Jamba)
    kernels: StateKernels | None = None

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
            norms=norms,
            kernels=weights.operators.state_kernels,
        )


class Mamba:
    """One Mamba layer; its two states live in the pages of the sequences."""

    def __init__(self, conv_id: int, ssm_id: int, weights: MambaWeights) -> None:
        """conv_id, ssm_id: ids of the two states, in the order of MambaSizes.state_shapes."""
        #: Without kernels the host puts the tokens into the order of the recurrence.
        self.is_capturable = weights.kernels is not None
        self._conv_id = conv_id
        self._ssm_id = ssm_id
        self._weights = weights
        self._taps = weights.conv[:, 0].t().contiguous()  # [K, I]
        self._a = -weights.a_log.float().exp()
        self._d = weights.d.float()

    def __call__(self, x: torch.Tensor, rotation: Rotation | None, batch: ForwardBatch) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]; advances both states of each sequence."""
        states, weights = batch.states, self._weights
        assert states is not None
        order = None if weights.kernels is not None else TokenOrder.of(states.lengths, len(self._taps), x.device)
        convolved, gate = weights.in_proj(x).chunk(2, dim=-1)
        if weights.kernels is not None:
            in_place = states.in_place(self._conv_id)
            convolved = weights.kernels.causal_conv(convolved, self._taps, weights.conv_bias, in_place)
        else:
            assert order is not None
            convolved = F.silu(self._convolve(convolved, states, order))
        rank = weights.x_proj(convolved)
        num_states = self._a.shape[1]
        dt, b, c = torch.split(rank, [rank.shape[1] - 2 * num_states, num_states, num_states], dim=-1)
        if weights.norms is not None:
            dt, b, c = (norm(part.contiguous()) for norm, part in zip(weights.norms, (dt, b, c), strict=True))
        dt = weights.dt_proj(dt)
        if weights.kernels is not None:
            in_place = states.in_place(self._ssm_id)
            scanned = weights.kernels.selective_scan(convolved, dt, b, c, gate, self._a, self._d, in_place)
            return weights.out_proj(scanned)
        assert order is not None
        dt = F.softplus(dt.float())
        scanned = self._scan(convolved.float(), dt, b.float(), c.float(), states, order)
        return weights.out_proj((scanned * F.silu(gate.float())).to(x.dtype))

    def _convolve(self, x: torch.Tensor, states: StateStep, order: TokenOrder) -> torch.Tensor:
        """x [T, I] -> [T, I]."""
        before = states.read(self._conv_id)  # [B, K - 1, I]
        rows = torch.cat((before.flatten(0, 1), x))
        states.write(self._conv_id, rows.index_select(0, order.kept).view_as(before))
        output = torch.zeros_like(x) if self._weights.conv_bias is None else self._weights.conv_bias.expand_as(x)
        for tap, weight in zip(order.taps, self._taps, strict=True):
            output = torch.addcmul(output, rows.index_select(0, tap), weight)
        return output

    def _scan(
        self,
        x: torch.Tensor,
        dt: torch.Tensor,
        b: torch.Tensor,
        c: torch.Tensor,
        states: StateStep,
        order: TokenOrder,
    ) -> torch.Tensor:
        """x, dt [T, I]; b, c [T, N]; all float32. h(t) = exp(dt A) h(t - 1) + dt b x; y = h c + D x."""
        before = states.read(self._ssm_id)
        state = before.index_select(0, order.sequences)  # [B, I, N]
        dt_t, b_t, c_t = (part.index_select(0, order.by_time) for part in (dt, b, c))
        input_t = (x * dt).index_select(0, order.by_time)
        output_t = torch.empty_like(x)
        for first, last in order.bounds:
            now = state[: last - first]
            now.mul_(torch.exp(dt_t[first:last, :, None] * self._a))
            now.addcmul_(input_t[first:last, :, None], b_t[first:last, None, :])
            torch.bmm(now, c_t[first:last, :, None], out=output_t[first:last, :, None])
        states.write(self._ssm_id, torch.empty_like(before).index_copy_(0, order.sequences, state))
        return torch.empty_like(x).index_copy_(0, order.by_time, output_t) + x * self._d
