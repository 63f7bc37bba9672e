"""Truth tables of prefix hits, in the spirit of the public test suites of other engines, in our terms."""

import pytest

from engine.memory.images import Images, ImageSpan
from engine.memory.policies import (
    BudgetedPolicy,
    ChunkedPolicy,
    CrossPolicy,
    FullPolicy,
    LayerPolicy,
    RecurrentPolicy,
    VisionPolicy,
    WindowPolicy,
)

T, F = True, False


def hit(
    policy: LayerPolicy,
    cached: list[bool],
    images: Images = (),
    max_tokens: int | None = None,
    page_tokens: int = 2,
) -> int:
    limit = len(cached) * page_tokens if max_tokens is None else max_tokens
    return policy.longest_hit(lambda index: cached[index], limit, images)


@pytest.mark.parametrize(("cached", "pages"), [([T, T, T], 3), ([T, F, T], 1), ([F, T, T], 0), ([], 0)])
def test_full_attention_ends_at_the_first_miss(cached: list[bool], pages: int) -> None:
    assert hit(FullPolicy(2), cached) == 2 * pages


@pytest.mark.parametrize(
    ("cached", "pages"),
    [
        ([T, T, F, T, F, F, T, T, F, T, T, T], 12),
        ([T, T, F, T, F, F, T, T, F, F, F, F], 8),
        ([T, T, F, F, F, F, F, F, F, F, F, F], 2),
        ([T, F, F, T, F, F, T, F, F, T, F, F], 1),
        ([F, F, F, T, F, F, T, F, F, T, F, F], 0),
    ],
)
def test_a_window_of_four_tokens_needs_a_run_of_two_pages_or_one_from_the_start(cached: list[bool], pages: int) -> None:
    assert hit(WindowPolicy(2, 4), cached) == 2 * pages


def test_a_window_of_32_tokens_needs_two_pages_of_16_and_not_three() -> None:
    assert hit(WindowPolicy(16, 32), [F, T, T], page_tokens=16) == 48
    assert hit(WindowPolicy(16, 33), [F, T, T], page_tokens=16) == 48
    assert hit(WindowPolicy(16, 34), [F, T, T], page_tokens=16) == 0


@pytest.mark.parametrize(
    ("cached", "pages"),
    [([T, T, F, T], 4), ([F, F, T, T], 4), ([F, F, F], 2), ([F, T, T], 3), ([F, T, F], 2), ([T, F], 2)],
)
def test_a_chunk_boundary_needs_nothing_and_the_middle_of_a_chunk_needs_the_chunk_so_far(
    cached: list[bool], pages: int
) -> None:
    assert hit(ChunkedPolicy(2, 4), cached) == 2 * pages


@pytest.mark.parametrize(("cached", "checkpoints"), [([F, T, F], 2), ([T, F, F], 1), ([F, F, F], 0), ([F, F, T], 3)])
def test_a_recurrent_layer_resumes_at_its_last_cached_checkpoint(cached: list[bool], checkpoints: int) -> None:
    assert hit(RecurrentPolicy(8), cached, page_tokens=8) == 8 * checkpoints


def test_a_recurrent_prompt_is_computed_in_steps_that_end_on_checkpoints() -> None:
    policy = RecurrentPolicy(8)
    assert [policy.chunk_end(0, 30), policy.chunk_end(8, 30), policy.chunk_end(13, 14)] == [8, 16, 14]


def test_budgeted_layers_never_hit() -> None:
    assert hit(BudgetedPolicy(2, 4), [T, T]) == 0


IMAGES = (ImageSpan(4, 3, b"a", 4), ImageSpan(10, 2, b"b", 4))  # two pages and one page


def test_cross_attention_ends_before_the_first_image_that_is_not_wholly_cached() -> None:
    assert hit(CrossPolicy(2), [T, T, T], IMAGES, max_tokens=20) == 20
    assert hit(CrossPolicy(2), [T, T, F], IMAGES, max_tokens=20) == 10
    assert hit(CrossPolicy(2), [T, F, T], IMAGES, max_tokens=20) == 4
    assert hit(CrossPolicy(2), [F, F, F], IMAGES, max_tokens=4) == 4


def test_a_prefix_may_end_inside_an_image_only_if_its_embeddings_are_cached() -> None:
    assert hit(VisionPolicy(2), [F, F, F], IMAGES, max_tokens=9) == 9
    assert hit(VisionPolicy(2), [F, F, F], IMAGES, max_tokens=6) == 4
    assert hit(VisionPolicy(2), [T, T, F], IMAGES, max_tokens=6) == 6


def test_pages_are_dropped_when_no_later_token_reads_them() -> None:
    assert [WindowPolicy(4, 8).first_live_page(n, ()) for n in (0, 10, 11, 15)] == [0, 0, 1, 2]
    assert [ChunkedPolicy(4, 8).first_live_page(n, ()) for n in (7, 8, 15, 16)] == [0, 2, 2, 4]
    assert [RecurrentPolicy(8).first_live_page(n, ()) for n in (8, 9, 16, 17)] == [0, 1, 1, 2]
    assert [VisionPolicy(2).first_live_page(n, IMAGES) for n in (5, 8, 14)] == [0, 2, 3]
    assert CrossPolicy(2).first_live_page(100, IMAGES) == 0


def test_admission_of_a_window_counts_the_window_the_step_and_the_page_it_straddles() -> None:
    assert WindowPolicy(16, 1024, 64).num_pages(100_000) == -(-(1023 + 64) // 16) + 1
    assert WindowPolicy(16, 1024, 64).num_pages(100) == 7
    assert WindowPolicy(16, 1024).num_pages(100_000) == 6250
