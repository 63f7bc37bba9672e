"""Whole pages, in plain torch."""

import torch


def copy_pages(pages: torch.Tensor, sources: torch.Tensor, destinations: torch.Tensor) -> None:
    """Copy whole pages; pages [num_pages, words of any integer type]. No destination is a source of the same call."""
    pages.index_copy_(0, destinations, pages.index_select(0, sources))
