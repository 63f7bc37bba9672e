"""Visitors and their boards: nobody waits for all questions of another, nobody empties the cache."""

import asyncio

from controller.votes.boards.board_cache import BoardCache, CachedBoard, FitLines


def _board(body: bytes, visitor: str, state: str = "s", read_at: float = 0.0) -> CachedBoard:
    return CachedBoard(body, state, read_at, visitor)


async def test_a_visitor_with_many_questions_delays_another_by_one_fit() -> None:
    """Defect 5: sixty questions of one address delayed another's board by 11 s."""
    lines, order = FitLines(), list[str]()

    async def fit(visitor: str) -> None:
        async with lines.turn("votes", visitor):
            order.append(visitor)
            await asyncio.sleep(0)

    greedy = [asyncio.create_task(fit("greedy")) for _ in range(20)]
    await asyncio.sleep(0)
    await asyncio.gather(fit("other"), *greedy)

    assert order.index("other") == 1


async def test_a_quick_fit_does_not_wait_for_one_that_reads_every_vote() -> None:
    lines = FitLines()
    async with lines.turn("votes", "v"), asyncio.timeout(5), lines.turn("counts", "v"):
        pass


def test_a_visitor_pushes_only_own_boards_out() -> None:
    """Defect 5: every new question emptied the cache of all."""
    cache = BoardCache(max_boards=4)
    cache.put("kept", _board(b"kept", "other"))
    for number in range(50):
        cache.put(number, _board(b"%d" % number, "greedy"))

    assert cache.find("kept", "s", since=1.0) == b"kept"
    assert cache.find(49, "s", since=1.0) == b"49"
    assert cache.find(40, "s", since=1.0) is None


def test_an_answer_serves_while_the_log_is_the_same_or_was_read_late_enough() -> None:
    cache = BoardCache()
    cache.put("question", _board(b"answer", "v", state="old", read_at=10.0))

    assert cache.find("question", "old", since=11.0) == b"answer"
    assert cache.find("question", "new", since=10.0) == b"answer"
    assert cache.find("question", "new", since=10.1) is None
