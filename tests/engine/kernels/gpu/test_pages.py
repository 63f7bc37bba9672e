"""Copies of whole pages are equal bit for bit, for words of any width."""

import pytest
import torch

from engine.kernels import gpu

#: dtype, words of a page, words between page starts. Cases: 128-bit words, 64-bit words, bytes, more than one block.
SHAPES = [
    (torch.int64, 20, 20),
    (torch.int64, 13, 13),
    (torch.int64, 12, 18),
    (torch.uint8, 27, 27),
    (torch.uint8, 48, 64),
    (torch.int64, 1030, 1030),
]


def _pages(dtype: torch.dtype, num_words: int, stride: int, device: torch.device) -> torch.Tensor:
    generator = torch.Generator().manual_seed(num_words)
    limits = torch.iinfo(dtype)
    words = torch.randint(limits.min, limits.max, (7, stride), generator=generator, dtype=dtype)
    return words.to(device)[:, :num_words]


@pytest.mark.first_minutes
@pytest.mark.parametrize(("dtype", "num_words", "stride"), SHAPES)
def test_pairs_are_copied_and_negative_ones_are_not(
    dtype: torch.dtype, num_words: int, stride: int, device: torch.device
) -> None:
    pages = _pages(dtype, num_words, stride, device)
    behind = pages.as_strided((7, stride), (stride, 1))
    expected = behind.clone()
    expected[5, :num_words], expected[0, :num_words] = pages[2], pages[6]
    sources, destinations = torch.tensor([2, -1, 6, 4], device=device), torch.tensor([5, 3, 0, -1], device=device)
    gpu.copy_pages(pages, sources, destinations)
    assert torch.equal(behind, expected)


@pytest.mark.first_minutes
@pytest.mark.parametrize(("dtype", "num_words", "stride"), SHAPES)
def test_pages_that_went_out_come_back_elsewhere(
    dtype: torch.dtype, num_words: int, stride: int, device: torch.device
) -> None:
    pages = _pages(dtype, num_words, stride, device)
    before, staging = pages.clone(), torch.empty((2, num_words), dtype=dtype, device=device)
    gpu.gather_pages(pages, torch.tensor([5, 1], device=device), staging)
    assert torch.equal(staging, before[[5, 1]])
    gpu.scatter_pages(pages, torch.tensor([0, 3], device=device), staging)
    assert torch.equal(pages, before[[5, 1, 2, 1, 4, 5, 6]])


def test_no_pages_are_no_launch(device: torch.device) -> None:
    pages = _pages(torch.int64, 4, 4, device)
    nothing = torch.empty(0, dtype=torch.int64, device=device)
    gpu.copy_pages(pages, nothing, nothing)
    assert torch.equal(pages, _pages(torch.int64, 4, 4, device))
