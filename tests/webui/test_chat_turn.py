"""The actions of a chat, against the fake controller, and what a browser keeps of one."""

from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from tests.webui.fake_answers import CODE, STORY, THOUGHTS
from tests.webui.fake_controller import FakeArena
from webui import sentences, texts
from webui.chat.look import messages, notice_of
from webui.chat.session import ChatBookmark, ChatExchange, ChatSession, bookmark_of, from_storage
from webui.chat.turn import ChatSessions, ChatTurns
from webui.client import ControllerClient
from webui.visitors import Visitor
from wire.battles import BattleSampling, DeltaEvent, WakingEvent
from wire.chats import AskChat
from wire.errors import ErrorCode
from wire.ids import ChatId

VISITOR = Visitor("203.0.113.7")
MODEL, OTHER = "grey-vole-1m", "tawny-owl-3m"
COOL = BattleSampling(temperature=0)


@pytest.fixture
async def turns(controller: str) -> AsyncGenerator[ChatTurns, None]:
    client = ControllerClient(controller)
    yield ChatTurns(client, 0.0)
    await client.aclose()


async def last(sessions: ChatSessions) -> ChatSession:
    found = [session async for session in sessions]
    return found[-1]


async def asked(turns: ChatTurns, session: ChatSession, content: str, model: str = MODEL) -> ChatSession:
    """The session when the answer is over."""
    begun = await last(turns.begin(session, content, model, COOL, VISITOR))
    return await last(turns.follow(begun, VISITOR))


async def test_each_answer_keeps_the_name_of_its_model(arena: FakeArena, turns: ChatTurns) -> None:
    session = await asked(turns, ChatSession(system_prompt="Be brief."), "Hello")
    session = await asked(turns, session, "think: 12 + 30", OTHER)
    assert [(one.model, one.answer.status) for one in session.exchanges] == [(MODEL, "finished"), (OTHER, "finished")]
    assert (session.exchanges[1].answer.thoughts, session.exchanges[1].answer.text) == (THOUGHTS, CODE)
    shown = [one["content"] for one in messages(session) if one["role"] == "assistant"]
    assert [name in text for name, text in zip((MODEL, OTHER), shown, strict=True)] == [True, True]
    [chat] = arena.chats.values()
    assert (chat.system_prompt, chat.sampling) == ("Be brief.", COOL)
    assert arena.asked[1] == AskChat(content="think: 12 + 30", number=2, model=OTHER, sampling=COOL)
    restored = await turns.restore(chat.id, VISITOR)
    assert (restored.exchanges, restored.model, restored.system_prompt) == (session.exchanges, OTHER, "Be brief.")


async def test_a_page_that_comes_back_follows_the_answer_that_is_still_written(
    arena: FakeArena, turns: ChatTurns
) -> None:
    begun = await last(turns.begin(ChatSession(), "tell a story", MODEL, None, VISITOR))
    following = turns.follow(begun, VISITOR)
    while not (await anext(following)).exchanges[-1].answer.text:
        pass
    await following.aclose()  # the browser has gone
    bookmark = from_storage(bookmark_of(replace(begun, pending=None)).to_storage())
    session = await turns.take_up(bookmark, VISITOR)
    assert (session.is_busy, session.exchanges[-1].content, session.model) == (True, "tell a story", MODEL)
    session = await last(turns.follow(session, VISITOR))
    assert session.exchanges == (ChatExchange("tell a story", MODEL, session.exchanges[0].answer),)
    assert (session.exchanges[0].answer.text, session.is_busy) == (STORY, False)
    assert len(arena.asked) == 1


async def test_a_question_that_the_controller_never_got_is_sent_by_the_page_that_comes_back(
    arena: FakeArena, turns: ChatTurns
) -> None:
    begun = await last(turns.begin(ChatSession(), "Hello", MODEL, None, VISITOR))
    bookmark = from_storage(bookmark_of(begun).to_storage())
    assert (bookmark.asked, bookmark.number, bookmark.model) == ("Hello", 1, MODEL)
    session = await last(turns.follow(await turns.take_up(bookmark, VISITOR), VISITOR))
    assert session.exchanges[0].answer.status == "finished"
    again = await turns.take_up(bookmark, VISITOR)  # the browser did not hear of it
    assert (again.pending, len(again.exchanges), len(arena.asked)) == (None, 1, 1)


async def test_a_broken_stream_goes_on_where_it_broke(arena: FakeArena, turns: ChatTurns) -> None:
    session = await asked(turns, ChatSession(), "drop: hello")
    assert (session.exchanges[0].answer.text[:5], session.exchanges[0].answer.status) == ("Hello", "finished")
    assert len(arena.asked) == 1


async def test_a_failed_turn_stays_in_place_until_it_is_tried_again(arena: FakeArena, turns: ChatTurns) -> None:
    failed = await asked(turns, await asked(turns, ChatSession(), "Hello"), "fail: hello")
    assert (len(failed.exchanges), failed.has_failed_turn) == (2, True)
    assert texts.CHAT_TURN_FAILED in notice_of(failed)
    assert texts.CHAT_FAILED in messages(failed)[-1]["content"]
    arena.fails = False
    mended = await last(turns.follow(turns.begin_again(failed, OTHER, None), VISITOR))
    assert [(one.model, one.answer.status) for one in mended.exchanges] == [(MODEL, "finished"), (OTHER, "finished")]


async def test_an_edited_question_replaces_the_last_one_when_it_is_sent(arena: FakeArena, turns: ChatTurns) -> None:
    session = await asked(turns, ChatSession(), "Hello")
    editing = session.editing()
    assert (editing.shown, editing.unsent_text, editing.exchanges) == ((), "Hello", session.exchanges)
    changed = await asked(turns, editing, "What is the capital of France?")
    assert [one.content for one in changed.exchanges] == ["What is the capital of France?"]
    [chat] = arena.chats.values()
    assert [turn.content for turn in chat.turns] == ["What is the capital of France?"]


async def test_a_question_that_is_refused_goes_back_into_the_box(turns: ChatTurns) -> None:
    session = await asked(turns, ChatSession(), "Hello")
    refused = await asked(turns, session, "too long")
    assert (refused.unsent_text, len(refused.exchanges), refused.is_busy) == ("too long", 1, False)
    assert refused.notice == texts.CHAT_FAILURES[ErrorCode.CONTEXT_LENGTH_EXCEEDED]
    edited = await asked(turns, session.editing(), "too long")
    assert (edited.unsent_text, edited.is_editing, edited.exchanges) == ("too long", True, session.exchanges)


async def test_the_good_answer_comes_back_where_its_replacement_failed(turns: ChatTurns) -> None:
    session = await asked(turns, ChatSession(), "Hello")
    edited = await asked(turns, session.editing(), "fail: hello")
    assert (edited.is_editing, edited.unsent_text, edited.exchanges) == (True, "fail: hello", session.exchanges)
    assert edited.notice == sentences.failure(ErrorCode.WORKER_FAILED)


async def test_a_stale_tab_shows_how_the_chat_went_on_and_keeps_its_question(turns: ChatTurns) -> None:
    session = await asked(turns, ChatSession(), "Hello")
    await asked(turns, session, "What is 12 + 30?")
    stale = await asked(turns, session, "Tell a story")
    assert [one.content for one in stale.exchanges] == ["Hello", "What is 12 + 30?"]
    assert (stale.notice, stale.unsent_text) == (texts.CHAT_WENT_ON, "Tell a story")


async def test_a_new_chat_deletes_the_one_before_and_a_tab_that_had_it_keeps_its_question(
    arena: FakeArena, turns: ChatTurns
) -> None:
    session = await asked(turns, ChatSession(), "Hello")
    assert await turns.begin_anew(session, VISITOR) == ChatSession(model=MODEL)
    assert arena.chats == {}
    other_tab = await asked(turns, session, "Tell a story")
    assert (other_tab.chat_id, other_tab.unsent_text, other_tab.notice) == (None, "Tell a story", texts.CHAT_GONE)


async def test_what_cannot_be_sent_stays_in_the_box(turns: ChatTurns) -> None:
    nameless = await last(turns.begin(ChatSession(), "Hello", None, None, VISITOR))
    assert (nameless.unsent_text, nameless.notice) == ("Hello", texts.CHOOSE_MODEL)
    long = "x" * (turns.max_prompt_chars + 1)
    refused = await last(turns.begin(ChatSession(), long, MODEL, None, VISITOR))
    assert (refused.unsent_text, refused.notice) == (long, sentences.too_long(len(long), turns.max_prompt_chars))
    odd = await last(turns.begin(ChatSession(), "Hello", "no name", None, VISITOR))
    assert (odd.unsent_text, odd.notice) == ("Hello", texts.CHOOSE_MODEL)


def test_what_a_browser_kept_is_not_trusted() -> None:
    kept = ChatBookmark(ChatId("chat-1"), MODEL, "Hello", 2, "Be brief.")
    assert from_storage(kept.to_storage()) == kept
    for broken in (None, 3, "x", [], [1, 2, 3, 4, 5], [["user", "x"]], ["id", MODEL, "Hello", "2", ""]):
        assert from_storage(broken) == ChatBookmark()
    assert from_storage(["a/b", None, None, 0, ""]) == ChatBookmark()


def test_a_chat_says_that_its_model_wakes_until_the_answer_begins() -> None:
    session = ChatSession().asking("Hello", "finch").after([WakingEvent()])
    assert session.notice == texts.WAKING
    assert session.after([DeltaEvent(side="a", seq=0, text="x")]).notice is None
