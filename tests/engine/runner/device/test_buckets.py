"""Which graph a decode step takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.runner.device.buckets import Bucket, Buckets, context_bounds, row_counts


def test_the_ladder_of_batch_sizes() -> None:
    assert row_counts(8) == (1, 2, 4, 8)
    assert row_counts(64) == (1, 2, 4, 8, 16, 24, 32, 48, 64)
    assert row_counts(4096)[-6:] == (240, 256, 320, 384, 448, 512)
    assert row_counts(4096, max_rows=16) == (1, 2, 4, 8, 16)


@pytest.mark.parametrize("max_running", [1, 3, 7, 100, 500])
def test_a_full_batch_has_a_graph_without_padding(max_running: int) -> None:
    assert row_counts(max_running)[-1] == max_running


def test_longer_contexts_have_further_bounds() -> None:
    assert context_bounds(1000) == (1000,)
    assert context_bounds(1024) == (1024,)
    assert context_bounds(4096) == (1024, 4096)
    assert context_bounds(131_072) == (1024, 4096, 131_072)


@pytest.mark.parametrize(("max_running", "num_graphs"), [(64, 21), (256, 47)])
def test_a_third_bound_makes_few_graphs_more(max_running: int, num_graphs: int) -> None:
    buckets = Buckets(max_running, 131_072)
    assert len(buckets.all()) == num_graphs < 1.2 * 2 * len(row_counts(max_running))
    assert Buckets(max_running, 1024).bucket_for(1, 9) == Bucket(1, 1024)
    assert buckets.bucket_for(1, 9) == Bucket(1, 131_072)
    assert buckets.bucket_for(33, 1024) == Bucket(48, 1024)
    assert buckets.bucket_for(33, 1025) == Bucket(48, 4096)
    assert buckets.bucket_for(33, 4097) == Bucket(64, 131_072)


def test_shared_prefixes_have_graphs_for_powers_of_two_from_eight_rows_on() -> None:
    buckets, without = Buckets(48, 8192, has_shared=True), Buckets(48, 8192)
    shared = [bucket for bucket in buckets.all() if bucket.is_shared]
    assert [bucket.num_rows for bucket in shared] == [48, 32, 16, 8]
    assert set(buckets.all()) - set(shared) == set(without.all())
    assert buckets.bucket_for(9, 300, is_shared=True) == Bucket(16, 8192, is_shared=True)
    assert buckets.bucket_for(9, 300) == without.bucket_for(9, 300)


def test_a_step_without_a_graph_has_no_more_parts_than_it_needs() -> None:
    buckets = Buckets(16, 8192)
    assert [buckets.without_graph(5, context) for context in (3, 1024, 1025, 8000)] == [
        Bucket(5, bound) for bound in (1024, 1024, 1025, 8000)
    ]
    assert Buckets(16, 100).without_graph(5, 3) == Bucket(5, 100)


@given(st.integers(1, 700), st.integers(1, 40_000), st.data())
def test_a_step_gets_the_smallest_bucket_that_holds_it(
    max_running: int, max_model_len: int, data: st.DataObject
) -> None:
    buckets = Buckets(max_running, max_model_len)
    rows, context = data.draw(st.integers(1, max_running)), data.draw(st.integers(1, max_model_len))
    fitting = [bucket for bucket in buckets.all() if bucket.num_rows >= rows and bucket.max_context >= context]
    assert buckets.bucket_for(rows, context) == (min(fitting) if fitting else None)
    assert (not fitting) == (rows > 512)


def test_the_largest_bucket_is_captured_first() -> None:
    order = Buckets(16, 8192).all()
    assert order[0] == Bucket(16, 8192)
    assert list(order) == sorted(order, reverse=True)
