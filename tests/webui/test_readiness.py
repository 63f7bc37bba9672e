"""Whether the web UI may get visitors: its background work must not fail."""

import asyncio

import httpx
import pytest

import webui.app
from webui.client import ControllerClient
from webui.config import Settings
from webui.limits import EventRates


async def test_a_web_ui_whose_background_work_fails_is_not_ready_until_it_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_broken = True

    async def forget(_: EventRates) -> None:
        if is_broken:
            raise RuntimeError("a defect")

    async def is_ready(_: ControllerClient) -> bool:
        return True

    monkeypatch.setattr(EventRates, "forget_quiet", forget)
    monkeypatch.setattr(ControllerClient, "is_ready", is_ready)
    monkeypatch.setattr(webui.app, "_FORGET_EVERY_S", 0.05)
    app = webui.app.create_app(Settings(controller_url="http://127.0.0.1:9"))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        asyncio.timeout(30),
    ):
        while (answer := await client.get("/ready")).status_code != 503:
            await asyncio.sleep(0.01)
        assert answer.json()["failing"] == ["forget quiet addresses"]
        is_broken = False
        while (await client.get("/ready")).status_code != 200:
            await asyncio.sleep(0.01)
