"""Traces: the spans of a turn add up, name what happened, and reach a collector; they hold no text."""

import asyncio
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.types import Receive, Scope, Send

from controller.battles.spans import Span, turn_span
from controller.battles.traces import Traces
from tests.controller.conftest import OpenArena
from tests.controller.support.arena import Arena, eventually
from tests.controller.support.fake_worker import FakeWorker
from tests.service_kit.test_tls import CERTIFICATES, serving
from wire.ids import BattleId
from wire.trails import TrailEntry

REQUEST = "0123456789abcdef" * 2


def _entry(time: float, step: str, **fields: object) -> TrailEntry:
    values = {"time": time, "controller": "c", "step": step, "turn": 1, **fields}
    return TrailEntry.model_validate(values)


def _replayed_turn() -> list[TrailEntry]:
    side = {"side": "a", "model": "raven"}
    return [
        _entry(10, "began", request_id=REQUEST),
        _entry(11, "accepted", worker="one", **side),
        _entry(13, "first_token", worker="one", **side),
        _entry(14, "trouble", worker="one", reason="connection broke", tokens=5, **side),
        _entry(16, "accepted", worker="two", **side),
        _entry(19, "finished", worker="two", tokens=9, queue_ms=500, reason="stop", **side),
        _entry(19.5, "ended", reason="finished"),
    ]


def test_the_spans_of_a_side_follow_one_another_without_gaps() -> None:
    turn = turn_span(_replayed_turn())

    [answer] = turn.children
    assert [(span.name, span.start, span.end, span.is_error) for span in answer.children] == [
        ("wait", 10, 11, False),
        ("queue", 11, 11.5, False),
        ("prefill", 11.5, 13, False),
        ("decode", 13, 14, True),
        ("replay", 14, 16, False),
        ("decode", 16, 19, False),
    ]
    assert (answer.start, answer.end, turn.end) == (10, 19, 19.5)
    assert answer.attributes["agon.tokens"] == 9


async def test_a_collector_with_a_private_authority_gets_the_traces() -> None:
    paths: list[str] = []

    async def collector(scope: Scope, receive: Receive, send: Send) -> None:
        paths.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with serving((CERTIFICATES / "server.pem", CERTIFICATES / "server.key"), collector) as port:
        for ca_file in (None, CERTIFICATES / "ca.pem"):
            traces = Traces(f"https://127.0.0.1:{port}/v1/traces", ca_file)
            for entry in _replayed_turn():
                traces.note(BattleId("b"), entry)
            await asyncio.to_thread(traces.close)
    assert paths == ["/v1/traces"]


def test_a_turn_becomes_one_trace_named_by_its_request() -> None:
    kept = InMemorySpanExporter()
    traces = Traces("http://unused", exporter=kept)
    for entry in _replayed_turn():
        traces.note(BattleId("b"), entry)
    traces.note(BattleId("b"), _entry(30, "voted", turn=None, ms=250, request_id="a client's"))
    traces.close()

    spans = kept.get_finished_spans()
    turn = next(span for span in spans if span.name == "turn")
    vote = next(span for span in spans if span.name == "vote")
    assert {f"{span.context.trace_id:032x}" for span in spans if span is not vote} == {REQUEST}
    assert turn.parent is None
    assert vote.parent is None
    assert (vote.end_time or 0) - (vote.start_time or 0) == 250_000_000
    assert _depths(spans)["queue"] == 2


def _depths(spans: Sequence[ReadableSpan]) -> dict[str, int]:
    by_id = {span.context.span_id: span for span in spans}

    def depth(span: ReadableSpan) -> int:
        return 0 if span.parent is None else 1 + depth(by_id[span.parent.span_id])

    return {span.name: depth(span) for span in spans}


async def test_traces_of_an_arena_reach_a_collector_and_hold_no_text(open_arena: OpenArena) -> None:
    bodies: list[bytes] = []

    async def collect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        bodies.append(await reader.readexactly(length))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    collector = await asyncio.start_server(collect, "127.0.0.1", 0)
    port = collector.sockets[0].getsockname()[1]
    async with open_arena(otlp_endpoint=f"http://127.0.0.1:{port}/v1/traces") as arena:
        await arena.add_two()
        battle = (await arena.create())["id"]
        await arena.turn(battle, "a secret question")
        await eventually(lambda: arena.has_ended(battle))
    await eventually(lambda: bool(bodies))
    collector.close()

    assert b"prefill" in b"".join(bodies)
    assert b"agon.model" in b"".join(bodies)
    assert not any(text in b"".join(bodies) for text in (b"secret", b"w0 ", battle.encode()))


async def test_an_answer_of_a_worker_is_found_by_the_request_that_asked_for_it(arena: Arena) -> None:
    await arena.add_worker(FakeWorker("alpha"))
    await arena.add_worker(FakeWorker("beta"))
    battle = (await arena.create())["id"]
    await arena.events(
        "POST", f"/arena/battles/{battle}/turns", json={"content": "x"}, headers={"X-Request-Id": "asked-1"}
    )

    await eventually(lambda: arena.has_ended(battle))
    view = await arena.trail(battle)

    assert {entry.request_id for entry in view.entries if entry.step == "began"} == {"asked-1"}
    answers = {entry.request_id for entry in view.entries if entry.step == "accepted"}
    assert answers == {request.request_id for worker in arena.workers for request in worker.requests}
    assert isinstance(turn_span([entry for entry in view.entries if entry.turn == 1]), Span)
