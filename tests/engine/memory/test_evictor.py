"""The eviction order of cached pages: last access, then distance from the start of the prompt."""

from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from engine.memory.evictor import Evictor

#: "add" with page, last access and order; "remove" with page; "pop".
Operation = tuple[Literal["add"], int, int, int] | tuple[Literal["remove"], int] | tuple[Literal["pop"]]


def drain(evictor: Evictor) -> list[int]:
    pages = []
    while (page := evictor.pop()) is not None:
        pages.append(page)
    return pages


def test_the_least_recently_used_page_goes_first() -> None:
    evictor = Evictor()
    for page, last_access in [(1, 30), (2, 10), (3, 20)]:
        evictor.add(page, (last_access, 0))
    assert drain(evictor) == [2, 3, 1]


def test_of_equally_old_pages_the_furthest_into_the_prompt_goes_first() -> None:
    evictor = Evictor()
    for page, prefix_tokens in [(1, 16), (2, 48), (3, 32)]:
        evictor.add(page, (5, -prefix_tokens))
    assert drain(evictor) == [2, 3, 1]


def test_a_removed_page_is_never_popped_and_may_come_back_with_another_key() -> None:
    evictor = Evictor()
    evictor.add(1, (1, 0))
    evictor.add(2, (2, 0))
    evictor.remove(1)
    assert len(evictor) == 1
    assert 1 not in evictor
    evictor.add(1, (3, 0))
    assert drain(evictor) == [2, 1]


def test_removed_entries_do_not_pile_up() -> None:
    evictor = Evictor()
    for step in range(10_000):
        evictor.add(7, (step % 100, 0))
        evictor.remove(7)
    evictor.add(8, (0, 0))
    assert sum(map(len, evictor._buckets.values())) < 200
    assert drain(evictor) == [8]


def test_what_is_added_while_a_time_stamp_is_being_emptied_finds_its_place() -> None:
    evictor = Evictor()
    for page in (1, 2, 3):
        evictor.add(page, (5, -16 * page))
    assert evictor.pop() == 3
    evictor.add(4, (5, -24))
    evictor.add(5, (4, 0))
    evictor.add(6, (5, -64))
    assert drain(evictor) == [5, 6, 2, 4, 1]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 30), st.integers(-5, 5), st.integers(-4, 0)),
            st.tuples(st.just("remove"), st.integers(0, 30)),
            st.tuples(st.just("pop")),
        ),
        max_size=300,
    )
)
def test_it_always_gives_what_a_sorted_list_would_give(operations: list[Operation]) -> None:
    evictor = Evictor()
    expected: dict[int, tuple[int, int]] = {}
    for operation in operations:
        match operation:
            case ("add", page, last_access, order) if page not in expected:
                evictor.add(page, (last_access, order))
                expected[page] = (last_access, order)
            case ("remove", page) if page in expected:
                evictor.remove(page)
                del expected[page]
            case ("pop",):
                first = min(expected, key=lambda page: (expected[page], page), default=-1)
                assert evictor.pop() == (first if expected else None)
                expected.pop(first, None)
        assert len(evictor) == len(expected)
    assert drain(evictor) == sorted(expected, key=lambda page: (expected[page], page))
