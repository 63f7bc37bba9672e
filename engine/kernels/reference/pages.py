"""Copies of whole pages, in plain torch. pages [N, words of any integer type]."""

import torch


def copy_pages(pages: torch.Tensor, sources: torch.Tensor, destinations: torch.Tensor) -> None:
    """pages[destinations] = pages[sources], in place (StepKernels.copy_pages). An item with a negative id repeats the
    first real copy; if there is none, page 0 is copied onto itself."""
    if not len(sources):
        return
    is_real = (sources >= 0) & (destinations >= 0)
    first = is_real.to(torch.int8).argmax(dim=0, keepdim=True)
    has_any = is_real.index_select(0, first)
    source, destination = (torch.where(has_any, ids.index_select(0, first), 0) for ids in (sources, destinations))
    copied = pages.index_select(0, torch.where(is_real, sources, source))
    pages.index_copy_(0, torch.where(is_real, destinations, destination), copied)


def gather_pages(pages: torch.Tensor, page_ids: torch.Tensor, staging: torch.Tensor) -> None:
    """Fills staging [n, words] with pages[page_ids] (StepKernels.gather_pages)."""
    torch.index_select(pages, 0, page_ids, out=staging)


def scatter_pages(pages: torch.Tensor, page_ids: torch.Tensor, staging: torch.Tensor) -> None:
    """pages[page_ids] = staging [n, words], in place (StepKernels.scatter_pages)."""
    pages.index_copy_(0, page_ids, staging)
