"""The actions of a battle, against the fake controller."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from tests.webui.fake_answers import MODELS
from tests.webui.fake_controller import FakeArena
from webui import sentences, texts
from webui.batches import batches
from webui.battle.pending_votes import PendingVotes, casting
from webui.battle.session import Bookmark, Choice, Session, bookmark_of, from_storage
from webui.battle.turn import Sessions, Turns
from webui.boards import Boards
from webui.client import ControllerClient
from webui.controllers import ControllerUnreachable
from webui.visitors import Visitor
from wire.battles import CreateBattle, Outcome, VoteReply
from wire.errors import ErrorCode
from wire.ids import BattleId

VISITOR = Visitor("203.0.113.7")
ANONYMOUS = CreateBattle(mode="anonymous")


@pytest.fixture
def turns(client: ControllerClient) -> Turns:
    return new_turns(client)


@pytest.fixture
async def client(controller: str) -> AsyncGenerator[ControllerClient, None]:
    client = ControllerClient(controller)
    yield client
    await client.aclose()


def new_turns(client: ControllerClient, *, undo_s: float = 0.0) -> Turns:
    boards = Boards(client, max_age_s=0)
    return Turns(client, 0.01, boards.leaderboard, PendingVotes(casting(client, boards.leaderboard), undo_s))


async def vote(turns: Turns, session: Session, outcome: Outcome, *, has_consent: bool = False) -> Sessions:
    """A vote that is not taken back."""
    chosen = turns.choose(session, Choice(outcome, has_consent), VISITOR)
    yield chosen
    async for shown in turns.finish_vote(chosen, VISITOR):
        yield shown


async def ask(turns: Turns, session: Session, content: str, opening: CreateBattle, visitor: Visitor) -> Sessions:
    """A whole turn: `begin`, then `follow`."""
    current = session
    async for current in turns.begin(session, content, opening, visitor):
        yield current
    async for followed in turns.follow(current, visitor):
        yield followed


async def last(sessions: Sessions) -> Session:
    return [session async for session in sessions][-1]


async def test_three_turns_and_a_vote(turns: Turns, arena: FakeArena) -> None:
    session = Session()
    for prompt in ("Hello!", "What is 12 + 30?", "What is the capital of France?"):
        session = await last(ask(turns, session, prompt, ANONYMOUS, VISITOR))
        assert session.is_votable
    assert len(session.exchanges) == 3
    assert len(arena.battles) == 1
    voted = await last(vote(turns, session, "b"))
    assert voted.names is not None
    assert set(voted.names) <= set(MODELS)
    assert voted.standings["b"].is_new
    assert arena.votes == [(*voted.names, "b")]


async def test_the_prompt_is_shown_before_the_controller_has_answered(turns: Turns) -> None:
    first = await anext(ask(turns, Session(), "Hello!", ANONYMOUS, VISITOR))
    assert first.exchanges[0].content == "Hello!"
    assert first.battle_id is None
    assert first.is_busy


async def test_the_battle_is_known_before_the_first_word(turns: Turns) -> None:
    seen = [session async for session in ask(turns, Session(), "Hello!", ANONYMOUS, VISITOR)]
    assert seen[1].battle_id is not None
    assert seen[1].exchanges[0].a.text == ""


async def test_a_vote_tells_why_it_is_not_rated_also_after_a_reload(turns: Turns, arena: FakeArena) -> None:
    arena.vote_flags = ("stopped",)
    session = await last(ask(turns, Session(), "Hello!", ANONYMOUS, VISITOR))
    voted = await last(vote(turns, session, "a"))
    assert (voted.is_rated, voted.flags) == (False, ("stopped",))
    assert voted.battle_id is not None
    again = await turns.restore(voted.battle_id, VISITOR)
    assert (again.is_rated, again.flags) == (False, ("stopped",))


async def test_consent_is_sent_only_where_it_was_given(turns: Turns, arena: FakeArena) -> None:
    for has_consent in (True, False):
        session = await last(ask(turns, Session(), "Hello!", ANONYMOUS, VISITOR))
        await last(vote(turns, session, "a", has_consent=has_consent))
    assert arena.consents == [True, None]


async def test_no_model_name_before_the_vote(turns: Turns) -> None:
    async for session in ask(turns, Session(), "fail b please", ANONYMOUS, VISITOR):
        assert not any(name in repr(session) for name in MODELS)


async def test_a_full_house_is_waited_for(turns: Turns, arena: FakeArena) -> None:
    arena.refuse_creation = 1
    seen = [session async for session in ask(turns, Session(), "Hello!", ANONYMOUS, VISITOR)]
    assert texts.WAITING_FOR_ROOM in {session.notice for session in seen}
    assert seen[-1].is_votable


async def test_a_question_that_is_too_long_is_given_back_with_both_lengths(turns: Turns) -> None:
    long = "x" * (turns.max_prompt_chars + 1)
    session = await last(ask(turns, Session(), long, ANONYMOUS, VISITOR))
    assert session.unsent_text == long
    assert session.notice == sentences.too_long(len(long), turns.max_prompt_chars)
    assert session.exchanges == ()


async def test_a_prompt_that_was_not_taken_goes_back_into_the_box(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webui.battle.turn._MAX_AWAY_S", 0.0)
    client = ControllerClient("http://127.0.0.1:9")
    down = new_turns(client)
    session = await last(ask(down, Session(), "Hello!", ANONYMOUS, VISITOR))
    assert session.unsent_text == "Hello!"
    assert session.notice == texts.UNREACHABLE
    assert session.exchanges == ()


async def test_a_vote_is_sent_again_until_a_controller_is_there(
    turns: Turns, arena: FakeArena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webui.battle.pending_votes.RETRY_S", 0.01)
    session = await last(ask(turns, Session(), "Hello!", ANONYMOUS, VISITOR))
    num_tries = 0
    cast = turns.client.vote

    async def away_at_first(*args: Any, **options: Any) -> VoteReply:
        nonlocal num_tries
        num_tries += 1
        if num_tries < 4:
            raise ControllerUnreachable
        return await cast(*args, **options)

    monkeypatch.setattr(turns.client, "vote", away_at_first)
    voted = await last(vote(turns, session, "a"))
    assert voted.outcome == "a"
    assert (num_tries, len(arena.votes)) == (4, 1)


async def test_a_failed_turn_is_asked_again_in_its_place(turns: Turns, arena: FakeArena) -> None:
    session = await last(ask(turns, Session(), "Hello!", ANONYMOUS, VISITOR))
    session = await last(ask(turns, session, "fail b once, please", ANONYMOUS, VISITOR))
    assert session.has_failed_turn
    assert session.has_answers, "the turn before can be voted on"
    arena.fails = False
    again = await last(turns.follow(turns.begin_again(session), VISITOR))
    assert [exchange.has_failed for exchange in again.exchanges] == [False, False]
    assert len(arena.battles) == 1


async def test_a_question_of_a_stale_tab_goes_back_into_its_box(turns: Turns) -> None:
    session = await last(ask(turns, Session(), "Hello!", ANONYMOUS, VISITOR))
    await last(ask(turns, session, "in another tab", ANONYMOUS, VISITOR))
    stale = await last(ask(turns, session, "in this one", ANONYMOUS, VISITOR))
    assert [exchange.content for exchange in stale.exchanges] == ["Hello!", "in another tab"]
    assert stale.unsent_text == "in this one"
    assert stale.notice == texts.FAILURES["stale_turn"]


async def test_a_vote_of_a_stale_tab_is_not_recorded_and_the_tab_shows_the_battle(
    turns: Turns, arena: FakeArena
) -> None:
    session = await last(ask(turns, Session(), "Hello!", ANONYMOUS, VISITOR))
    await last(ask(turns, session, "in another tab", ANONYMOUS, VISITOR))
    stale = await last(vote(turns, session, "a"))
    assert [exchange.content for exchange in stale.exchanges] == ["Hello!", "in another tab"]
    assert (stale.notice, stale.choice, stale.names) == (texts.WENT_ON, None, None)
    assert arena.votes == []
    assert (await last(vote(turns, stale, "b"))).outcome == "b"


async def test_a_vote_of_a_stale_tab_follows_the_turn_that_runs(turns: Turns, arena: FakeArena) -> None:
    session = await last(ask(turns, Session(), "Hello!", ANONYMOUS, VISITOR))
    async for begun in turns.begin(session, "slow story", ANONYMOUS, VISITOR):
        running = begun
    asking = asyncio.ensure_future(last(turns.follow(running, VISITOR)))
    while not arena.num_streaming:
        await asyncio.sleep(0.005)
    stale = await last(vote(turns, session, "a"))
    assert stale.exchanges == (await asking).exchanges
    assert stale.is_votable
    assert arena.votes == []


async def test_a_stale_tab_answers_nothing_again(turns: Turns, arena: FakeArena) -> None:
    session = await last(ask(turns, Session(), "Hello!", ANONYMOUS, VISITOR))
    later = await last(ask(turns, session, "in another tab", ANONYMOUS, VISITOR))
    stale = await last(turns.follow(turns.begin_again(session), VISITOR))
    assert stale.exchanges == later.exchanges
    assert stale.notice == texts.WENT_ON
    assert stale.is_votable


async def test_a_question_whose_number_another_tab_took_goes_back_into_the_box(turns: Turns) -> None:
    session = await last(ask(turns, Session(), "Hello!", ANONYMOUS, VISITOR))
    await last(ask(turns, session, "in another tab", ANONYMOUS, VISITOR))
    closed = Bookmark(session.battle_id, asked="asked when the tab was closed", number=2)
    back = await turns.take_up(closed, "anonymous", VISITOR)
    assert back.unsent_text == "asked when the tab was closed"
    assert back.notice == texts.FAILURES["stale_turn"]
    same = await turns.take_up(Bookmark(session.battle_id, asked="in another tab", number=2), "anonymous", VISITOR)
    assert (same.unsent_text, same.notice) == (None, None)


async def test_a_vote_that_was_clicked_before_another_tab_went_on_is_not_sent(turns: Turns, arena: FakeArena) -> None:
    session = await last(ask(turns, Session(), "Hello!", ANONYMOUS, VISITOR))
    await last(ask(turns, session, "in another tab", ANONYMOUS, VISITOR))
    back = await turns.take_up(Bookmark(session.battle_id, choice=Choice("a", number=1)), "anonymous", VISITOR)
    assert (back.choice, back.notice) == (None, texts.WENT_ON)
    assert arena.votes == []


async def test_stop_ends_both_answers_and_leaves_them_votable(turns: Turns) -> None:
    async for session in ask(turns, Session(), "slow story", ANONYMOUS, VISITOR):
        if session.exchanges[-1].a.text and session.exchanges[-1].b.text:
            await turns.stop(session, VISITOR)
    assert session.exchanges[-1].a.status == "stopped"
    assert session.is_votable


async def test_regenerate_answers_the_last_turn_again(turns: Turns, arena: FakeArena) -> None:
    session = await last(ask(turns, Session(), "Hello!", ANONYMOUS, VISITOR))
    again = await last(turns.follow(turns.begin_again(session), VISITOR))
    assert again.is_votable
    assert len(again.exchanges) == 1
    assert len(next(iter(arena.battles.values())).turns) == 1


async def test_a_reload_in_the_middle_follows_the_rest_of_the_stream(turns: Turns) -> None:
    async for session in ask(turns, Session(), "slow story", ANONYMOUS, VISITOR):
        if session.exchanges[-1].a.text:
            break
    assert session.battle_id is not None
    whole = await last(turns.follow(await turns.restore(session.battle_id, VISITOR), VISITOR))
    assert whole.is_votable
    assert whole.exchanges[-1].a.text.startswith("Once there was")
    assert whole.exchanges[-1].a.text.endswith("next winter.")


async def test_a_controller_that_restarts_is_waited_for(turns: Turns, arena: FakeArena) -> None:
    arena.refuse_creation, arena.refusal = 1, ErrorCode.STORE_UNAVAILABLE
    seen = [session async for session in ask(turns, Session(), "Hello!", ANONYMOUS, VISITOR)]
    assert texts.ARENA_AWAY in {session.notice for session in seen}
    assert seen[-1].is_votable


async def test_a_prompt_that_no_controller_got_is_sent_after_a_reload(turns: Turns) -> None:
    async for session in turns.begin(Session(), "Hello!", ANONYMOUS, VISITOR):
        bookmark = from_storage(bookmark_of(session).to_storage())
    assert bookmark.asked == "Hello!"
    taken_up = await turns.take_up(bookmark, "anonymous", VISITOR)
    assert taken_up.pending == "turn"
    assert (await last(turns.follow(taken_up, VISITOR))).is_votable
    again = await turns.take_up(bookmark, "anonymous", VISITOR)
    assert again.is_votable, "the controller has the turn by now, so it is not sent again"
    assert len(again.exchanges) == 1


async def test_a_prompt_without_a_battle_is_back_in_the_box_after_a_reload(turns: Turns) -> None:
    first = await anext(turns.begin(Session(), "Hello!", ANONYMOUS, VISITOR))
    taken_up = await turns.take_up(from_storage(bookmark_of(first).to_storage()), "anonymous", VISITOR)
    assert taken_up.unsent_text == "Hello!"
    assert not taken_up.is_busy


async def test_a_battle_that_cannot_be_read_now_is_not_forgotten(
    arena: FakeArena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webui.battle.turn._READ_DELAYS_S", (0.0,))
    client = ControllerClient("http://127.0.0.1:9")
    session = await new_turns(client).restore(BattleId("battle-1"), VISITOR)
    assert session.battle_id == "battle-1"
    assert session.can_resume


async def test_a_prompt_that_another_page_was_faster_with_goes_back_into_the_box(turns: Turns) -> None:
    battle = await turns.client.create_battle(ANONYMOUS, VISITOR)
    async with aclosing(turns.client.turn(battle.id, 1, "slow story", VISITOR)) as other:
        await anext(other)
        mine = Session(battle_id=battle.id).asking("Hello!")
        session = await last(turns.follow(mine, VISITOR))
    assert session.is_votable
    assert session.unsent_text == "Hello!"
    assert [exchange.content for exchange in session.exchanges] == ["slow story"]


async def test_a_battle_that_is_gone_gives_an_empty_page(turns: Turns) -> None:
    assert await turns.restore(BattleId("gone"), VISITOR) == Session()


async def test_a_vote_that_was_already_recorded_shows_what_was_recorded(turns: Turns, arena: FakeArena) -> None:
    session = await last(ask(turns, Session(), "Hello!", ANONYMOUS, VISITOR))
    await last(vote(turns, session, "a"))
    other = await last(vote(turns, session, "b"))
    assert other.outcome == "a"
    assert other.notice == texts.FAILURES["battle_already_voted"]
    assert len(arena.votes) == 1
    assert (await last(vote(turns, session, "a"))).notice is None


async def test_the_first_event_comes_at_once_and_those_of_one_interval_together() -> None:
    first_was_seen = asyncio.Event()

    async def numbers() -> AsyncGenerator[int, None]:
        yield 0
        await first_was_seen.wait()
        for number in range(1, 6):
            yield number

    gathered = batches(numbers(), 0.01)
    assert await anext(gathered) == [0]
    first_was_seen.set()
    assert [batch async for batch in gathered] == [[1, 2, 3, 4, 5]]


async def test_an_error_comes_after_everything_that_came_before_it() -> None:
    async def numbers() -> AsyncGenerator[int, None]:
        yield 1
        raise ValueError("broken")

    gathered = batches(numbers(), 0.01)
    assert await anext(gathered) == [1]
    with pytest.raises(ValueError, match="broken"):
        await anext(gathered)


async def test_closing_the_batches_closes_the_stream_behind_them() -> None:
    closed = asyncio.Event()

    async def endless() -> AsyncGenerator[int, None]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            closed.set()

    following = batches(endless(), 0.01)
    await anext(following)
    await following.aclose()
    assert closed.is_set()


async def test_a_vote_that_is_taken_back_is_never_sent(client: ControllerClient, arena: FakeArena) -> None:
    turns = new_turns(client, undo_s=60)
    session = await last(ask(turns, Session(), "Hello!", ANONYMOUS, VISITOR))
    chosen = turns.choose(session, Choice("a"), VISITOR)
    assert not chosen.is_votable
    ending = asyncio.ensure_future(last(turns.finish_vote(chosen, VISITOR)))
    undone = turns.undo(chosen, VISITOR)
    assert undone == session
    with pytest.raises(IndexError):  # nothing is shown
        await ending
    assert arena.votes == []
    assert (await last(vote(new_turns(client), undone, "b"))).outcome == "b"


async def test_a_vote_is_sent_although_its_page_was_closed(client: ControllerClient, arena: FakeArena) -> None:
    turns = new_turns(client, undo_s=60)
    session = await last(ask(turns, Session(), "Hello!", ANONYMOUS, VISITOR))
    chosen = turns.choose(session, Choice("a"), VISITOR)
    turns.send_now(chosen, VISITOR)
    await turns.pending_votes.close()
    assert [outcome for *_, outcome in arena.votes] == ["a"]
    assert turns.undo(chosen, VISITOR).choice is not None, "it is too late"


async def test_a_vote_whose_server_was_killed_is_sent_by_the_page_that_comes_back(
    client: ControllerClient, arena: FakeArena
) -> None:
    killed = new_turns(client, undo_s=60)
    session = await last(ask(killed, Session(), "Hello!", ANONYMOUS, VISITOR))
    stored = bookmark_of(killed.choose(session, Choice("b", True), VISITOR)).to_storage()
    turns = new_turns(client)
    session = await turns.take_up(from_storage(json.loads(json.dumps(stored))), "anonymous", VISITOR)
    assert session.choice == Choice("b", True, number=1)
    assert (await last(turns.finish_vote(session, VISITOR))).outcome == "b"
    killed.send_now(session, VISITOR)  # the other one was not dead after all
    await killed.pending_votes.close()
    assert [outcome for *_, outcome in arena.votes] == ["b"]
    assert arena.consents == [True]


async def test_a_vote_of_another_visitor_cannot_be_taken_back(client: ControllerClient, arena: FakeArena) -> None:
    turns = new_turns(client, undo_s=60)
    session = await last(ask(turns, Session(), "Hello!", ANONYMOUS, VISITOR))
    chosen = turns.choose(session, Choice("a"), VISITOR)
    assert turns.undo(chosen, Visitor("192.0.2.99")).choice is not None
    await turns.pending_votes.close()
    assert len(arena.votes) == 1
