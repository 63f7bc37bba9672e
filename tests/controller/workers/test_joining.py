"""The check before a worker joins: the controller's side over HTTP, and the whole of `agon join` against it."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import pytest

import cli.join_checks
from cli.errors import CliError
from cli.join_checks import check_join, own_address
from controller.access.addresses import Addresses
from controller.workers.worker_hosts import WorkerHosts
from model_worker.config import WorkerSettings
from tests.controller.support.arena import WORKER_TOKEN, Arena
from wire.errors import ApiError

HEADERS = {"Authorization": f"Bearer {WORKER_TOKEN}"}
CERTIFICATES = Path(__file__).parents[2] / "certificates"
TLS = {"tls_cert_file": CERTIFICATES / "server.pem", "tls_key_file": CERTIFICATES / "server.key"}


def settings(arena: Arena, **changes: Any) -> WorkerSettings:
    given = {"model": ("m=echo",), "engine": "echo", "port": 0, "worker_token": WORKER_TOKEN}
    return WorkerSettings(**{**given, "controller_urls": (arena.url,), **changes})


async def check(arena: Arena, url: str, own: str = version("agon")) -> httpx.Response:
    return await arena.client.post("/internal/workers/check", json={"url": url, "version": own}, headers=HEADERS)


@contextlib.asynccontextmanager
async def server(answer: bytes | None) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that answers every request alike, or never; with what it received."""
    received: list[bytes] = []

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))
        if answer is None:
            await reader.read()
        else:
            writer.write(answer)
        writer.close()

    serving = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{serving.sockets[0].getsockname()[1]}", received
    finally:
        serving.close()


async def test_a_machine_that_answers_the_challenge_may_join(arena: Arena) -> None:
    assert await check_join(settings(arena), arena.url) == version("agon")
    assert (await arena.client.get("/arena/workers")).json() == []  # nothing was registered


async def test_it_may_speak_tls_where_the_controller_trusts_its_authority(open_arena: Any) -> None:
    async with open_arena(ca_file=CERTIFICATES / "ca.pem") as arena:
        await check_join(settings(arena, **TLS), arena.url)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"worker_token": "w" * 32}, "does not know this worker token"),
        ({"worker_url": "http://10.9.9.9:8200"}, "Workers on '10.9.9.9' are not allowed: add it"),
        (
            {"worker_url": "http://127.0.0.1:9"},
            "the controller cannot reach http://127.0.0.1:9: it refuses the connection",
        ),
        (TLS, "shows a certificate of an authority that is not trusted here"),
        ({"host": "203.0.113.9"}, "cannot listen on 203.0.113.9"),
    ],
)
async def test_what_is_wrong_is_said_before_a_worker_starts(
    arena: Arena, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(CliError, match=sentence):
        await check_join(settings(arena, **changes), arena.url)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://127.0.0.1:9", "cannot be reached: does it run there, with --host"),
        ("https://127.0.0.1:{port}", "speaks plain HTTP: use http://"),
        ("http://controller.invalid:8100", "cannot be reached"),
    ],
)
async def test_a_controller_that_cannot_be_asked_is_said_to_be_so(arena: Arena, url: str, sentence: str) -> None:
    url = url.format(port=arena.url.rpartition(":")[2])
    with pytest.raises(CliError, match=sentence):
        await check_join(settings(arena, controller_urls=(arena.url,)), url)


async def test_another_server_and_another_version_are_refused(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") as (url, _):
        with pytest.raises(CliError, match="another server than a controller of Agon"):
            await check_join(settings(arena), url)
    report = (await check(arena, "http://127.0.0.1:9", own="0.0.1")).json()
    assert report["version"] == version("agon")
    assert "the worker has Agon 0.0.1 and the controller" in report["problem"]
    monkeypatch.setattr(cli.join_checks, "RELEASE", "0.0.1")
    with pytest.raises(CliError, match=r"the worker has Agon 0\.0\.1 and the controller .* install the controller's"):
        await check_join(settings(arena), arena.url)


async def test_a_taken_port_and_an_address_without_a_way_are_named(arena: Arena) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CliError, match=f"cannot listen on 127.0.0.1:{port}"):
            await check_join(settings(arena, port=port), arena.url)
    assert own_address(arena.url) == "127.0.0.1"
    for url in ("10.0.0.1:8100", "http://controller.invalid:8100"):
        with pytest.raises(CliError):
            own_address(url)


async def test_the_check_asks_a_fixed_path_without_a_credential_and_tells_nothing_of_what_it_finds(
    arena: Arena,
) -> None:
    async with server(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret") as (url, received):
        answer = await check(arena, url)
    assert answer.json()["problem"] == (
        f"Another server answers the controller at {url}: give an address and a port of this machine."
    )
    [head] = received
    assert head.startswith(b"GET /internal/join/")
    assert not {b"authorization", b"cookie"} & {line.partition(b":")[0].lower() for line in head.split(b"\r\n")}
    elsewhere = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    async with server(elsewhere) as (url, received):
        assert "Another server answers" in (await check(arena, url)).json()["problem"]
    assert len(received) == 1


async def test_the_check_ends_in_bounded_time(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.workers.joining.TIMEOUT_S", 0.2)
    async with server(None) as (url, _):
        answer = await check(arena, url)
    assert "does not answer within" in answer.json()["problem"]


@pytest.mark.parametrize("url", ["http://169.254.169.254", "http://127.0.0.1:8200/x", "http://u:p@127.0.0.1:1", "x"])
async def test_no_other_url_is_asked(arena: Arena, url: str) -> None:
    assert (await check(arena, url)).status_code in (400, 403)


async def test_a_stranger_learns_nothing(arena: Arena) -> None:
    body = {"url": "http://127.0.0.1:9", "version": "0"}
    for headers in ({}, arena.admin):
        answer = await arena.client.post("/internal/workers/check", json=body, headers=headers)
        assert answer.status_code in (401, 403)


def test_a_loopback_url_from_another_machine_is_refused() -> None:
    """Otherwise a worker on this machine would be taken for it: a worker is named after its URL."""
    hosts = WorkerHosts(["127.0.0.0/8", "localhost", "::1/128"])
    for url in ("http://127.0.0.1:8200", "http://localhost:8200", "http://[::1]:8200", "http://127.8.8.8:1"):
        with pytest.raises(ApiError, match="cannot be reached at"):
            hosts.checked(url, is_from_here=False)
        assert hosts.checked(url, is_from_here=True) == url


@pytest.mark.parametrize(
    ("peer", "own", "forwarded", "expected"),
    [
        ("127.0.0.1", "127.0.0.1", False, True),
        ("10.0.0.1", "10.0.0.1", False, True),
        ("10.0.0.2", "10.0.0.1", False, False),
        ("::ffff:10.0.0.1", "10.0.0.1", False, True),
        ("127.0.0.1", "127.0.0.1", True, False),
    ],
)
def test_a_request_is_local_where_both_ends_have_one_address(
    peer: str, own: str, forwarded: bool, expected: bool
) -> None:
    from fastapi import Request

    headers = [(b"x-forwarded-for", b"203.0.113.1")] if forwarded else []
    scope = {"type": "http", "client": (peer, 5), "server": (own, 8100), "headers": headers}
    assert Addresses((), "").is_this_machine(Request(scope)) is expected


async def test_a_refused_registration_is_logged_by_the_controller_with_the_reason(
    arena: Arena, caplog: pytest.LogCaptureFixture
) -> None:
    from tests.controller.support.fake_worker import FakeWorker

    caplog.set_level(logging.WARNING, logger="controller")
    worker = FakeWorker("alpha")
    worker.url, worker.boot_id = "http://10.0.0.5:8200", "boot-0001"
    body = worker.registration().model_dump()
    for _ in range(3):  # it tries again every second
        assert (await arena.client.post("/internal/workers", json=body, headers=HEADERS)).status_code == 403
    [line] = [record for record in caplog.records if record.message == "worker_refused"]
    assert "AGON_WORKER_HOSTS" in line.fields["reason"]  # type: ignore[attr-defined]
    assert line.fields["url"] == worker.url  # type: ignore[attr-defined]
