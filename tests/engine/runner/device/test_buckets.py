"""Which graph a decode step takes: every legal step has one that holds it, padding is bounded, and graphs stay few."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from engine.runner.device.buckets import LEAST_SHARING_ROWS, MAX_GRAPH_ROWS, Buckets

MAX_RUNNING = st.integers(1, 700)
#: Each graph keeps a little device memory and adds to the time that a worker needs to start.
MOST_GRAPHS = 33


@st.composite
def steps(draw: st.DrawFn) -> tuple[Buckets, int]:
    """Buckets of some engine, and the rows of a step that it may run."""
    max_running = draw(MAX_RUNNING)
    return Buckets(max_running, has_shared=draw(st.booleans())), draw(st.integers(1, max_running))


@given(steps())
def test_every_step_is_held_by_a_captured_graph_unless_it_is_too_large_for_any(step: tuple[Buckets, int]) -> None:
    buckets, rows = step
    found = buckets.bucket_for(rows)
    if rows > MAX_GRAPH_ROWS:
        assert found is None
        return
    assert found is not None
    assert found in buckets.all()
    assert found.num_rows >= rows
    assert not found.is_shared


@given(steps())
def test_no_captured_graph_of_fewer_rows_would_hold_the_step(step: tuple[Buckets, int]) -> None:
    buckets, rows = step
    found = buckets.bucket_for(rows)
    for other in buckets.all():
        if other.num_rows >= rows and not other.is_shared:
            assert found is not None
            assert found.num_rows <= other.num_rows


@given(steps())
def test_padding_is_bounded(step: tuple[Buckets, int]) -> None:
    buckets, rows = step
    found = buckets.bucket_for(rows)
    if found is None:
        return
    padding = Fraction(found.num_rows - rows, found.num_rows)
    assert padding < Fraction(1, 2)
    assert rows <= 16 or padding <= Fraction(1, 3)
    assert rows <= 64 or padding <= Fraction(1, 5)


@given(steps(), st.integers(0, 100))
def test_a_larger_step_takes_no_smaller_graph(step: tuple[Buckets, int], more_rows: int) -> None:
    buckets, rows = step
    small, large = buckets.bucket_for(rows), buckets.bucket_for(rows + more_rows)
    if small is not None and large is not None:
        assert small.num_rows <= large.num_rows


@given(st.integers(1, MAX_GRAPH_ROWS))
def test_a_full_batch_has_no_padding(max_running: int) -> None:
    found = Buckets(max_running).bucket_for(max_running)
    assert found is not None
    assert found.num_rows == max_running


@given(MAX_RUNNING, st.booleans())
def test_there_are_few_graphs_and_the_largest_comes_first(max_running: int, has_shared: bool) -> None:
    """All graphs have the memory in common that the first one takes."""
    captured = Buckets(max_running, has_shared=has_shared).all()
    assert len(captured) == len(set(captured)) <= MOST_GRAPHS
    assert list(captured) == sorted(captured, reverse=True)


def test_one_graph_for_each_number_of_rows_serves_contexts_of_any_length() -> None:
    """The numbers that docs/gpu.md states; three bounds on contexts made them 21 and 47."""
    assert len(Buckets(64).all()) == 9
    assert len(Buckets(256).all()) == 21
    assert len(Buckets(64, has_shared=True).all()) == 9 + 4
    assert len(Buckets(256, has_shared=True).all()) == 21 + 6


@given(MAX_RUNNING, st.data())
def test_graphs_for_shared_prefixes_hold_every_step_from_eight_rows_on_and_change_no_other(
    max_running: int, data: st.DataObject
) -> None:
    buckets, without = Buckets(max_running, has_shared=True), Buckets(max_running)
    rows = data.draw(st.integers(1, max_running))
    assert buckets.bucket_for(rows) == without.bucket_for(rows)
    assert not any(bucket.is_shared for bucket in without.all())
    found = buckets.bucket_for(rows, is_shared=True)
    if LEAST_SHARING_ROWS <= rows <= MAX_GRAPH_ROWS:
        assert found in buckets.all()
        assert found is not None
        assert found.is_shared
        assert rows <= found.num_rows < 2 * rows
