"""Convolution and recurrence of a Mamba layer, in shapes of Jamba 1.5 mini: decodes, and one prompt."""

from collections.abc import Iterator

import torch

from benchmarks.kernels.case import Call, Case, Goal, Make
from engine.kernels.gpu import mamba
from engine.kernels.state_kernels import StatesInPlace

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


def _states(rows: int, tokens: int, shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> StatesInPlace:
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
