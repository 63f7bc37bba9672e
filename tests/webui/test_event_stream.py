"""The stream of a page's events: numbered, kept for a while, in turns where an address holds many."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest
from gradio.server_messages import LogMessage, ProcessCompletedMessage

from webui import event_stream
from webui.event_stream import MAX_UNREAD_MESSAGES, Messages


def log(text: str) -> LogMessage:
    return LogMessage(log=text, level="info", title="")


class Page:
    """Messages of a session with two events under way."""

    def __init__(self) -> None:
        self.event_ids = {"first", "second"}
        self.messages = Messages(lambda: self.event_ids, base=0)

    def say(self, *texts: str) -> None:
        for text in texts:
            self.messages.put_nowait(log(text))

    def complete(self, event_id: str) -> None:
        self.messages.put_nowait(ProcessCompletedMessage(event_id=event_id, output={}, success=True))

    def read(self, after: int | None = 0, *, is_turn_over: bool = False) -> AsyncGenerator[bytes, None]:
        return self.messages.read(after, lambda _: is_turn_over)


def parsed(piece: bytes) -> tuple[int | None, dict[str, Any]]:
    """Number and content of one message."""
    head, _, data = piece.decode().partition("data: ")
    return int(head.removeprefix("id: ")) if head else None, json.loads(data)


async def some(stream: AsyncGenerator[bytes, None], count: int) -> list[str]:
    """The texts of the next messages, with their numbers."""
    found = []
    for _ in range(count):
        number, message = parsed(await anext(stream))
        found.append(f"{number} {message.get('log', message['msg'])}")
    return found


async def test_a_page_whose_connection_broke_goes_on_where_it_was() -> None:
    page = Page()
    page.say("a", "b", "c")
    async with aclosing(page.read()) as stream:
        assert await some(stream, 3) == ["1 a", "2 b", "3 c"]  # the browser got the first one, then its network was cut
    page.say("d")
    async with aclosing(page.read(after=1)) as stream:
        assert await some(stream, 3) == ["2 b", "3 c", "4 d"]


async def test_a_stream_ends_when_all_events_are_completed() -> None:
    page = Page()
    page.complete("first")
    page.complete("second")
    assert [parsed(piece)[1]["msg"] async for piece in page.read()] == [
        "process_completed",
        "process_completed",
        "close_stream",
    ]
    assert page.event_ids == set()


async def test_a_newer_stream_of_a_page_ends_the_older_one() -> None:
    page = Page()
    older = page.read()
    page.say("a")
    assert await some(older, 1) == ["1 a"]
    waiting = asyncio.ensure_future(anext(older, None))
    await asyncio.sleep(0)
    newer = page.read(after=1)
    page.say("b")
    assert await some(newer, 1) == ["2 b"]
    assert await waiting is None


async def test_a_silent_stream_says_that_it_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "ALIVE_S", 0.001)
    async with aclosing(Page().read()) as stream:
        assert await anext(stream) == b": alive\n\n"


async def test_a_stream_of_a_crowded_address_ends_between_two_messages() -> None:
    page = Page()
    page.say("a")
    assert [parsed(piece)[0] async for piece in page.read(is_turn_over=True)] == [1]
    page.say("b")
    assert [parsed(piece)[0] async for piece in page.read(after=1, is_turn_over=True)] == [2]


async def test_messages_that_were_sent_are_kept_for_a_while_and_then_forgotten() -> None:
    page = Page()
    page.say("a", "b")
    async with aclosing(page.read()) as stream:
        await some(stream, 2)
    page.messages.forget_sent(0.0)
    async with aclosing(page.read(after=1)) as stream:
        assert await some(stream, 1) == ["2 b"]
    page.messages.forget_sent(float("inf"))
    [piece] = [piece async for piece in page.read(after=1)]
    assert parsed(piece)[1]["session_not_found"] is True
    page.say("c")
    async with aclosing(page.read(after=2)) as stream:
        assert await some(stream, 1) == ["3 c"]


async def test_a_browser_that_does_not_read_is_told_to_reload_and_gets_no_more() -> None:
    page = Page()
    page.say(*("x" for _ in range(MAX_UNREAD_MESSAGES + 5)))
    assert page.messages.is_overrun
    async with aclosing(page.read(after=None)) as stream:
        _, message = parsed(await anext(stream))
    assert message["session_not_found"] is True


async def test_a_session_that_was_made_again_is_read_from_its_beginning() -> None:
    """The page has read messages of the session before, for instance before a restart."""
    before, page = Messages(set), Page()
    again = Messages(lambda: page.event_ids)
    again.put_nowait(log("a"))
    async with aclosing(again.read(after=before._last, is_turn_over=lambda _: False)) as stream:
        [text] = await some(stream, 1)
    assert text.endswith(" a")


async def test_of_a_stream_that_came_to_its_end_messages_are_kept_for_a_shorter_time() -> None:
    page = Page()
    page.complete("first")
    page.complete("second")
    async for _ in page.read():
        pass
    now = time.monotonic()
    page.messages.forget_sent(now + event_stream.KEPT_S - 1)
    assert len(page.messages) == 2
    page.messages.forget_sent(now + event_stream.KEPT_S + 1)
    assert len(page.messages) == 0
    assert event_stream.KEPT_S < event_stream.KEPT_OPEN_S
