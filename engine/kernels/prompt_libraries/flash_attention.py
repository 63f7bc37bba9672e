"""Attention of prompts by FlashAttention 3 (module flash_attn_interface): flash_attn_with_kvcache over a page table.

It takes pages as [N, P, K, D] with any strides whose last one is 1, a page table [B, entries] int32 and pages of any
number of tokens. A window's left side counts the tokens before the query, without its own.
"""

from importlib import import_module
from typing import Any

import torch

from engine.kernels.prompt_libraries.library import AttendPrompts, PromptCase, PromptRows, unsupported_pages

#: The kernels of Hopper; those of other devices are other programs under the same name.
_CAPABILITY = (9, 0)
_MAX_HEAD_DIM = 256


class FlashAttention:
    """The PromptLibrary of FlashAttention 3."""

    name = "flash-attention"
    module_name = "flash_attn_interface"
    package_name = "flash_attn_3"

    def __init__(self, device: torch.device) -> None:
        """Imports the library, which loads its kernels."""
        self._module: Any = import_module(self.module_name)

    @staticmethod
    def why_not_on(capability: tuple[int, int]) -> str | None:
        """Why devices of that compute capability are not served; None: they are."""
        if capability == _CAPABILITY:
            return None
        return "compute capability {}.{} (9.0 is needed)".format(*capability)

    def why_not(self, case: PromptCase) -> str | None:
        """As PromptLibrary.why_not."""
        if case.head_dim > _MAX_HEAD_DIM or case.head_dim % 8:
            return f"heads of {case.head_dim} channels (multiples of 8 up to {_MAX_HEAD_DIM} are supported)"
        return unsupported_pages(case)

    def bind(self, case: PromptCase) -> "_Kernel":
        """As PromptLibrary.bind."""
        return _Kernel(self._module, case)


class _Kernel:
    def __init__(self, module: Any, case: PromptCase) -> None:
        self._module = module
        self._case = case

    def begin(self, rows: PromptRows, page_table: torch.Tensor) -> AttendPrompts:
        case = self._case
        num_entries = -(-rows.max_context // case.page_tokens)  # the library takes the width for the longest context
        table = page_table[:, :num_entries].index_select(0, rows.slots)
        window = (-1, -1) if case.window is None else (case.window - 1, 0)

        def attend(query: torch.Tensor, pages: torch.Tensor, output: torch.Tensor) -> None:
            result = self._module.flash_attn_with_kvcache(
                query,
                pages[:, 0].permute(0, 2, 1, 3),
                pages[:, 1].permute(0, 2, 1, 3),
                cache_seqlens=rows.context_lengths,
                page_table=table,
                cu_seqlens_q=rows.query_starts,
                max_seqlen_q=rows.max_queries,
                softmax_scale=case.scale,
                causal=True,
                window_size=window,
                softcap=case.softcap or 0.0,
            )
            output.copy_(result)  # the function has no argument for its result

        return attend
