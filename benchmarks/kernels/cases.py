"""Everything but attention, products, experts and recurrence, in shapes of Llama 3.1 8B: heads into pages, whole pages,
norms, activations, sampling."""

from collections.abc import Iterator

import torch

from benchmarks.kernels.attention import PAGE_TOKENS, attention_cases
from benchmarks.kernels.case import Call, Case, Goal, Make
from benchmarks.kernels.experts import expert_cases
from benchmarks.kernels.products import product_cases
from benchmarks.kernels.quantised_products import quantised_cases
from benchmarks.kernels.recurrence import recurrence_cases
from engine.kernels import gpu
from engine.kernels.gpu import activation, norm
from engine.kernels.step_kernels import SamplingWorkspace

_ITEM_BYTES = 2


def all_cases(*, is_quick: bool) -> Iterator[Case]:
    """Quick: shapes so small that Triton's interpreter runs them."""
    yield from attention_cases(is_quick=is_quick)
    yield from product_cases(is_quick=is_quick)
    yield from expert_cases(is_quick=is_quick)
    yield from _store_cases(is_quick=is_quick)
    yield from _page_cases(is_quick=is_quick)
    yield from _row_cases(is_quick=is_quick)
    yield from recurrence_cases(is_quick=is_quick)
    yield from _sampling_cases(is_quick=is_quick)
    yield from quantised_cases(is_quick=is_quick)


def _dtype(device: torch.device) -> torch.dtype:
    return torch.float16 if device.type == "cpu" else torch.bfloat16


def _store_cases(*, is_quick: bool) -> Iterator[Case]:
    heads, kv_heads, size = (4, 2, 16) if is_quick else (32, 8, 128)
    for tokens, goal in ((256, Goal(microseconds=4)), (2048, Goal(share=0.75))):
        tokens = 8 if is_quick else tokens
        moved = 2 * tokens * (heads + 2 * kv_heads) * size * _ITEM_BYTES + 4 * tokens * size
        make = _store(tokens, heads, kv_heads, size)
        yield Case("heads into pages", f"{tokens} tokens", moved, 0, goal, make, is_warm=True)


def _store(tokens: int, heads: int, kv_heads: int, size: int) -> Make:
    def make(device: torch.device) -> Call:
        qkv = torch.randn(tokens, heads + 2 * kv_heads, size, device=device).to(_dtype(device))
        cos, sin = torch.rand(2, tokens, size // 2, device=device)
        pages = torch.zeros(tokens // PAGE_TOKENS + 2, 2, kv_heads, PAGE_TOKENS, size, device=device, dtype=qkv.dtype)
        places = torch.randperm(tokens, device=device)
        return lambda: gpu.store_heads(qkv, cos, sin, None, None, 1e-5, pages, places)

    return make


def _page_cases(*, is_quick: bool) -> Iterator[Case]:
    count, words = (3, 64) if is_quick else (64, 2**18)  # of 2 MiB: 16 tokens of all layers
    moved = 2 * count * words * 8

    def make_copy(device: torch.device) -> Call:
        pages = torch.randint(2**62, (2 * count, words), device=device)
        order = torch.randperm(2 * count, device=device)
        return lambda: gpu.copy_pages(pages, order[:count], order[count:])

    def make_gather(device: torch.device) -> Call:
        pages = torch.randint(2**62, (2 * count, words), device=device)
        staging = torch.empty(count, words, dtype=torch.int64, device=device)
        order = torch.randperm(2 * count, device=device)[:count]
        return lambda: gpu.gather_pages(pages, order, staging)

    yield Case("copy of pages", f"{count} of {words * 8} bytes", moved, 0, Goal(share=0.85), make_copy)
    yield Case("gathering of pages", f"{count} of {words * 8} bytes", moved, 0, Goal(share=0.80), make_gather)


def _row_cases(*, is_quick: bool) -> Iterator[Case]:
    hidden, ffn = (64, 96) if is_quick else (4096, 14336)
    for rows, goal in ((64, Goal(microseconds=2.5)), (2048, Goal(share=0.80))):
        rows = 2 if is_quick else rows
        moved = 4 * rows * hidden * _ITEM_BYTES
        yield Case("addition and RMS norm", f"{rows} x {hidden}", moved, 0, goal, _norm(rows, hidden), is_warm=True)
    for rows, silu_goal in ((64, None), (2048, Goal(share=0.85))):
        rows = 2 if is_quick else rows
        moved = 3 * rows * ffn * _ITEM_BYTES
        yield Case("silu and product", f"{rows} x {ffn}", moved, 0, silu_goal, _silu(rows, ffn), is_warm=True)


def _norm(rows: int, hidden: int) -> Make:
    def make(device: torch.device) -> Call:
        stream, update = torch.randn(2, rows, hidden, device=device).to(_dtype(device))
        weight = torch.ones(hidden, device=device, dtype=stream.dtype)
        return lambda: norm.rms_norm(stream, update, weight, 1e-5)

    return make


def _silu(rows: int, ffn: int) -> Make:
    def make(device: torch.device) -> Call:
        x = torch.randn(rows, 2 * ffn, device=device).to(_dtype(device))
        return lambda: activation.silu_mul(x)

    return make


#: temperature, top-k, top-p, min-p
_SAMPLING: dict[str, tuple[float, int, float, float]] = {
    "greedy": (0.0, 0, 1.0, 0.0),
    "temperature": (0.8, 0, 1.0, 0.0),
    "top-k 50, top-p 0.9": (0.8, 50, 0.9, 0.0),
    "top-p 0.9": (0.8, 0, 0.9, 0.0),
    "min-p 0.05": (0.8, 0, 1.0, 0.05),
}


def _sampling_cases(*, is_quick: bool) -> Iterator[Case]:
    vocab_size = 300 if is_quick else 128256
    for rows in (1, 256):
        rows = 1 if is_quick else rows
        moved = rows * vocab_size * 4
        for name, values in _SAMPLING.items():
            # 0.75 of reading the logits once; three times as long with truncation.
            goal = Goal(microseconds=15) if rows == 1 else Goal(share=0.75 if name == "greedy" else 0.25)
            yield Case("sampling", f"{rows} rows, {name}", moved, 0, goal, _sampling(rows, vocab_size, values))
        goal = Goal(microseconds=15) if rows == 1 else Goal(share=0.60)
        yield Case("log probabilities", f"{rows} rows, 20 likeliest", moved, 0, goal, _logprobs(rows, vocab_size))


def _logits(rows: int, vocab_size: int, device: torch.device) -> torch.Tensor:
    """Logits of peaked and of flat rows: 5 to 5,000 tokens have 0.9 of the mass."""
    widths = torch.linspace(1.5, 4.0, rows, device=device)[:, None]
    return torch.randn(rows, vocab_size, device=device) * widths


def _sampling(rows: int, vocab_size: int, values: tuple[float, int, float, float]) -> Make:
    def make(device: torch.device) -> Call:
        logits = _logits(rows, vocab_size, device)
        temperature, top_k, top_p, min_p = values

        def column(value: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.full((rows,), value, dtype=dtype, device=device)

        temperatures = column(temperature)
        truncation = column(top_k, torch.int32), column(top_p), column(min_p)
        numbers = torch.arange(rows, device=device), torch.zeros(rows, dtype=torch.int64, device=device)
        token_ids = torch.empty(rows, dtype=torch.int64, device=device)
        workspace = SamplingWorkspace.allocate(rows, vocab_size, device)
        return lambda: gpu.sample(logits, temperatures, *truncation, *numbers, token_ids, workspace)

    return make


def _logprobs(rows: int, vocab_size: int) -> Make:
    def make(device: torch.device) -> Call:
        logits = _logits(rows, vocab_size, device)
        token_ids = torch.zeros(rows, dtype=torch.int64, device=device)
        chosen, top = torch.empty(rows, device=device), torch.empty(rows, 20, device=device)
        top_ids = torch.empty(rows, 20, dtype=torch.int64, device=device)
        workspace = SamplingWorkspace.allocate(rows, vocab_size, device)
        return lambda: gpu.top_logprobs(logits, token_ids, chosen, top_ids, top, workspace)

    return make
