"""Two web UIs behind a proxy that is not sticky: a page's requests reach the one that keeps its events."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from webui.config import Settings
from webui.limits import DATA, JOIN
from webui.metrics import Metrics
from webui.peers import ALIVE, GONE, SERVER_HEADER, Peers, ToPeers
from webui.visitors import SIGNED_IN
from wire.proxies import PROXY_TOKEN_HEADER

TOKEN = "proxy-token-for-tests"
URLS = ("http://10.0.0.1:7860", "http://10.0.0.2:7860")
CANCEL = "/gradio_api/cancel"


@dataclass
class Net(httpx.AsyncBaseTransport):
    """Connects web UIs by their addresses. One that is `down` refuses connections."""

    apps: dict[str, Any] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    num_looks: int = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        address = f"http://{request.url.host}:{request.url.port}"
        self.num_looks += request.url.path == ALIVE and SERVER_HEADER not in request.headers
        if address in self.down or address not in self.apps:
            raise httpx.ConnectError("refused", request=request)
        return await httpx.ASGITransport(self.apps[address], client=("10.0.0.99", 1)).handle_async_request(request)


class WebUi:
    """One web UI without pages: says what it sees of a request. `client` asks it as a browser's proxy does."""

    def __init__(self, url: str, net: Net, urls: tuple[str, ...] = URLS) -> None:
        self.url = url
        self.metrics = Metrics(CollectorRegistry())
        self.peers = Peers(urls, TOKEN if urls else "", transport=net)
        self.app = ToPeers(self._answer, self.peers, self.metrics, max_body_bytes=1000)
        net.apps[url] = self.app
        transport = httpx.ASGITransport(self.app, client=("198.51.100.7", 1234))
        self.client = httpx.AsyncClient(transport=transport, base_url="https://arena.example")

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if scope["path"] == DATA:

            async def events() -> AsyncIterator[bytes]:
                yield f"data: {self.url}\n\n".encode()
                yield b"data: end\n\n"

            await StreamingResponse(events(), media_type="text/event-stream")(scope, receive, send)
            return
        seen = {
            "at": self.url,
            "server": self.peers.own_id,
            "client": scope["client"][0],
            "scheme": scope["scheme"],
            "user": scope.get(SIGNED_IN),
            "host": request.headers["host"],
            "cookie": request.headers.get("cookie"),
            "query": scope["query_string"].decode(),
            "body": (await request.body()).decode(),
        }
        answer: Response = JSONResponse(seen, headers={"Set-Cookie": "voter=1; Path=/"})
        await answer(scope, receive, send)


@pytest.fixture
def net() -> Net:
    return Net()


@pytest.fixture
async def two(net: Net) -> AsyncIterator[tuple[WebUi, WebUi]]:
    async with AsyncExitStack() as stack:
        pair = WebUi(URLS[0], net), WebUi(URLS[1], net)
        for each in pair:
            await stack.enter_async_context(each.client)
            stack.push_async_callback(each.peers.aclose)
        yield pair


def of(page_server: WebUi, **others: str) -> dict[str, str]:
    return {SERVER_HEADER: page_server.peers.own_id, **others}


async def test_a_request_that_comes_to_the_other_one_is_passed_on_as_it_was(two: tuple[WebUi, WebUi]) -> None:
    first, second = two
    headers = of(first, Cookie="voter=9", **{"X-Forwarded-For": "203.0.113.1", "X-Forwarded-User": "mallory"})
    answer = await second.client.post(f"{JOIN}?x=1", json={"data": [1]}, headers=headers)
    seen = answer.json()
    assert seen == {
        "at": first.url,
        "server": first.peers.own_id,
        "client": "198.51.100.7",  # as the second one saw it, whatever the browser said
        "scheme": "https",
        "user": None,
        "host": "arena.example",
        "cookie": "voter=9",
        "query": "x=1",
        "body": json.dumps({"data": [1]}, separators=(",", ":")),
    }
    assert answer.headers["set-cookie"] == "voter=1; Path=/"


async def test_a_stream_is_passed_on(two: tuple[WebUi, WebUi]) -> None:
    first, second = two
    answer = await second.client.get(DATA, params={"session_hash": "s"}, headers=of(first))
    assert answer.text == f"data: {first.url}\n\ndata: end\n\n"
    assert answer.headers["content-type"].startswith("text/event-stream")


async def test_what_a_page_asks_of_its_own_server_or_of_none_stays(two: tuple[WebUi, WebUi], net: Net) -> None:
    first, second = two
    assert (await second.client.post(JOIN, json={}, headers=of(second))).json()["at"] == second.url
    assert (await second.client.post(JOIN, json={})).json()["at"] == second.url
    assert (await second.client.get("/notices", headers=of(first))).json()["at"] == second.url  # any server knows that
    assert net.num_looks == 0


async def test_where_the_server_is_gone_only_the_question_whether_it_is_alive_is_answered(
    two: tuple[WebUi, WebUi], net: Net
) -> None:
    first, second = two
    assert (await second.client.post(CANCEL, json={}, headers=of(first))).json()["at"] == first.url
    net.down.add(first.url)
    for path in (JOIN, CANCEL):
        refused = await second.client.post(path, json={}, headers=of(first))
        assert (refused.status_code, refused.headers[SERVER_HEADER]) == (GONE, second.peers.own_id)
    assert (await second.client.get(ALIVE, headers=of(first))).json()["server"] == second.peers.own_id
    text = second.metrics.passed_on.collect()
    counted = {
        sample.labels["outcome"]: sample.value
        for metric in text
        for sample in metric.samples
        if "outcome" in sample.labels and sample.name.endswith("_total")
    }
    assert counted == {"answered": 1, "gone": 3}


async def test_a_server_that_was_started_again_is_another_one(two: tuple[WebUi, WebUi], net: Net) -> None:
    first, second = two
    before = of(first)
    assert (await second.client.get(ALIVE, headers=before)).json()["at"] == first.url
    again = WebUi(first.url, net)
    async with again.client:
        answer = (await second.client.get(ALIVE, headers=before)).json()
        assert answer["server"] == again.peers.own_id  # the page sees that it is not the one that it knew
        assert (await second.client.post(JOIN, json={}, headers=of(again))).json()["at"] == again.url
    await again.peers.aclose()


async def test_an_invented_server_is_searched_once_a_second(two: tuple[WebUi, WebUi], net: Net) -> None:
    _, second = two
    began = time.monotonic()
    for number in range(2):
        answer = await second.client.post(JOIN, json={}, headers={SERVER_HEADER: f"invented {number}"})
        assert answer.status_code == GONE
    assert net.num_looks == 2 * len(URLS)
    assert time.monotonic() - began >= 0.9


async def test_the_token_alone_makes_a_request_one_of_another_web_ui(two: tuple[WebUi, WebUi]) -> None:
    first, _ = two
    told = {"X-Forwarded-For": "203.0.113.5", "X-Forwarded-Proto": "http", "X-Forwarded-User": "ada"}
    by_peer = (await first.client.post(JOIN, json={}, headers={**told, PROXY_TOKEN_HEADER: TOKEN})).json()
    assert (by_peer["client"], by_peer["scheme"], by_peer["user"]) == ("203.0.113.5", "http", "ada")
    for token in ("", "a guess", "pröxy"):
        headers = [*told.items(), (PROXY_TOKEN_HEADER, token)]
        raw = [(name.encode(), value.encode()) for name, value in headers]
        by_other = (await first.client.post(JOIN, json={}, headers=raw)).json()
        assert (by_other["client"], by_other["user"]) == ("198.51.100.7", None)


async def test_a_body_that_is_too_long_is_refused_here(two: tuple[WebUi, WebUi]) -> None:
    first, second = two
    answer = await second.client.post(JOIN, content=b"x" * 2000, headers=of(first))
    assert answer.json()["error"]["code"] == "request_too_large"


async def test_a_single_web_ui_searches_nothing(net: Net) -> None:
    alone = WebUi(URLS[0], net, urls=())
    async with alone.client as client:
        refused = await client.post(JOIN, json={}, headers={SERVER_HEADER: "before the restart"})
        alive = await client.get(ALIVE, headers={SERVER_HEADER: "before the restart"})
    assert (refused.status_code, alive.json()["server"]) == (GONE, alone.peers.own_id)
    assert net.num_looks == 0


async def test_all_addresses_of_a_name_are_web_uis(net: Net) -> None:
    alone = WebUi("http://127.0.0.1:7860", net)
    by_name = WebUi("http://10.0.0.3:7860", net, urls=("http://localhost:7860",))
    async with alone.client, by_name.client as client:
        assert (await client.post(JOIN, json={}, headers=of(alone))).json()["at"] == alone.url
    for each in (alone, by_name):
        await each.peers.aclose()


def test_web_uis_need_the_token_to_believe_one_another() -> None:
    with pytest.raises(ValidationError, match="AGON_PROXY_TOKEN"):
        Settings(webui_peers="http://10.0.0.1:7860")
    with pytest.raises(ValidationError, match="not an http or https URL"):
        Settings(webui_peers="10.0.0.1", proxy_token=TOKEN)  # type: ignore[arg-type]
    assert Settings(webui_peers=" http://a:1 , http://b:2", proxy_token=TOKEN).peer_urls == ("http://a:1", "http://b:2")  # type: ignore[arg-type]
