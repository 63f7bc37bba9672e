"""Kernels of recurrent layers that read and write states where they lie: in pages.

engine/kernels/reference/state_kernels.py (plain torch: the meaning), engine/kernels/gpu/state_kernels.py (Triton) and
CppStateKernels in engine/kernels/cpu (C++) implement the protocol. Padding rows have page -1: nothing is read for them,
and their output is zero.

T = tokens of the step, B = sequences, I = channels, S = numbers of state per channel, K = taps of the convolution,
N = pages.
"""

from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True, slots=True)
class StatesInPlace:
    """The states of one layer for the sequences of a step; made by StatePages."""

    pages: torch.Tensor  #: [N, *shape of the state]: strided pages, each state contiguous
    page_ids: torch.Tensor  #: [B] int64, all distinct, or -1
    starts: torch.Tensor  #: [B] int32: a sequence that starts at 0 has no state yet, whatever its page holds
    query_starts: torch.Tensor  #: [B + 1] int32: tokens of sequence b are rows [query_starts[b], query_starts[b + 1])
    max_queries: int  #: largest number of tokens of a sequence


@dataclass(frozen=True, slots=True)
class DeltaWeights:
    """What a gated delta net knows of its heads; H = value heads, V = channels of a value. All float32."""

    rates: torch.Tensor  #: [H], negative: the state decays by exp(rate * softplus(a + step_bias))
    step_bias: torch.Tensor  #: [H]; of channel_delta [H D]
    norm: torch.Tensor  #: [V]: scales of the norm of what a query reads
    eps: float  #: of that norm


@dataclass(frozen=True, slots=True)
class ScanHeads:
    """What the heads of a Mamba-2 layer do not compute from tokens. H = heads."""

    a: torch.Tensor  #: [H] float32, negative: the decay of the state
    d: torch.Tensor  #: [H] float32: the share of the input in the output
    dt_bias: torch.Tensor  #: [H] float32
    step_limits: tuple[float, float]  #: least and largest step


class StateKernels(Protocol):
    """Kernels of recurrent layers. A result depends on its own sequence only, and not on how its tokens were divided
    into steps, but for the last bits of long prompts on CUDA."""

    @property
    def is_capturable(self) -> bool:
        """Whether calls can be captured as a CUDA graph: they queue work and do not read numbers on the host."""
        ...

    def causal_conv(
        self,
        x: torch.Tensor,
        taps: torch.Tensor,
        bias: torch.Tensor | None,
        states: StatesInPlace,
        *,
        has_silu: bool = True,
    ) -> torch.Tensor:
        """Each channel's convolution over time, or silu of it, [T, I], newly allocated. Updates the states.

        x [T, I], strided rows; taps [K, I], the last tap is for the token itself; bias [I]; states: the last K - 1
        inputs, [N, K - 1, I].
        """
        ...

    def selective_scan(
        self,
        x: torch.Tensor,
        dt: torch.Tensor,
        b: torch.Tensor,
        c: torch.Tensor,
        gate: torch.Tensor,
        a: torch.Tensor,
        d: torch.Tensor,
        states: StatesInPlace,
    ) -> torch.Tensor:
        """The recurrence of Mamba (Gu and Dao 2023): h(t) = exp(s a) h(t - 1) + s b x with s = softplus(dt); returns
        (h c + d x) silu(gate), [T, I] in the dtype of x, newly allocated. Updates the states.

        x, dt, gate [T, I] and b, c [T, S], strided rows; a [I, S] and d [I] float32; states [N, I, S] float32.
        """
        ...

    def gated_delta(
        self,
        qkv: torch.Tensor,
        gate: torch.Tensor,
        a: torch.Tensor,
        b: torch.Tensor,
        weights: DeltaWeights,
        states: StatesInPlace,
    ) -> torch.Tensor:
        """The gated delta rule (Yang et al. 2024), with H value heads, G key heads, D channels of a key and V of a
        value; H / G consecutive value heads share a key head. Per value head and token, with q and k of length one:

        S'(t) = exp(rate softplus(a + step_bias)) S(t - 1); S(t) = S'(t) + k (sigmoid(b) (v - S'(t)^T k))^T. Returns
        rms_norm(S(t)^T q / sqrt(D)) silu(gate), [T, H V] in the dtype of qkv, newly allocated. Updates the states.

        qkv [T, 2 G D + H V]: queries, keys, values; gate [T, H V]; a, b [T, H]: all with strided rows; states
        [N, H, D, V] float32.
        """
        ...

    def channel_delta(
        self,
        qkv: torch.Tensor,
        gate: torch.Tensor,
        a: torch.Tensor,
        b: torch.Tensor,
        weights: DeltaWeights,
        states: StatesInPlace,
    ) -> torch.Tensor:
        """Kimi delta attention (arXiv 2510.26692): gated_delta with a decay for every channel of a key and a sigmoid in
        place of silu. H heads of D channels of a key and V of a value.

        Row d of S'(t) is exp(rate softplus(a_d + step_bias_d)) times that of S(t - 1). Returns
        rms_norm(S(t)^T q / sqrt(D)) sigmoid(gate), [T, H V] in the dtype of qkv, newly allocated. Updates the states.

        qkv [T, 2 H D + H V], gate [T, H V], a [T, H D], b [T, H]: all with strided rows; states [N, H, D, V] float32.
        """
        ...

    def head_scan(
        self,
        x: torch.Tensor,
        dt: torch.Tensor,
        b: torch.Tensor,
        c: torch.Tensor,
        heads: ScanHeads,
        states: StatesInPlace,
    ) -> torch.Tensor:
        """The recurrence of Mamba-2 (Dao and Gu 2024), for H heads of P channels whose b and c are those of G groups of
        consecutive heads: h(t) = exp(s a) h(t - 1) + s x b^T with s = softplus(dt + dt_bias) within the limits; returns
        h c + d x, [T, H P] in the dtype of x, newly allocated. Updates the states.

        x [T, H P], dt [T, H] and b, c [T, G S], strided rows; states [N, H, P, S] float32.
        """
        ...

    def gated_norm(
        self,
        x: torch.Tensor,
        gate: torch.Tensor,
        weight: torch.Tensor,
        eps: float,
        num_groups: int,
        *,
        is_gated_first: bool,
    ) -> torch.Tensor:
        """weight * norm(x silu(gate)) if is_gated_first, else weight * norm(x) silu(gate): [T, I] in the dtype of x,
        newly allocated. norm divides each of the groups of channels by its root mean square, in float32.

        x [T, I], contiguous; gate [T, I], strided rows; weight [I] float32.
        """
        ...
