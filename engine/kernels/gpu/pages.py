"""Copies of whole pages: inside the pool, from it into staging memory, and back. One launch for any number of pages.

Pages are copied in words of eight bytes, two at a time (128 bits) if their size and alignment allow it.
"""

import torch
import triton
import triton.language as tl

_BLOCK_WORDS = 1024  #: words per program: 8 KiB
_WIDE_BYTES = 16


@triton.jit(do_not_specialize=["num_words"])
def _move_pages(
    source_ptr,
    destination_ptr,
    source_ids_ptr,
    destination_ids_ptr,
    source_stride,
    destination_stride,
    num_words,
    WORDS_PER_UNIT: tl.constexpr,
    BLOCK_WORDS: tl.constexpr,
):
    """Grid (pages, blocks of a page). Without ids, item i is page i. Strides are in units of WORDS_PER_UNIT words,
    which tells the compiler that accesses are aligned to them."""
    item = tl.program_id(0).to(tl.int64)
    source = item if source_ids_ptr is None else tl.load(source_ids_ptr + item)
    destination = item if destination_ids_ptr is None else tl.load(destination_ids_ptr + item)
    if source < 0 or destination < 0:
        return
    words = tl.program_id(1) * BLOCK_WORDS + tl.arange(0, BLOCK_WORDS)
    is_word = words // WORDS_PER_UNIT < num_words // WORDS_PER_UNIT
    from_ptr = source_ptr + source * source_stride * WORDS_PER_UNIT
    to_ptr = destination_ptr + destination * destination_stride * WORDS_PER_UNIT
    tl.store(to_ptr + words, tl.load(from_ptr + words, mask=is_word, other=0), mask=is_word)


def copy_pages(pages: torch.Tensor, sources: torch.Tensor, destinations: torch.Tensor) -> None:
    """pages[destinations] = pages[sources], in place; items with a negative id are skipped (StepKernels.copy_pages)."""
    assert sources.shape == destinations.shape
    _launch(pages, pages, sources, destinations)


def gather_pages(pages: torch.Tensor, page_ids: torch.Tensor, staging: torch.Tensor) -> None:
    """Fills staging [n, words] with pages[page_ids] (StepKernels.gather_pages)."""
    assert staging.shape == (len(page_ids), pages.shape[1])
    _launch(pages, staging, page_ids, None)


def scatter_pages(pages: torch.Tensor, page_ids: torch.Tensor, staging: torch.Tensor) -> None:
    """pages[page_ids] = staging [n, words], in place (StepKernels.scatter_pages)."""
    assert staging.shape == (len(page_ids), pages.shape[1])
    _launch(staging, pages, None, page_ids)


def _launch(
    source: torch.Tensor,
    destination: torch.Tensor,
    source_ids: torch.Tensor | None,
    destination_ids: torch.Tensor | None,
) -> None:
    assert source.dtype == destination.dtype
    assert source.stride(1) == destination.stride(1) == 1
    ids = source_ids if source_ids is not None else destination_ids
    assert ids is not None
    assert ids.dtype == torch.int64
    assert ids.is_contiguous()
    if not len(ids):
        return
    words_per_unit = 1
    if all(_is_wide(rows) for rows in (source, destination)):
        source, destination = source.view(torch.int64), destination.view(torch.int64)
        words_per_unit = _WIDE_BYTES // source.itemsize
    num_words = source.shape[1]
    _move_pages[(len(ids), triton.cdiv(num_words, _BLOCK_WORDS))](
        source,
        destination,
        source_ids,
        destination_ids,
        source.stride(0) // words_per_unit,
        destination.stride(0) // words_per_unit,
        num_words,
        WORDS_PER_UNIT=words_per_unit,
        BLOCK_WORDS=_BLOCK_WORDS,
        num_warps=4,
    )


def _is_wide(rows: torch.Tensor) -> bool:
    """True if all rows are aligned to 128 bits and consist of whole 128-bit words."""
    sizes = rows.data_ptr(), rows.stride(0) * rows.itemsize, rows.shape[1] * rows.itemsize
    return all(size % _WIDE_BYTES == 0 for size in sizes)
