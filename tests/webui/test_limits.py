"""How much one address and all together may ask."""

import asyncio
from typing import Any

import httpx
from starlette.types import Receive, Scope, Send

from webui.limits import BURST_S, DATA, JOIN, EventRates, Limits, OpenStreams


class Behind:
    """The app behind the limits: streams stay open until `gate` is set."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.num_calls = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.num_calls += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] != JOIN:
            await self.gate.wait()
        await send({"type": "http.response.body", "body": b"{}"})


class Rig:
    """Limits in front of Behind, and what they answer."""

    def __init__(self, *, num_waiting: int = 0) -> None:
        self.now = 0.0
        self.behind = Behind()
        self.streams = OpenStreams()
        self.rates = EventRates(2.0, lambda: self.now)
        self.limits = Limits(
            self.behind,
            streams=self.streams,
            rates=self.rates,
            max_waiting=5,
            max_streams=3,
            max_streams_per_address=2,
            num_waiting=lambda: num_waiting,
        )

    async def ask(self, path: str, address: str = "192.0.2.1", query: str = "session_hash=s1") -> httpx.Response:
        transport = httpx.ASGITransport(self.limits, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://ui", verify=False) as client:
            return await client.get(f"{path}?{query}")


def is_typed(answer: httpx.Response, status: int, code: str) -> bool:
    body: dict[str, Any] = answer.json()
    assert body["detail"] == body["error"]["message"], "Gradio's page shows `detail`"
    return (answer.status_code, body["error"]["code"]) == (status, code)


async def test_an_address_has_a_burst_and_a_rate_and_others_are_not_touched() -> None:
    rig = Rig()
    burst = int(2 * BURST_S)
    answers = [await rig.ask(JOIN) for _ in range(burst + 1)]
    assert [answer.status_code for answer in answers] == [200] * burst + [429]
    assert is_typed(answers[-1], 429, "rate_limited")
    assert int(answers[-1].headers["retry-after"]) == 1
    assert rig.behind.num_calls == burst
    assert (await rig.ask(JOIN, "192.0.2.2")).status_code == 200
    rig.now += 0.5
    assert [(await rig.ask(JOIN)).status_code for _ in range(2)] == [200, 429]


async def test_one_network_of_ipv6_is_one_address() -> None:
    rig = Rig()
    for number in range(int(2 * BURST_S)):
        await rig.ask(JOIN, f"2001:db8::{number:x}")
    assert (await rig.ask(JOIN, "2001:db8::ffff")).status_code == 429
    assert (await rig.ask(JOIN, "2001:db8:0:1::1")).status_code == 200


async def test_addresses_that_are_quiet_again_are_forgotten() -> None:
    rig = Rig()
    await rig.ask(JOIN)
    await rig.rates.forget_quiet()
    assert len(rig.rates) == 1
    rig.now += BURST_S + 1
    await rig.rates.forget_quiet()
    assert len(rig.rates) == 0


async def test_too_many_waiting_events_are_refused_for_everyone() -> None:
    assert is_typed(await Rig(num_waiting=5).ask(JOIN), 503, "queue_full")


async def test_open_streams_are_bounded_by_address_and_together_and_counted_until_they_end() -> None:
    rig = Rig()
    paths = (DATA, DATA)
    open_ones = [asyncio.create_task(rig.ask(path)) for path in paths]
    while rig.streams.total < 2:
        await asyncio.sleep(0)
    assert rig.streams.is_read("s1")
    assert is_typed(await rig.ask(DATA), 429, "rate_limited")
    open_ones.append(asyncio.create_task(rig.ask(DATA, "192.0.2.2")))
    while rig.streams.total < 3:
        await asyncio.sleep(0)
    assert is_typed(await rig.ask(DATA, "192.0.2.3"), 503, "queue_full")
    rig.behind.gate.set()
    await asyncio.gather(*open_ones)
    assert rig.streams.total == 0
    assert not rig.streams.by_session
    assert not rig.streams.by_address
