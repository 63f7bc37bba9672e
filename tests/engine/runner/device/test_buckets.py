"""Which graph a decode step takes: every legal step has one that holds it, padding is bounded, and graphs stay few."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from engine.runner.device.buckets import CONTEXT_BOUNDS, LEAST_SHARING_ROWS, MAX_GRAPH_ROWS, Buckets

MAX_RUNNING = st.integers(1, 700)
MAX_MODEL_LEN = st.integers(1, 200_000)
#: Each graph keeps a little device memory and adds to the time that a worker needs to start.
MOST_GRAPHS = 64


@st.composite
def steps(draw: st.DrawFn) -> tuple[Buckets, int, int]:
    """Buckets of some engine, and the rows and the longest context of a step that it may run."""
    max_running, max_model_len = draw(MAX_RUNNING), draw(MAX_MODEL_LEN)
    buckets = Buckets(max_running, max_model_len, has_shared=draw(st.booleans()))
    return buckets, draw(st.integers(1, max_running)), draw(st.integers(1, max_model_len))


@given(steps())
def test_every_step_is_held_by_a_captured_graph_unless_it_is_too_large_for_any(step: tuple[Buckets, int, int]) -> None:
    buckets, rows, context = step
    found = buckets.bucket_for(rows, context)
    if rows > MAX_GRAPH_ROWS:
        assert found is None
        return
    assert found is not None
    assert found in buckets.all()
    assert found.num_rows >= rows
    assert found.max_context >= context
    assert not found.is_shared


@given(steps())
def test_no_captured_graph_of_fewer_rows_would_hold_the_step(step: tuple[Buckets, int, int]) -> None:
    buckets, rows, context = step
    found = buckets.bucket_for(rows, context)
    for other in buckets.all():
        if other.num_rows >= rows and other.max_context >= context and not other.is_shared:
            assert found is not None
            assert (found.num_rows, found.max_context) <= (other.num_rows, other.max_context)


@given(steps())
def test_padding_is_bounded(step: tuple[Buckets, int, int]) -> None:
    """Less than half of the rows; a third where contexts are so short that the rows' own work counts."""
    buckets, rows, context = step
    found = buckets.bucket_for(rows, context)
    if found is None:
        return
    padding = Fraction(found.num_rows - rows, found.num_rows)
    assert padding < Fraction(1, 2)
    if context <= CONTEXT_BOUNDS[-1]:
        assert rows <= 16 or padding <= Fraction(1, 3)
        assert rows <= 64 or padding <= Fraction(1, 5)


@given(steps())
def test_a_short_context_launches_no_more_than_four_times_its_parts(step: tuple[Buckets, int, int]) -> None:
    """Above two rows: fewer are one wave of programs, whatever the bound."""
    buckets, rows, context = step
    found = buckets.bucket_for(rows, context)
    if found is not None and rows > 2 and context <= CONTEXT_BOUNDS[-1]:
        assert found.max_context <= 4 * max(context, CONTEXT_BOUNDS[0])


@given(steps(), st.integers(0, 100), st.integers(0, 10_000))
def test_a_larger_step_takes_no_smaller_graph(
    step: tuple[Buckets, int, int], more_rows: int, more_context: int
) -> None:
    buckets, rows, context = step
    small, large = buckets.bucket_for(rows, context), buckets.bucket_for(rows + more_rows, context + more_context)
    if small is not None and large is not None:
        assert small.num_rows <= large.num_rows


@given(st.integers(1, MAX_GRAPH_ROWS), MAX_MODEL_LEN, st.data())
def test_a_full_batch_has_no_padding(max_running: int, max_model_len: int, data: st.DataObject) -> None:
    found = Buckets(max_running, max_model_len).bucket_for(max_running, data.draw(st.integers(1, max_model_len)))
    assert found is not None
    assert found.num_rows == max_running


@given(MAX_RUNNING, MAX_MODEL_LEN, st.booleans())
def test_there_are_few_graphs_and_the_largest_comes_first(
    max_running: int, max_model_len: int, has_shared: bool
) -> None:
    """All graphs have the memory in common that the first one takes."""
    captured = Buckets(max_running, max_model_len, has_shared=has_shared).all()
    assert len(captured) == len(set(captured)) <= MOST_GRAPHS
    first = captured[0]
    assert all(first.num_rows >= other.num_rows and first.max_context >= other.max_context for other in captured)
    assert list(captured) == sorted(captured, reverse=True)


@given(MAX_RUNNING, MAX_MODEL_LEN, st.data())
def test_graphs_for_shared_prefixes_hold_every_step_from_eight_rows_on_and_change_no_other(
    max_running: int, max_model_len: int, data: st.DataObject
) -> None:
    buckets, without = Buckets(max_running, max_model_len, has_shared=True), Buckets(max_running, max_model_len)
    rows, context = data.draw(st.integers(1, max_running)), data.draw(st.integers(1, max_model_len))
    assert buckets.bucket_for(rows, context) == without.bucket_for(rows, context)
    assert not any(bucket.is_shared for bucket in without.all())
    found = buckets.bucket_for(rows, context, is_shared=True)
    if LEAST_SHARING_ROWS <= rows <= MAX_GRAPH_ROWS:
        assert found in buckets.all()
        assert found is not None
        assert found.is_shared
        assert rows <= found.num_rows < 2 * rows
        assert found.max_context >= context


@given(MAX_RUNNING, MAX_MODEL_LEN, st.integers(1, 64), st.integers(1, 300), st.data())
def test_only_rows_that_the_model_can_be_captured_with_have_graphs(
    max_running: int, max_model_len: int, least: int, max_rows: int, data: st.DataObject
) -> None:
    """least is the model's limit; max_rows is the operator's."""
    buckets = Buckets(max_running, max_model_len, max_rows, range(least, MAX_GRAPH_ROWS + 1))
    assert all(least <= bucket.num_rows <= max_rows for bucket in buckets.all())
    rows = data.draw(st.integers(1, max_running))
    found = buckets.bucket_for(rows, 1)
    assert found is None or found.num_rows >= rows >= least


@given(MAX_RUNNING, MAX_MODEL_LEN, st.data())
def test_a_step_without_a_graph_is_not_padded_and_reads_in_the_parts_of_the_least_graph(
    max_running: int, max_model_len: int, data: st.DataObject
) -> None:
    buckets = Buckets(max_running, max_model_len)
    rows, context = data.draw(st.integers(1, max_running)), data.draw(st.integers(1, max_model_len))
    alone = buckets.without_graph(rows, context)
    assert alone.num_rows == rows
    assert alone.max_context == max(context, min(CONTEXT_BOUNDS[0], max_model_len))
