"""Attention over pages in the shapes of Llama 3.1 8B (8 of 32 heads, D 128), Llama 3.2 1B (D 64) and DeepSeek V3 (128
heads over latents of 512 channels and 64 that turn), and the same by torch over contiguous keys and values."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.kernels.case import Call, Case, Goal, Make
from engine.kernels import gpu
from engine.kernels.step_kernels import AttentionOptions, SplitWorkspace

PAGE_TOKENS = 16
_ITEM_BYTES = 2
_MAX_PARTS = 33  #: two waves of an H200's 132 multiprocessors over 8 heads


@dataclass(frozen=True, slots=True)
class Shape:
    """One layer's attention in one step."""

    num_rows: int
    context: int
    queries: int  #: of each row, the last ones of its context
    num_heads: int = 32
    num_kv_heads: int = 8
    head_dim: int = 128
    value_dim: int | None = None  #: keys alone are stored, and values are their last that many channels

    @property
    def num_parts(self) -> int:
        """Keys and values, or keys alone."""
        return 2 if self.value_dim is None else 1

    @property
    def output_dim(self) -> int:
        """Channels of a head's result."""
        return self.value_dim or self.head_dim

    def __str__(self) -> str:
        what = "decode" if self.queries == 1 else f"{self.queries} queries"
        heads = f"{self.num_heads}/{self.num_kv_heads} x {self.head_dim}"
        return f"{self.num_rows} x {self.context}, {what}, {heads}"

    @property
    def num_bytes(self) -> int:
        stored = self.context * self.num_parts * self.num_kv_heads * self.head_dim
        computed = self.queries * self.num_heads * (self.head_dim + self.output_dim)
        return self.num_rows * (stored + computed) * _ITEM_BYTES

    @property
    def flops(self) -> int:
        """Each query reads its own token and those before it."""
        pairs = self.queries * self.context - self.queries * (self.queries - 1) // 2
        return 2 * self.num_rows * pairs * self.num_heads * (self.head_dim + self.output_dim)


@dataclass(frozen=True, slots=True)
class PagedStep:
    """The operands of a step on the device; pages in random order, as a server leaves them after a while."""

    query: torch.Tensor
    pages: torch.Tensor
    page_table: torch.Tensor
    slots: torch.Tensor
    context_lengths: torch.Tensor
    query_starts: torch.Tensor
    output: torch.Tensor
    options: AttentionOptions
    workspace: SplitWorkspace

    @classmethod
    def of(cls, shape: Shape, device: torch.device) -> "PagedStep":
        entries = -(-shape.context // PAGE_TOKENS)
        num_pages = shape.num_rows * entries
        page = (shape.num_parts, shape.num_kv_heads, PAGE_TOKENS, shape.head_dim)
        dtype = torch.float16 if device.type == "cpu" else torch.bfloat16  # what the interpreter computes rightly
        query = torch.randn(shape.num_rows * shape.queries, shape.num_heads, shape.head_dim, device=device).to(dtype)
        order = torch.randperm(num_pages, generator=torch.Generator().manual_seed(0)) + 1
        rows = torch.arange(shape.num_rows + 1, dtype=torch.int32, device=device)
        return cls(
            query,
            torch.randn(num_pages + 1, *page, device=device, dtype=dtype),
            order.view(shape.num_rows, entries).to(device, torch.int32),
            rows[:-1],
            torch.full_like(rows[:-1], shape.context),
            rows * shape.queries,
            query.new_empty(*query.shape[:2], shape.output_dim),
            AttentionOptions(shape.head_dim**-0.5),
            SplitWorkspace.allocate(max(shape.num_rows, 16), shape.num_heads, _MAX_PARTS, shape.output_dim, device),
        )


#: With the microseconds that section "Goals" of docs/kernels.md asks for on an H200, or the share of its limit.
DECODES: Sequence[tuple[Shape, Goal]] = (
    (Shape(1, 1024, 1), Goal(microseconds=8)),
    (Shape(1, 8192, 1), Goal(microseconds=14)),
    (Shape(1, 131072, 1), Goal(microseconds=166)),
    (Shape(16, 1024, 1), Goal(microseconds=22)),
    (Shape(64, 1024, 1), Goal(microseconds=78)),
    (Shape(256, 1024, 1), Goal(microseconds=300)),
    (Shape(16, 8192, 1), Goal(microseconds=150)),
    (Shape(64, 1024, 1, head_dim=64), Goal(microseconds=42)),
    (Shape(256, 1024, 1, head_dim=64), Goal(microseconds=150)),
    (Shape(1, 8192, 1, 128, 1, 576, 512), Goal(microseconds=20)),
    (Shape(64, 8192, 1, 128, 1, 576, 512), Goal(share=0.40)),
)
PROMPTS: Sequence[tuple[Shape, Goal]] = (
    (Shape(1, 8192, 8192), Goal(share=0.45)),
    (Shape(1, 10240, 2048), Goal(share=0.45)),
    (Shape(1, 8256, 64), Goal(microseconds=25)),
    (Shape(1, 8192, 8192, head_dim=64), Goal(share=0.40)),
    (Shape(1, 10240, 2048, 128, 1, 576, 512), Goal(share=0.30)),
)
QUICK: Sequence[tuple[Shape, Goal]] = (
    (Shape(2, 40, 1, 4, 2, 16), Goal(microseconds=8)),
    (Shape(1, 24, 9, 4, 2, 16), Goal(share=0.45)),
    (Shape(2, 40, 1, 4, 1, 24, 16), Goal(microseconds=8)),
)


def attention_cases(*, is_quick: bool) -> Iterator[Case]:
    for shape, goal in QUICK if is_quick else (*DECODES, *PROMPTS):
        peer = _torch(shape) if shape.value_dim is None else None
        yield Case("paged attention", str(shape), shape.num_bytes, shape.flops, goal, _ours(shape), peer)


def _ours(shape: Shape) -> Make:
    def make(device: torch.device) -> Call:
        s = PagedStep.of(shape, device)
        operands = (s.query, s.pages, s.page_table, s.slots, s.context_lengths)
        if shape.queries == 1:
            return lambda: gpu.attend_decode(*operands, s.output, s.options, s.workspace)
        bounds = (shape.queries, shape.context)
        return lambda: gpu.attend_mixed(*operands, s.query_starts, s.output, s.options, s.workspace, *bounds)

    return make


def _torch(shape: Shape) -> Make:
    """Keys and values of each row in one piece. For a chunk after a context, torch gets a mask of all pairs."""

    def make(device: torch.device) -> Call:
        def heads(count: int, tokens: int) -> torch.Tensor:
            return torch.randn(shape.num_rows, count, tokens, shape.head_dim, device=device, dtype=torch.bfloat16)

        query = heads(shape.num_heads, shape.queries)
        key, value = (heads(shape.num_kv_heads, shape.context) for _ in range(2))
        if shape.queries in (1, shape.context):
            is_causal = shape.queries > 1
            return lambda: scaled_dot_product_attention(query, key, value, is_causal=is_causal, enable_gqa=True)
        positions = torch.arange(shape.context, device=device)
        mask = positions <= positions[-shape.queries :, None]
        return lambda: scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)

    return make
