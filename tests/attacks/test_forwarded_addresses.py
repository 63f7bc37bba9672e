"""The way of a visitor's address: visitor, perhaps a proxy, web UI, controller. An invented one never arrives."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from ipaddress import ip_network
from typing import Any

import gradio as gr
import pytest
from fastapi import FastAPI, Request
from pydantic import SecretStr

from controller.access.addresses import Addresses
from service_kit.listening import listen
from tests.attacks.conftest import client_of
from tests.controller.support.running import running_app
from tests.quick_server import QuickServer
from webui.__main__ import server_config_of
from webui.client import ControllerClient
from webui.config import Settings
from webui.visitors import visitor_of

TOKEN = "proxy-token-for-tests"


def _controller(addresses: Addresses) -> FastAPI:
    """Says for whom it takes the client of a request."""
    app = FastAPI()

    @app.get("/v1/models")
    async def who(request: Request) -> dict[str, Any]:
        found = addresses.of(request)
        name = f"{found.identity} {'local' if found.is_local else 'visitor'}"
        return {"object": "list", "data": [{"id": name, "created": 0}]}

    return app


@contextlib.asynccontextmanager
async def _web_ui(controller_url: str, **settings: Any) -> AsyncIterator[str]:
    """A page of the web UI that asks the controller on behalf of its visitor, served as the web UI is."""
    chosen = Settings(controller_url=controller_url, webui_port=0, **settings)
    client = ControllerClient(controller_url, proxy_token=chosen.proxy_token.get_secret_value())
    app = FastAPI()

    @app.get("/who")
    async def who(request: Request) -> str:
        return (await client.models(visitor_of(gr.Request(request))))[0]

    server = QuickServer(server_config_of(app, chosen))
    listener = listen("127.0.0.1", 0)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        await client.aclose()


@pytest.mark.parametrize(
    ("token", "ui_trusts", "sent", "taken_for"),
    [
        # A visitor without a proxy.
        (TOKEN, "", None, "127.0.0.1 visitor"),
        (TOKEN, "", "198.51.100.1", "127.0.0.1 visitor"),
        # A proxy in front of the web UI that the operator has named, and one of another network.
        (TOKEN, "127.0.0.1", "198.51.100.1", "198.51.100.1 visitor"),
        (TOKEN, "127.0.0.1", "1.1.1.1, 198.51.100.1", "198.51.100.1 visitor"),
        (TOKEN, "127.0.0.0/8", "2001:db8:0:0:1::2", "2001:db8::/64 visitor"),
        (TOKEN, "10.0.0.0/8", "198.51.100.1", "127.0.0.1 visitor"),
        (TOKEN, "127.0.0.1", "nonsense", "127.0.0.1 visitor"),
        # A web UI without the controller's token speaks for itself only.
        ("", "127.0.0.1", "198.51.100.1", "127.0.0.1 visitor"),
        ("another-token-than-the-controllers", "127.0.0.1", "198.51.100.1", "127.0.0.1 visitor"),
    ],
)
async def test_the_visitors_address_arrives_and_an_invented_one_does_not(
    token: str, ui_trusts: str, sent: str | None, taken_for: str
) -> None:
    headers = {} if sent is None else {"X-Forwarded-For": sent}
    async with (
        running_app(_controller(Addresses((), TOKEN))) as controller_url,
        _web_ui(controller_url, proxy_token=SecretStr(token), webui_trusted_proxies=ui_trusts) as url,
        client_of(url) as visitor,
    ):
        assert (await visitor.get("/who", headers=headers)).json() == taken_for


@pytest.mark.parametrize(
    ("trusted", "headers", "taken_for"),
    [
        ((), {}, "127.0.0.1 local"),
        ((), {"X-Forwarded-For": "198.51.100.1"}, "127.0.0.1 visitor"),
        ((), {"X-Forwarded-For": "198.51.100.1", "X-Agon-Proxy-Token": "guessed"}, "127.0.0.1 visitor"),
        ((), {"X-Forwarded-For": "198.51.100.1", "X-Agon-Proxy-Token": TOKEN}, "198.51.100.1 visitor"),
        (("127.0.0.1/32",), {"X-Forwarded-For": "198.51.100.1"}, "198.51.100.1 visitor"),
        (("127.0.0.1/32",), {"X-Forwarded-For": "1.1.1.1, 198.51.100.1"}, "198.51.100.1 visitor"),
        ((), {"Forwarded": "for=198.51.100.1", "X-Real-IP": "198.51.100.1"}, "127.0.0.1 local"),
    ],
)
async def test_a_client_of_the_controller_is_believed_for_its_token_or_its_network(
    trusted: tuple[str, ...], headers: dict[str, str], taken_for: str
) -> None:
    addresses = Addresses(tuple(ip_network(each) for each in trusted), TOKEN)
    async with running_app(_controller(addresses)) as url, client_of(url) as client:
        reply = await client.get("/v1/models", headers=headers)
    assert reply.json()["data"][0]["id"] == taken_for


async def test_228_invented_visitors_are_one() -> None:
    async with running_app(_controller(Addresses((), TOKEN))) as url, client_of(url) as client:
        seen = set()
        for number in range(228):
            reply = await client.get("/v1/models", headers={"X-Forwarded-For": f"203.0.113.{number}"})
            seen.add(reply.json()["data"][0]["id"])
    assert seen == {"127.0.0.1 visitor"}


@pytest.mark.parametrize(
    ("ui_trusts", "sent", "arrives"),
    [
        ("127.0.0.1", {"X-Forwarded-User": "ada", "X-Forwarded-For": "198.51.100.1"}, "ada"),
        ("127.0.0.1", {"X-Auth-Request-User": "ada"}, "ada"),
        ("127.0.0.1", {"X-Forwarded-User": "ada", "X-Auth-Request-User": "bob"}, None),
        ("127.0.0.1", {b"X-Forwarded-User": "J\u00fcrgen".encode()}, "J%C3%BCrgen"),
        ("127.0.0.1", {}, None),
        # A visitor who is no proxy invents a name.
        ("", {"X-Forwarded-User": "ada"}, None),
        ("10.0.0.0/8", {"X-Forwarded-User": "ada", "X-Forwarded-For": "10.0.0.1"}, None),
    ],
    ids=["named", "other header", "two names", "not ascii", "none", "no proxies", "another proxy"],
)
async def test_the_name_of_a_visitor_arrives_from_trusted_proxies_only(
    ui_trusts: str, sent: Any, arrives: str | None
) -> None:
    names: list[str | None] = []
    app = FastAPI()

    @app.get("/v1/models")
    async def heard(request: Request) -> dict[str, Any]:
        names.append(request.headers.get("x-forwarded-user"))
        return {"object": "list", "data": [{"id": "model", "created": 0}]}

    async with (
        running_app(app) as controller_url,
        _web_ui(controller_url, proxy_token=SecretStr(TOKEN), webui_trusted_proxies=ui_trusts) as url,
        client_of(url) as visitor,
    ):
        assert (await visitor.get("/who", headers=sent)).status_code == 200
    assert names == [arrives]


def test_a_web_ui_that_would_believe_every_visitors_name_does_not_start() -> None:
    with pytest.raises(ValueError, match="name the proxies"):
        Settings(identity="header", webui_trusted_proxies="*")
