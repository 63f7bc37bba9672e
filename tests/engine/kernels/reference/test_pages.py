"""Copies of whole pages: equal bit for bit, and no other page changes."""

import torch

from engine.kernels.reference import copy_pages, gather_pages, scatter_pages


def _pages() -> torch.Tensor:
    return torch.arange(24).view(6, 4)


def test_pairs_are_copied_and_negative_ones_are_not() -> None:
    pages = _pages()
    copy_pages(pages, torch.tensor([-1, 4, 3, -1]), torch.tensor([5, 1, 2, -1]))
    assert torch.equal(pages, _pages()[[0, 4, 3, 3, 4, 5]])


def test_without_a_real_pair_nothing_changes() -> None:
    pages = _pages()
    copy_pages(pages, torch.tensor([-1, 4]), torch.tensor([5, -1]))
    assert torch.equal(pages, _pages())


def test_pages_that_went_out_come_back_elsewhere() -> None:
    pages, staging = _pages(), torch.zeros(2, 4, dtype=torch.int64)
    gather_pages(pages, torch.tensor([5, 1]), staging)
    scatter_pages(pages, torch.tensor([0, 3]), staging)
    assert torch.equal(pages, _pages()[[5, 1, 2, 1, 4, 5]])
