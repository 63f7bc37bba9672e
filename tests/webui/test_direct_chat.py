"""The actions of direct chat, against the fake controller."""

import asyncio

from tests.webui.fake_answers import CODE, THOUGHTS
from tests.webui.fake_controller import FakeArena
from webui import sentences, texts
from webui.client import ControllerClient
from webui.direct_chat import Chat, DirectChats, from_storage
from webui.visitors import Visitor
from wire.chat import ChatMessage, SamplingOptions

VISITOR = Visitor("203.0.113.7")
MODEL = "grey-vole-1m"


async def test_an_answer_streams_and_can_be_asked_for_again(controller: str) -> None:
    client = ControllerClient(controller)
    chats = DirectChats(client, 0.005)
    begun = chats.begin(Chat(), "Hello", MODEL)
    seen = [chat async for chat in chats.follow(begun, MODEL, SamplingOptions(), VISITOR)]
    assert len(seen) > 2
    assert not seen[-1].is_streaming
    begun = chats.begin_again(seen[-1], MODEL)
    again = [chat async for chat in chats.follow(begun, MODEL, SamplingOptions(), VISITOR)]
    assert again[-1].messages == seen[-1].messages
    await client.aclose()


async def test_thoughts_come_before_the_answer_and_stay_apart_from_it(controller: str) -> None:
    client = ControllerClient(controller)
    chats = DirectChats(client, 0.0)
    begun = chats.begin(Chat(), "think: 12 + 30", MODEL)
    seen = [chat.messages[-1] async for chat in chats.follow(begun, MODEL, SamplingOptions(), VISITOR)]
    assert any(message.reasoning_content and not message.content for message in seen)
    assert (seen[-1].reasoning_content, seen[-1].content) == (THOUGHTS, CODE)
    await client.aclose()


async def test_an_answer_is_asked_for_once_however_often_it_is_followed(arena: FakeArena, controller: str) -> None:
    client = ControllerClient(controller)
    chats = DirectChats(client, 0.005)
    following = chats.follow(chats.begin(Chat(), "Hello", MODEL), MODEL, SamplingOptions(), VISITOR)
    streaming = await anext(following)
    assert [chat async for chat in chats.follow(streaming, MODEL, SamplingOptions(), VISITOR)] == [streaming]
    assert chats.begin(streaming, "More", MODEL) == streaming
    await following.aclose()
    assert not any(path == "/v1/chat/completions" for _, path, _ in arena.requests)
    await client.aclose()


async def test_closing_the_chat_closes_the_request(arena: FakeArena, controller: str) -> None:
    client = ControllerClient(controller)
    chats = DirectChats(client, 0.005)
    following = chats.follow(chats.begin(Chat(), "slow", MODEL), MODEL, SamplingOptions(), VISITOR)
    while not (await anext(following)).messages[-1].content:
        pass
    await following.aclose()
    async with asyncio.timeout(30):
        while not arena.chats_closed:
            await asyncio.sleep(0.01)
    await client.aclose()


async def test_a_prompt_that_was_not_taken_goes_back_into_the_box() -> None:
    client = ControllerClient("http://127.0.0.1:9")
    chats = DirectChats(client, 0.005)
    chat = chats.begin(Chat(), "Hello", None)
    assert (chat.unsent_text, chat.notice) == ("Hello", texts.CHOOSE_MODEL)
    long = "x" * (chats.max_prompt_chars + 1)
    assert chats.begin(Chat(), long, MODEL).notice == sentences.too_long(len(long), chats.max_prompt_chars)
    begun = chats.begin(Chat(), "Hello", MODEL)
    down = [chat async for chat in chats.follow(begun, MODEL, SamplingOptions(), VISITOR)]
    assert (down[-1].unsent_text, down[-1].notice, down[-1].messages) == ("Hello", texts.UNREACHABLE, ())


def test_editing_takes_the_last_exchange_back() -> None:
    messages = (ChatMessage(role="user", content="One"), ChatMessage(role="assistant", content="1"))
    assert Chat(messages).without_last_exchange() == Chat(unsent_text="One")


def test_what_a_browser_kept_is_not_trusted() -> None:
    kept = Chat(
        (
            ChatMessage(role="user", content="One"),
            ChatMessage(role="assistant", content="1", reasoning_content="hm"),
        )
    )
    assert from_storage(kept.to_storage()) == kept
    for broken in (None, 3, "x", [["king", "x"]], [["user"]], [["user", "x", 3]], [["user", "x", "y", "z"]]):
        assert from_storage(broken) == Chat()
