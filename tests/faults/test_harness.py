"""The harness notices what it is there for: a proxy that breaks what it should, an audit that finds each difference."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults.arena import free_port_range
from tests.faults.audit import Differences
from tests.faults.ledger import Ledger
from tests.faults.proxy import CLEAR, FaultProxy, Link, slow
from tests.faults.table import table
from tests.faults.tally import PROMISES, Tally, as_json, percentiles
from tests.faults.visitors import Reading, Site, Visitor

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def proxied_echo() -> AsyncIterator[tuple[FaultProxy, Streams]]:
    """A server that sends back what it gets, a proxy in front of it, and a connection through the proxy."""
    port = free_port_range()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1000):
                writer.write(data)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", port)
    proxy = FaultProxy(port + 1, port, random.Random(1))
    await proxy.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port + 1)
    try:
        yield proxy, (reader, writer)
    finally:
        writer.close()
        await proxy.stop()
        server.close()


async def reply(streams: Streams, data: bytes, within_s: float = 5.0) -> bytes:
    """What comes back for `data` in the time; empty if nothing does."""
    reader, writer = streams
    writer.write(data)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            return await reader.readexactly(len(data))
    return b""


async def test_a_proxy_without_a_fault_forwards_both_ways() -> None:
    async with proxied_echo() as (_, streams):
        assert await reply(streams, b"hello") == b"hello"


async def test_a_reset_is_seen_as_one() -> None:
    async with proxied_echo() as (proxy, streams):
        await reply(streams, b"hello")
        assert proxy.reset_all() == 1
        with pytest.raises(ConnectionResetError):
            await streams[0].read()


async def test_dropped_bytes_never_arrive() -> None:
    async with proxied_echo() as (proxy, streams):
        proxy.set(forward=Link(is_dropping=True))
        assert await reply(streams, b"hello", within_s=0.1) == b""


async def test_a_half_open_link_delivers_when_it_is_whole_again() -> None:
    async with proxied_echo() as (proxy, streams):
        proxy.set(backward=Link(is_half_open=True))
        assert await reply(streams, b"hello", within_s=0.1) == b""
        proxy.set(backward=CLEAR)
        assert await streams[0].readexactly(5) == b"hello"


async def test_delay_and_bandwidth_take_their_time() -> None:
    async with proxied_echo() as (proxy, streams):
        proxy.set(forward=Link(delay_s=0.1))
        started = time.monotonic()
        await reply(streams, b"hello")
        assert time.monotonic() - started >= 0.1
        proxy.set(forward=slow(2560))
        started = time.monotonic()
        await reply(streams, bytes(320))
        assert time.monotonic() - started >= 0.1


async def test_corruption_changes_one_bit_of_a_piece() -> None:
    async with proxied_echo() as (proxy, streams):
        proxy.set(forward=Link(corrupted_share=1.0))
        received = await reply(streams, bytes(8))
        assert sum(byte.bit_count() for byte in received) == 1


async def ledger_with_votes(path: Path) -> Ledger:
    """Two acknowledged votes, one that was refused, one without an answer."""
    ledger = Ledger(path)
    for battle, outcome in (("one", "a"), ("two", "b"), ("refused", "tie"), ("open", "a")):
        await ledger.sent(battle, outcome)
    await ledger.acknowledged("one", "1-0")
    await ledger.acknowledged("two", "2-0")
    await ledger.refused("refused", "battle_aborted")
    ledger.close()
    return ledger


GOOD_LOG = [("one", "a", "1-0"), ("two", "b", "2-0")]


@pytest.mark.parametrize(
    ("log", "broken"),
    [
        (GOOD_LOG, {}),
        ([*GOOD_LOG, ("open", "a", "3-0")], {}),
        (GOOD_LOG[:1], {"votes_lost": 1}),
        ([*GOOD_LOG, GOOD_LOG[0]], {"votes_doubled": 1}),
        ([("one", "b", "1-0"), GOOD_LOG[1]], {"votes_wrong": 1}),
        ([("one", "a", "9-0"), GOOD_LOG[1]], {"votes_wrong": 1}),
        ([*GOOD_LOG, ("refused", "tie", "3-0")], {"votes_wrong": 1}),
        ([*GOOD_LOG, ("invented", "tie", "3-0")], {"votes_wrong": 1}),
    ],
)
async def test_the_audit_finds_each_difference(
    log: list[tuple[str, str, str]], broken: dict[str, int], tmp_path: Path
) -> None:
    differences, tally = Differences(await ledger_with_votes(tmp_path / "ledger")), Tally()
    differences.compare("the store", log)
    differences.report(tally)
    assert dict(tally.broken) == broken


async def test_the_ledger_is_on_disk_before_a_visitor_goes_on(tmp_path: Path) -> None:
    ledger = await ledger_with_votes(tmp_path / "ledger")
    assert len((tmp_path / "ledger").read_text().splitlines()) == 7
    assert ledger.num_acknowledged == 2


def judged(reading: Reading, number: int = 1, *, forgets_battles: bool = False) -> Tally:
    """The tally after a visitor judged what it has read of a turn."""
    tally = Tally()
    site = Site([], lambda _: 0, None, forgets_battles)  # type: ignore[arg-type]
    visitor = Visitor(site, None, tally, random.Random(1))  # type: ignore[arg-type]
    visitor._judge("battle", number, reading)
    return tally


@pytest.mark.parametrize(
    ("text", "ends", "state", "broken"),
    [
        ("x.0 x.1", {"a": "stop", "b": "stop"}, "answered", {}),
        ("x.0", {"a": "stop", "b": "stop"}, "answered", {"wrong_tokens": 1}),
        ("x.0 x.0 x.1", {"a": "stop", "b": "stop"}, "answered", {"wrong_tokens": 1}),
        ("x.0 x.1", {"a": "stop"}, "answered", {"silent_cuts": 1}),
        ("x.0 x.1", {"a": "stop", "b": "worker_failed"}, "answered", {}),
        ("x.0 x.1", {"a": "stop", "b": "stop"}, "streaming", {"silent_cuts": 1}),
    ],
)
def test_a_visitor_notices_lost_and_doubled_tokens_and_missing_ends(
    text: str, ends: dict[str, str], state: str, broken: dict[str, int]
) -> None:
    reading = Reading("x.0 x.1", texts={"a": text, "b": "x.0 x.1"}, ends=ends, state=state)
    assert dict(judged(reading).broken) == broken


def test_a_later_turn_may_be_refused_and_a_first_one_not_be_answered_so() -> None:
    """The battle is as the turn before left it, which is answered."""
    reading = Reading("x.0 x.1", ends={"a": "queue_full"}, state="answered", is_kept=False)
    assert not judged(reading, 2).broken
    reading.ends.clear()
    assert dict(judged(reading, 1).broken) == {"silent_cuts": 1}


def test_where_the_store_forgets_the_end_of_the_turn_before_is_not_that_of_a_lost_one() -> None:
    reading = Reading("x.0 x.1", state="answered", turn=1)
    assert not judged(reading, 2, forgets_battles=True).broken
    assert dict(judged(reading, 2).broken) == {"silent_cuts": 1}
    assert dict(judged(reading, 1, forgets_battles=True).broken) == {"silent_cuts": 1}


def test_a_delta_with_the_wrong_number_is_noticed() -> None:
    tally = Tally()
    visitor = Visitor(Site([], lambda _: 0, None), None, tally, random.Random(1))  # type: ignore[arg-type]
    reading = Reading("x.0 x.1")
    visitor._take("delta", {"side": "a", "seq": 0, "text": "x.0"}, "1-0", reading)
    visitor._take("delta", {"side": "a", "seq": 2, "text": " x.1"}, "1-2", reading)
    assert tally.broken["wrong_tokens"] == 1


def test_percentiles_are_values_that_occurred() -> None:
    assert percentiles([0.3, 0.1, 0.2]) == {"p50": 0.2, "p99": 0.3, "max": 0.3}
    assert percentiles([]) == {"p50": None, "p99": None, "max": None}


def test_the_table_has_the_earlier_figure_beside_the_new_one() -> None:
    tally = Tally()
    tally.break_promise("votes_lost", "three of them", 3)
    conditions = {"rounds": 1000, "seed": 7, "seconds": 60, "cores": 2, "commit": "abc", "starts": "warm"}
    line = {"scenario": "worker-kill", "what": "worker killed", "unit": "kill -9", **conditions, **as_json(tally)}
    row = table([line]).splitlines()[2]
    assert row.startswith("| worker killed (kill -9) | 1,000 | 0 | 3 | 0 |")
    assert "1,213 battles" in row


def test_an_unknown_promise_is_a_mistake() -> None:
    with pytest.raises(AssertionError):
        Tally().break_promise("no such promise", "")
    assert "votes_lost" in PROMISES
