"""An event that is sent again with its key is taken once."""

import asyncio

import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from webui.joins_once import KEY_HEADER, JoinsOnce
from webui.limits import JOIN

KEY = "0123456789abcdef" * 2


class Inner:
    """Counts the events that reach it; refuses while `is_full`; waits for `may_answer`."""

    def __init__(self) -> None:
        self.num_taken = 0
        self.is_full = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive).body()
        await self.may_answer.wait()
        if self.is_full:
            await JSONResponse({}, 503, {"Retry-After": "1"})(scope, receive, send)
            return
        self.num_taken += 1
        answer = JSONResponse({"event_id": f"event {self.num_taken}"}, headers={"Set-Cookie": f"n={self.num_taken}"})
        await answer(scope, receive, send)


def client_of(app: JoinsOnce) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x")


async def test_the_second_gets_the_answer_to_the_first() -> None:
    inner = Inner()
    async with client_of(JoinsOnce(inner)) as client:
        answers = [await client.post(JOIN, json={}, headers={KEY_HEADER: KEY}) for _ in range(3)]
    assert inner.num_taken == 1
    assert [answer.json() for answer in answers] == [{"event_id": "event 1"}] * 3
    assert {answer.headers["set-cookie"] for answer in answers} == {"n=1"}


async def test_the_second_waits_for_the_first() -> None:
    inner = Inner()
    inner.may_answer.clear()
    async with client_of(JoinsOnce(inner)) as client:
        both = [asyncio.ensure_future(client.post(JOIN, json={}, headers={KEY_HEADER: KEY})) for _ in range(2)]
        await asyncio.sleep(0.01)
        inner.may_answer.set()
        answers = await asyncio.gather(*both)
    assert inner.num_taken == 1
    assert answers[0].json() == answers[1].json()


async def test_one_that_was_refused_may_be_sent_again() -> None:
    inner = Inner()
    inner.is_full = True
    async with client_of(JoinsOnce(inner)) as client:
        assert (await client.post(JOIN, json={}, headers={KEY_HEADER: KEY})).status_code == 503
        inner.is_full = False
        assert (await client.post(JOIN, json={}, headers={KEY_HEADER: KEY})).status_code == 200
    assert inner.num_taken == 1


async def test_without_a_key_or_with_an_odd_one_each_is_an_event_of_its_own() -> None:
    inner = Inner()
    async with client_of(JoinsOnce(inner)) as client:
        for headers in ({}, {KEY_HEADER: "short"}, {KEY_HEADER: KEY.upper()}):
            for _ in range(2):
                await client.post(JOIN, json={}, headers=headers)
    assert inner.num_taken == 6
