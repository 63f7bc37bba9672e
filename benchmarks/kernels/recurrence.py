"""Convolution and recurrences, decodes and prompts: of Mamba in shapes of Jamba 1.5 mini, of Mamba-2 in shapes of
Nemotron-H, of gated delta nets in shapes of Qwen3-Next-80B-A3B and of Kimi-Linear-48B-A3B."""

from collections.abc import Iterator

import torch

from benchmarks.kernels.case import Call, Case, Goal, Make
from engine.kernels.gpu import gated_delta, mamba, mamba2
from engine.kernels.state_kernels import DeltaWeights, ScanHeads, StatesInPlace

_ITEM_BYTES = 2
_TAPS = 4


def recurrence_cases(*, is_quick: bool) -> Iterator[Case]:
    channels, numbers = (24, 4) if is_quick else (8192, 16)
    for rows, tokens in ((3, 1), (1, 5)) if is_quick else ((64, 1), (1, 2048)):
        shape = f"{rows} x {tokens} tokens"
        # A prompt's recurrence goes token by token: its goal is a time, 0.3 microseconds for each.
        goal = Goal(share=0.80) if tokens == 1 else Goal(microseconds=0.3 * tokens)
        moved = 8 * rows * channels * numbers + rows * tokens * (4 * channels + 2 * numbers) * _ITEM_BYTES
        yield Case("recurrence", shape, moved, 0, goal, _scan(rows, tokens, channels, numbers))
        goal = Goal(microseconds=6) if tokens == 1 else Goal(share=0.75)
        moved = 2 * rows * (_TAPS - 1 + tokens) * channels * _ITEM_BYTES
        yield Case("convolution", shape, moved, 0, goal, _convolution(rows, tokens, channels))
    yield from _head_cases(is_quick=is_quick)


def _head_cases(*, is_quick: bool) -> Iterator[Case]:
    """States of heads. Prompts of 47 tokens go token by token, those of 48 in chunks: they should take as long."""
    heads, key_dim, value_dim = (2, 8, 8) if is_quick else (32, 128, 128)
    for rows, tokens in ((3, 1), (1, 50)) if is_quick else ((64, 1), (1, 47), (1, 48), (1, 2048), (8, 1024)):
        text = f"{rows} x {tokens} tokens"
        goal = Goal(share=0.80) if tokens == 1 else Goal(microseconds=20 + 0.1 * tokens * max(1, rows // 4))
        state_bytes = 8 * rows * heads * key_dim * value_dim
        moved = state_bytes + rows * tokens * heads * (2 * key_dim + 3 * value_dim) * _ITEM_BYTES
        for name, is_by_channel in (("gated delta", False), ("delta by channel", True)):
            if is_by_channel and tokens > 1:
                goal = Goal(microseconds=1.5 * (20 + 0.1 * tokens * max(1, rows // 4)))
            make = _delta(rows, tokens, heads, key_dim, value_dim, is_by_channel=is_by_channel)
            yield Case(name, text, moved, 0, goal, make)
    heads, channels, numbers = (2, 8, 4) if is_quick else (128, 64, 128)
    for rows, tokens in ((3, 1), (1, 50)) if is_quick else ((64, 1), (1, 47), (1, 48), (1, 2048), (8, 1024)):
        text = f"{rows} x {tokens} tokens"
        goal = Goal(share=0.80) if tokens == 1 else Goal(microseconds=20 + 0.1 * tokens * max(1, rows // 2))
        moved = 8 * rows * heads * channels * numbers + rows * tokens * 2 * (heads * channels + numbers) * _ITEM_BYTES
        yield Case("head scan", text, moved, 0, goal, _head_scan(rows, tokens, heads, channels, numbers))


def _states(rows: int, tokens: int, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> StatesInPlace:
    return StatesInPlace(
        pages=torch.zeros(rows, *shape, dtype=dtype, device=device),
        page_ids=torch.randperm(rows, device=device),
        starts=torch.ones(rows, dtype=torch.int32, device=device),
        query_starts=torch.arange(0, rows * tokens + 1, tokens, dtype=torch.int32, device=device),
        max_queries=tokens,
    )


def _scan(rows: int, tokens: int, channels: int, numbers: int) -> Make:
    def make(device: torch.device) -> Call:
        dtype = torch.float16 if device.type == "cpu" else torch.bfloat16
        x, dt, gate = torch.randn(3, rows * tokens, channels, device=device).to(dtype)
        b, c = torch.randn(2, rows * tokens, numbers, device=device).to(dtype)
        a, d = -torch.rand(channels, numbers, device=device), torch.rand(channels, device=device)
        states = _states(rows, tokens, (channels, numbers), torch.float32, device)
        return lambda: mamba.selective_scan(x, dt, b, c, gate, a, d, states)

    return make


def _convolution(rows: int, tokens: int, channels: int) -> Make:
    def make(device: torch.device) -> Call:
        dtype = torch.float16 if device.type == "cpu" else torch.bfloat16
        x = torch.randn(rows * tokens, channels, device=device).to(dtype)
        taps, bias = (
            torch.randn(_TAPS, channels, device=device).to(dtype),
            torch.randn(channels, device=device).to(dtype),
        )
        states = _states(rows, tokens, (_TAPS - 1, channels), dtype, device)
        return lambda: mamba.causal_conv(x, taps, bias, states)

    return make


def _delta(rows: int, tokens: int, heads: int, key_dim: int, value_dim: int, *, is_by_channel: bool) -> Make:
    def make(device: torch.device) -> Call:
        dtype = torch.float16 if device.type == "cpu" else torch.bfloat16
        key_heads = heads if is_by_channel else heads // 2
        count, num_steps = rows * tokens, heads * (key_dim if is_by_channel else 1)
        widths = (2 * key_heads * key_dim + heads * value_dim, heads * value_dim, num_steps, heads)
        qkv, gate, a, b = (torch.randn(count, width, device=device).to(dtype) for width in widths)
        weights = DeltaWeights(
            -0.1 * torch.rand(heads, device=device),
            torch.zeros(num_steps, device=device),
            torch.ones(value_dim, device=device),
            1e-6,
        )
        states = _states(rows, tokens, (heads, key_dim, value_dim), torch.float32, device)
        read = gated_delta.channel_delta if is_by_channel else gated_delta.gated_delta
        return lambda: read(qkv, gate, a, b, weights, states)

    return make


def _head_scan(rows: int, tokens: int, heads: int, channels: int, numbers: int) -> Make:
    def make(device: torch.device) -> Call:
        dtype = torch.float16 if device.type == "cpu" else torch.bfloat16
        count = rows * tokens
        x, dt = (torch.randn(count, width, device=device).to(dtype) for width in (heads * channels, heads))
        b, c = torch.randn(2, count, numbers, device=device).to(dtype)
        a, d, dt_bias = torch.rand(3, heads, device=device)
        states = _states(rows, tokens, (heads, channels, numbers), torch.float32, device)
        return lambda: mamba2.head_scan(x, dt, b, c, ScanHeads(-a, d, dt_bias, (0.0, 1e9)), states)

    return make
