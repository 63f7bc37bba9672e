"""Attention of prompts by FlashInfer: BatchPrefillWithPagedKVCacheWrapper over pages in its HND layout [N, K, P, D].

A step is planned on the host from its lengths, and the plan is sent from page-locked memory that belongs to the
wrapper. With two steps in flight that memory may still be read when the next one is planned, so two wrappers take
turns. A window's left side counts the tokens before the query, without its own.
"""

from importlib import import_module
from typing import Any

import numpy as np
import torch

from engine.kernels.hardware import num_multiprocessors
from engine.kernels.prompt_libraries.library import AttendPrompts, PromptCase, PromptRows, unsupported_pages

_LEAST_CAPABILITY = (8, 0)
_HEAD_DIMS = (64, 128, 256)
_STEPS_IN_FLIGHT = 2
#: The size that FlashInfer's documentation recommends.
_LEAST_WORKSPACE_BYTES = 128 * 2**20
#: Parts of contexts are read by at most so many blocks for each multiprocessor, of so many rows each.
_BLOCKS, _BLOCK_ROWS = 2, 128


class FlashInfer:
    """The PromptLibrary of FlashInfer."""

    name = "flashinfer"
    module_name = "flashinfer"
    package_name = "flashinfer-python"

    def __init__(self, device: torch.device) -> None:
        """Imports the library. It compiles a kernel when it is first used, where none was installed with it."""
        self._module: Any = import_module(self.module_name)
        self._device = device
        self._workspace = torch.empty(0, dtype=torch.uint8, device=device)

    @staticmethod
    def why_not_on(capability: tuple[int, int]) -> str | None:
        """Why devices of that compute capability are not served; None: they are."""
        if capability >= _LEAST_CAPABILITY:
            return None
        return "compute capability {}.{} (8.0 is needed)".format(*capability)

    def why_not(self, case: PromptCase) -> str | None:
        """As PromptLibrary.why_not."""
        if case.head_dim not in _HEAD_DIMS:
            return f"heads of {case.head_dim} channels ({', '.join(map(str, _HEAD_DIMS))} are supported)"
        return unsupported_pages(case)

    def bind(self, case: PromptCase) -> "_Kernel":
        """As PromptLibrary.bind. Layers run one after another, so all cases share a workspace."""
        group_size = case.num_heads // case.num_kv_heads
        blocks = _BLOCKS * num_multiprocessors(self._device) * group_size
        size = max(_LEAST_WORKSPACE_BYTES, blocks * _BLOCK_ROWS * (case.head_dim + 1) * 4)
        if self._workspace.nbytes < size:
            self._workspace = torch.empty(size, dtype=torch.uint8, device=self._device)
        make = self._module.BatchPrefillWithPagedKVCacheWrapper
        return _Kernel([make(self._workspace, kv_layout="HND") for _ in range(_STEPS_IN_FLIGHT)], case)


class _Kernel:
    def __init__(self, wrappers: list[Any], case: PromptCase) -> None:
        self._wrappers = wrappers
        self._case = case
        self._num_steps = 0

    def begin(self, rows: PromptRows, page_table: torch.Tensor) -> AttendPrompts:
        case = self._case
        wrapper = self._wrappers[self._num_steps % len(self._wrappers)]
        self._num_steps += 1
        num_pages = -(-rows.contexts // case.page_tokens)
        wrapper.plan(
            _on_host([0, *np.cumsum(rows.queries)], page_table.device),
            _on_host([0, *np.cumsum(num_pages)], page_table.device),
            _page_ids(rows, page_table, case.page_tokens, int(num_pages.sum())),
            _on_host((rows.contexts - 1) % case.page_tokens + 1, page_table.device),
            case.num_heads,
            case.num_kv_heads,
            case.head_dim,
            case.page_tokens,
            causal=True,
            sm_scale=case.scale,
            window_left=-1 if case.window is None else case.window - 1,
            logits_soft_cap=case.softcap,
            q_data_type=case.dtype,
            kv_data_type=case.page_dtype,
        )

        def attend(query: torch.Tensor, pages: torch.Tensor, output: torch.Tensor) -> None:
            wrapper.run(query, (pages[:, 0], pages[:, 1]), out=output)

        return attend


def _on_host(values: Any, device: torch.device) -> torch.Tensor:
    """int32 on the host, page-locked where the library copies it to a device without waiting."""
    tensor = torch.from_numpy(np.asarray(values, np.int32))
    return tensor.pin_memory() if device.type == "cuda" else tensor


def _page_ids(rows: PromptRows, page_table: torch.Tensor, page_tokens: int, num_pages: int) -> torch.Tensor:
    """The pages of all rows one after another, [num_pages] int32, without waiting for the device."""
    counts = (rows.context_lengths + page_tokens - 1) // page_tokens
    firsts = counts.cumsum(0) - counts
    row = torch.repeat_interleave(counts, output_size=num_pages)
    entry = torch.arange(num_pages, device=page_table.device) - firsts[row]
    return page_table[rows.slots[row], entry]
