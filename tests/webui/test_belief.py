"""An operator learns that the controllers take all visitors of a web UI for one, or the web UI those of its proxy."""

import logging
from typing import Any

import httpx
import pytest

from webui.belief import Belief
from webui.believed_proxies import BelievedProxies
from webui.client import ControllerClient
from wire.proxies import PROXY_TOKEN_HEADER

URLS = ("http://one:8100", "http://two:8100")


class Controllers(httpx.AsyncBaseTransport):
    """Answers /ready as controllers do: `belief` by host, None for one that is away."""

    def __init__(self) -> None:
        self.belief: dict[str, str | None] = {"one": "believed", "two": "believed"}
        self.asked: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        belief = self.belief[request.url.host]
        if belief is None:
            raise httpx.ConnectError("away", request=request)
        return httpx.Response(200, json={"status": "ready", "models": 2, "forwarded_address": belief})


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    ours = [record for record in caplog.records if record.name == "webui.belief"]
    found = [(record.getMessage(), getattr(record, "fields", {}).get("controller", "")) for record in ours]
    caplog.clear()
    return found


async def test_a_controller_that_does_not_believe_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "webui.belief")
    controllers = Controllers()
    client = ControllerClient(*URLS, proxy_token="proxy-token-for-tests", transport=controllers)
    belief = Belief(client, has_token=True)
    await belief.ask_round()
    assert belief.is_whole
    assert events(caplog) == []
    shown = controllers.asked[0].headers
    assert (shown["x-forwarded-for"], shown[PROXY_TOKEN_HEADER]) == ("192.0.2.1", "proxy-token-for-tests")

    controllers.belief["two"] = "ignored"
    await belief.ask_round()
    assert not belief.is_whole
    assert "AGON_PROXY_TOKEN" in caplog.records[0].fields["hint"]
    assert events(caplog) == [("visitors_count_as_one", URLS[1])]
    controllers.belief["two"] = None  # away: nothing new is known of it
    await belief.ask_round()
    assert not belief.is_whole
    assert events(caplog) == []

    controllers.belief["two"] = "believed"
    await belief.ask_round()
    assert belief.is_whole
    assert events(caplog) == [("visitors_are_told_apart", URLS[1])]
    await client.aclose()


async def test_a_web_ui_without_a_token_is_told_both_ways(caplog: pytest.LogCaptureFixture) -> None:
    controllers = Controllers()
    controllers.belief["one"] = "ignored"
    client = ControllerClient(*URLS, transport=controllers)
    await Belief(client, has_token=False).ask_round()
    hint = caplog.records[0].fields["hint"]  # type: ignore[attr-defined]
    assert "AGON_PROXY_TOKEN" in hint
    assert "AGON_TRUSTED_PROXIES" in hint
    await client.aclose()


@pytest.mark.parametrize(("trusted", "is_warned"), [("", True), ("10.0.0.1", True), ("127.0.0.1", False)])
async def test_a_proxy_that_the_web_ui_does_not_believe_is_said_once(
    trusted: str, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    async def inside(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["client"][0])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    transport = httpx.ASGITransport(BelievedProxies(inside, trusted), client=("127.0.0.1", 1234))
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        await client.get("/")
        by_peer = {"X-Forwarded-For": "198.51.100.1", PROXY_TOKEN_HEADER: "that of another web UI"}
        await client.get("/", headers=by_peer)
        assert caplog.records == []
        for _ in range(2):
            await client.get("/", headers={"X-Forwarded-For": "198.51.100.1"})
    assert seen[-1] == ("127.0.0.1" if is_warned else "198.51.100.1")
    assert [record.getMessage() for record in caplog.records] == ["forwarded_address_ignored"] * is_warned
