"""The cache of boards: what is shown while the controller is slow or fails."""

import asyncio

import httpx
import pytest

from tests.webui import fake_views
from webui.boards import Boards
from webui.client import ControllerClient
from webui.visitors import Visitor

VISITOR = Visitor("203.0.113.7")


async def test_a_slow_history_does_not_hold_up_the_board_and_is_there_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("webui.boards._PATIENCE_S", 0.02)
    ready = asyncio.Event()
    asked: list[str] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        await ready.wait()
        return httpx.Response(200, content=fake_views.full_history().model_dump_json())

    client = ControllerClient("http://controller", transport=httpx.MockTransport(answer))
    boards = Boards(client, max_age_s=1)
    assert await boards.history(VISITOR, "overall") is None
    ready.set()
    monkeypatch.setattr("webui.boards._PATIENCE_S", 60.0)
    assert await boards.history(VISITOR, "overall") == fake_views.full_history()
    assert asked == ["/arena/leaderboard/history"]
    await client.aclose()


async def test_what_was_known_stays_when_a_later_request_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webui.boards._COMPARED_AGE_S", 0.0)
    replies = [
        httpx.Response(200, content=fake_views.comparison("code", "named").model_dump_json()),
        httpx.Response(404, json={"error": {"message": "gone", "type": "invalid_request_error", "code": "not_found"}}),
    ]
    client = ControllerClient("http://controller", transport=httpx.MockTransport(lambda _: replies.pop(0)))
    boards = Boards(client, max_age_s=0)
    for _ in range(2):
        assert await boards.comparison(VISITOR, "code", "named") == fake_views.comparison("code", "named")
    assert replies == []
    await client.aclose()


async def test_a_history_that_a_controller_has_not_is_not_asked_for_again_at_every_refresh() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        error = {"message": "no such route", "type": "invalid_request_error", "code": "not_found"}
        return httpx.Response(404, json={"error": error})

    client = ControllerClient("http://controller", transport=httpx.MockTransport(answer))
    boards = Boards(client, max_age_s=1)
    assert [await boards.history(VISITOR, "overall") for _ in range(3)] == [None] * 3
    assert len(asked) == 1
    await client.aclose()
