"""The line of visitors who wait for room: its order, its end, and what is said of it."""

import asyncio
from contextlib import ExitStack

from tests.webui.fake_controller import FakeArena
from tests.webui.test_turn import ANONYMOUS, VISITOR, client, turns  # noqa: F401
from webui import sentences
from webui.battle.session import Session
from webui.battle.turn import Turns
from webui.waiting_line import ASKING, WaitingLine


def test_places_move_up_when_one_before_them_leaves() -> None:
    line = WaitingLine()
    with ExitStack() as first_leaves, line.place() as last:
        assert last.num_before == 0
        del first_leaves
    with ExitStack() as others:
        places = [others.enter_context(line.place()) for _ in range(ASKING + 3)]
        assert [place.num_before for place in places] == list(range(ASKING + 3))
        assert [place.may_ask for place in places] == [True] * ASKING + [False] * 3
        assert {place.shown for place in places[1:6]} == {5}
    with line.place() as again:
        assert again.num_before == 0


async def test_a_visitor_behind_others_is_told_so_and_is_not_asked_for(turns: Turns, arena: FakeArena) -> None:  # noqa: F811
    arena.refuse_creation = 1
    with ExitStack() as others:
        for _ in range(ASKING):
            others.enter_context(turns.client.line.place())
        sessions = turns.begin(Session(), "Hello!", ANONYMOUS, VISITOR)
        async for session in sessions:
            if session.notice is not None:
                break
        assert session.notice == sentences.waiting_in_line(5)
        num_asked = len(arena.requests)
        waiting = asyncio.ensure_future(anext(sessions))
        await asyncio.sleep(0)
        assert len(arena.requests) == num_asked
    found = await waiting
    while found.battle_id is None:
        found = await anext(sessions)
    await sessions.aclose()
    assert len(arena.battles) == 1
