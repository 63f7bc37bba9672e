"""Steps of prompts over seeded random pages: to compare a library of prompt attention with our kernel, and to time
both.

T = tokens, B = rows, H, K = query and key/value heads, D = head dimension, N = pages, P = tokens in a page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engine.kernels.prompt_libraries import PromptCase, PromptRows

#: Spread of scores: few tokens have most of a query's softmax, so a single one that is missing or too many shows.
_SCORE_SPREAD = 3.0


@dataclass(frozen=True, slots=True)
class PromptTrial:
    """The inputs of one layer."""

    query: torch.Tensor  #: [T, H, D], strided as in a step
    pages: torch.Tensor  #: [N, 2, K, P, D], strided as in a pool
    page_table: torch.Tensor  #: [B, entries] int32
    rows: PromptRows

    @classmethod
    def make(
        cls,
        case: PromptCase,
        lengths: Sequence[tuple[int, int]],
        max_context: int,
        device: torch.device,
        *,
        garbage: float = 0.0,
        max_pages: int | None = None,
    ) -> "PromptTrial":
        """lengths: tokens of the step and of the context of each row. The last two rows share the pages before their
        tokens. garbage: what the pages hold where no query of a row may read: behind contexts and before windows.
        max_pages: rows share pages beyond so many; then there is no garbage."""
        generator = torch.Generator(device).manual_seed(0)
        order = np.random.default_rng(0)
        page_tokens = case.page_tokens
        counts = [-(-context // page_tokens) for _, context in lengths]
        num_pages = min(sum(counts), max_pages or sum(counts))
        ids = order.permutation(num_pages) + 1  # no row has page 0
        entries = np.zeros((len(lengths), -(-max_context // page_tokens)), np.int64)
        for row, (first, count) in enumerate(zip(accumulate(counts, initial=0), counts, strict=False)):
            entries[row, :count] = ids[np.arange(first, first + count) % num_pages]
        if len(lengths) > 1:
            num_shared = min(context - queries for queries, context in lengths[-2:]) // page_tokens
            entries[-1, :num_shared] = entries[-2, :num_shared]

        shape = (2, case.num_kv_heads, page_tokens, case.head_dim)
        pool = torch.full((num_pages + 1, 2, *shape), garbage, dtype=case.page_dtype, device=device)
        pages = pool[:, 1]  # of the second of two layers
        if max_pages is not None:
            pages.normal_(generator=generator)
        else:
            for row, (queries, context) in enumerate(lengths):
                first = 0 if case.window is None else max(0, context - queries - case.window + 1)
                tokens = np.arange(first, context)
                size = (len(tokens), 2, case.num_kv_heads, case.head_dim)
                values = torch.randn(size, generator=generator, device=device).to(case.page_dtype)
                page_ids = torch.from_numpy(entries[row, tokens // page_tokens]).to(device)
                pages[page_ids, :, :, torch.from_numpy(tokens % page_tokens).to(device)] = values

        num_tokens = sum(queries for queries, _ in lengths)
        num_heads = case.num_heads + 2 * case.num_kv_heads
        heads = torch.randn((num_tokens, num_heads, case.head_dim), generator=generator, device=device)
        heads *= _SCORE_SPREAD / (case.scale * case.head_dim**0.5)
        slots = order.permutation(len(lengths))
        table = np.zeros(entries.shape, np.int32)
        table[slots] = entries
        num_queries, contexts = np.array(lengths, np.int64).T

        def on_device(values: NDArray[Any]) -> torch.Tensor:
            return torch.from_numpy(values.astype(np.int32)).to(device)

        starts = np.concatenate(([0], num_queries.cumsum()))
        rows = PromptRows(on_device(slots), on_device(contexts), on_device(starts), num_queries, contexts)
        return cls(heads.to(case.dtype)[:, : case.num_heads], pages, on_device(table), rows)

    def new_output(self) -> torch.Tensor:
        """[T, H, D], not a number until it is written."""
        return torch.full(self.query.shape, float("nan"), dtype=self.query.dtype, device=self.query.device)


def checked_lengths(case: PromptCase, max_context: int) -> list[tuple[int, int]]:
    """Tokens and contexts of rows of many kinds: single tokens, whole prompts, ends of prompts, at the ends of pages
    and elsewhere, within the window and behind it. Those that are too long are cut."""
    behind = (case.window or 0) + 200
    lengths = [(1, 1), (2, 2), (17, 17), (5, 3 * case.page_tokens), (64, 300), (3, 700)]
    lengths += [(130, 130), (1, behind), (40, behind), (130, behind + 7)]
    contexts = [min(context, max_context) for _, context in lengths]
    return [(min(queries, context), context) for (queries, _), context in zip(lengths, contexts, strict=True)]
