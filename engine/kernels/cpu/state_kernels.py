"""The kernels of recurrent layers in C++ (causal_conv.cpp, selective_scan.cpp, head_scan.cpp, gated_norm.cpp,
gated_delta.cpp). CppStateKernels is a StateKernels.

Every result depends on its own sequence only, to the last bit: not on other sequences, steps or the number of threads.
"""

from collections.abc import Callable

import torch

from engine.kernels.cpu.functions import address
from engine.kernels.cpu.library import Library
from engine.kernels.state_kernels import DeltaWeights, ScanHeads, StatesInPlace


class CppStateKernels:
    """StateKernels over the built library."""

    is_capturable = False  #: there are no graphs on CPU

    def __init__(self, library: Library, dtype: torch.dtype) -> None:
        """dtype: of activations, float32 or bfloat16."""
        self._num_threads = library.num_threads
        self._causal_conv = library.function("causal_conv", dtype)
        self._gated_norm = library.function("gated_norm", dtype)
        self._head_scan = library.function("head_scan", dtype)
        self._selective_scan = library.function("selective_scan", dtype)
        self._gated_delta = library.function("gated_delta", dtype)
        self._channel_delta = library.function("channel_delta", dtype)

    def causal_conv(
        self,
        x: torch.Tensor,
        taps: torch.Tensor,
        bias: torch.Tensor | None,
        states: StatesInPlace,
        *,
        has_silu: bool = True,
    ) -> torch.Tensor:
        """As StateKernels.causal_conv; taps and states have the dtype of x."""
        num_taps, num_channels = taps.shape
        assert x.stride(1) == 1
        assert taps.is_contiguous()
        assert x.dtype == taps.dtype == states.pages.dtype
        assert bias is None or bias.dtype == x.dtype
        y = torch.empty((x.shape[0], num_channels), dtype=x.dtype)
        self._causal_conv(
            x.data_ptr(), x.stride(0), taps.data_ptr(), address(bias), *_addresses(states, num_taps - 1, num_channels),
            y.data_ptr(), num_channels, num_taps, has_silu, self._num_threads,
        )  # fmt: skip
        return y

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
        """As StateKernels.selective_scan; x, dt, b, c and gate have one dtype."""
        rows = x, dt, b, c, gate
        assert all(part.stride(1) == 1 and part.dtype == x.dtype for part in rows)
        assert a.is_contiguous()
        assert a.dtype == d.dtype == states.pages.dtype == torch.float32
        y = torch.empty(x.shape, dtype=x.dtype)
        self._selective_scan(
            *(number for part in rows for number in (part.data_ptr(), part.stride(0))), a.data_ptr(), d.data_ptr(),
            *_addresses(states, *a.shape), y.data_ptr(), *a.shape, self._num_threads,
        )  # fmt: skip
        return y

    def gated_delta(
        self,
        qkv: torch.Tensor,
        gate: torch.Tensor,
        a: torch.Tensor,
        b: torch.Tensor,
        weights: DeltaWeights,
        states: StatesInPlace,
    ) -> torch.Tensor:
        """As StateKernels.gated_delta; qkv, gate, a and b have one dtype."""
        return self._delta(self._gated_delta, (qkv, gate, a, b), weights, states)

    def channel_delta(
        self,
        qkv: torch.Tensor,
        gate: torch.Tensor,
        a: torch.Tensor,
        b: torch.Tensor,
        weights: DeltaWeights,
        states: StatesInPlace,
    ) -> torch.Tensor:
        """As StateKernels.channel_delta; qkv, gate, a and b have one dtype."""
        return self._delta(self._channel_delta, (qkv, gate, a, b), weights, states)

    def _delta(
        self,
        call: Callable[..., None],
        rows: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
        weights: DeltaWeights,
        states: StatesInPlace,
    ) -> torch.Tensor:
        """What gated_delta and channel_delta have in common. rows: qkv, gate, a, b."""
        qkv, gate = rows[:2]
        num_heads, key_dim, value_dim = states.pages.shape[1:]
        num_key_heads = (qkv.shape[1] - num_heads * value_dim) // (2 * key_dim)
        floats = weights.rates, weights.step_bias, weights.norm
        assert all(part.dtype == qkv.dtype and part.stride(1) == 1 for part in rows)
        assert all(part.dtype == torch.float32 and part.is_contiguous() for part in floats)
        assert states.pages.dtype == torch.float32
        y = torch.empty(gate.shape, dtype=qkv.dtype)
        call(
            *(number for part in rows for number in (part.data_ptr(), part.stride(0))),
            *(part.data_ptr() for part in floats), *_addresses(states, num_heads, key_dim, value_dim),
            y.data_ptr(), num_heads, num_key_heads, key_dim, value_dim, weights.eps, self._num_threads,
        )  # fmt: skip
        return y

    def head_scan(
        self,
        x: torch.Tensor,
        dt: torch.Tensor,
        b: torch.Tensor,
        c: torch.Tensor,
        heads: ScanHeads,
        states: StatesInPlace,
    ) -> torch.Tensor:
        """As StateKernels.head_scan; x, dt, b and c have one dtype."""
        num_heads, num_channels, num_numbers = states.pages.shape[1:]
        rows = x, dt, b, c
        assert all(part.stride(1) == 1 and part.dtype == x.dtype for part in rows)
        assert x.shape[1] == num_heads * num_channels
        assert heads.a.dtype == heads.d.dtype == heads.dt_bias.dtype == states.pages.dtype == torch.float32
        y = torch.empty(x.shape, dtype=x.dtype)
        self._head_scan(
            *(number for part in rows for number in (part.data_ptr(), part.stride(0))),
            heads.a.data_ptr(), heads.d.data_ptr(), heads.dt_bias.data_ptr(), *heads.step_limits,
            *_addresses(states, num_heads, num_channels, num_numbers), y.data_ptr(),
            num_heads, num_channels, b.shape[1] // num_numbers, num_numbers, self._num_threads,
        )  # fmt: skip
        return y

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
        """As StateKernels.gated_norm; x and gate have one dtype."""
        num_rows, num_channels = x.shape
        assert x.is_contiguous()
        assert gate.stride(1) == 1
        assert x.dtype == gate.dtype
        assert weight.dtype == torch.float32
        y = torch.empty_like(x)
        self._gated_norm(
            x.data_ptr(), gate.data_ptr(), gate.stride(0), weight.data_ptr(), y.data_ptr(),
            num_rows, num_groups, num_channels // num_groups, is_gated_first, eps, self._num_threads,
        )  # fmt: skip
        return y


def _addresses(states: StatesInPlace, *shape: int) -> tuple[int, ...]:
    """Arguments of the C++ functions: the fields of `States` in states.h."""
    pages, page_ids, starts, query_starts = states.pages, states.page_ids, states.starts, states.query_starts
    assert pages.shape[1:] == shape
    assert pages[0].is_contiguous()
    assert page_ids.dtype == torch.int64
    assert starts.dtype == query_starts.dtype == torch.int32
    assert all(rows.is_contiguous() for rows in (page_ids, starts, query_starts))
    pointers = page_ids.data_ptr(), starts.data_ptr(), query_starts.data_ptr()
    return pages.data_ptr(), pages.stride(0), *pointers, len(page_ids)
