from engine.memory.evictor import Evictor


def drain(evictor):
    pages = []
    while (page := evictor.pop()) is not None:
        pages.append(page)
    return pages


def test_the_least_recently_used_page_goes_first():
    evictor = Evictor()
    for page, last_access in [(1, 30), (2, 10), (3, 20)]:
        evictor.add(page, (last_access, 0))
    assert drain(evictor) == [2, 3, 1]


def test_of_equally_old_pages_the_furthest_into_the_prompt_goes_first():
    evictor = Evictor()
    for page, prefix_tokens in [(1, 16), (2, 48), (3, 32)]:
        evictor.add(page, (5, -prefix_tokens))
    assert drain(evictor) == [2, 3, 1]


def test_a_removed_page_is_never_popped_and_may_come_back_with_another_key():
    evictor = Evictor()
    evictor.add(1, (1, 0))
    evictor.add(2, (2, 0))
    evictor.remove(1)
    assert len(evictor) == 1
    assert 1 not in evictor
    evictor.add(1, (3, 0))
    assert drain(evictor) == [2, 1]


def test_removed_entries_do_not_pile_up():
    evictor = Evictor()
    for step in range(10_000):
        evictor.add(7, (step, 0))
        evictor.remove(7)
    assert len(evictor._heap) < 200
