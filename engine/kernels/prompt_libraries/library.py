"""What a library of prompt attention is to the engine: it takes a case (heads, pages, options of a layer), then the
rows of a step, then each layer's tensors.

T = tokens of the step's prompts, B = rows, S = slots, H, K = query and key/value heads, D = head dimension, N = pages,
P = tokens in a page.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

#: query [T, H, D] with strided rows, pages [N, 2 (key, value), K, P, D] strided, output [T, H, D] contiguous: written.
#: Queues one layer's attention.
AttendPrompts = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]


@dataclass(frozen=True, slots=True)
class PromptCase:
    """All that decides which kernel a layer needs. Layers with equal cases differ in addresses only."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    page_tokens: int
    dtype: torch.dtype  #: of queries and outputs
    page_dtype: torch.dtype  #: of keys and values in pages
    scale: float  #: factor on query times key
    window: int | None  #: tokens that a query reads, including its own; None: its whole context
    softcap: float | None
    has_sinks: bool
    has_chunks: bool = False  #: a query reads the chunk of the context that it lies in
    has_latents: bool = False  #: pages hold keys alone, and values are channels of them

    def __str__(self) -> str:
        reach = "whole contexts" if self.window is None else f"a window of {self.window}"
        return f"{self.num_heads} heads, {self.num_kv_heads} of keys, {self.head_dim} channels, {reach}"


@dataclass(frozen=True, slots=True)
class PromptRows:
    """The sequences of a step that compute more than single tokens, on the device, and their lengths on the host. The
    tokens of a row are the last ones of its context. No row is padding."""

    slots: torch.Tensor  #: [B] int32: rows of the page table
    context_lengths: torch.Tensor  #: [B] int32, including the step's tokens
    query_starts: torch.Tensor  #: [B + 1] int32: first token of each row
    queries: NDArray[np.int64]  #: [B], on the host: tokens of each row
    contexts: NDArray[np.int64]  #: [B], on the host: the same as context_lengths

    @property
    def max_queries(self) -> int:
        """The largest number of tokens of a row."""
        return int(self.queries.max())

    @property
    def max_context(self) -> int:
        """The longest context."""
        return int(self.contexts.max())


class PromptKernel(Protocol):
    """A library's attention of one case."""

    def begin(self, rows: PromptRows, page_table: torch.Tensor) -> AttendPrompts:
        """Prepare a step over these rows, once for all layers of the case and layer type. page_table [S, entries]
        int32. Does not wait for the device. Valid for one step; at most two steps are in flight at once."""
        ...


class PromptLibrary(Protocol):
    """An installed library on one device."""

    @property
    def name(self) -> str:
        """As in EngineConfig.prompt_attention."""
        ...

    def why_not(self, case: PromptCase) -> str | None:
        """Why the library does not compute this case; None: it does."""
        ...

    def bind(self, case: PromptCase) -> PromptKernel:
        """The kernel of a case. May allocate a workspace."""
        ...


def unsupported_pages(case: PromptCase) -> str | None:
    """What no library computes, or not with documented arguments; None: nothing of that."""
    if case.page_dtype not in (torch.bfloat16, torch.float16) or case.dtype != case.page_dtype:
        kinds = (str(kind).removeprefix("torch.") for kind in (case.dtype, case.page_dtype))
        return "queries in {} and pages in {} (both must have one type of 16 bits)".format(*kinds)
    if case.has_sinks:
        return "attention sinks"
    if case.has_chunks:
        return "attention in chunks"
    if case.has_latents:
        return "values that are channels of the keys"
    return None
