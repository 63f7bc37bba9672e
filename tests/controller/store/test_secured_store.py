"""A store with a password, TLS and a user with few permissions; and what the log says when one of these is wrong."""

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controller.metrics import Metrics
from controller.store.inspection import Inspection, inspect
from controller.store.permissions import acl_rule
from controller.store.store import Store
from controller.store_address import parse_address
from tests.controller.support.running import StoreProcess
from wire.errors import ApiError

CERTIFICATES = Path(__file__).parents[2] / "certificates"


@asynccontextmanager
async def behind_tls(store: StoreProcess) -> AsyncGenerator[int, None]:
    """A port that speaks TLS in front of the store."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner = await asyncio.open_unix_connection(store.url.removeprefix("unix://"))
        await asyncio.gather(pump(reader, inner[1]), pump(inner[0], writer), return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def _trouble(url: str, caplog: pytest.LogCaptureFixture, **secrets: object) -> str:
    """The reason that is logged for a store that does not answer."""
    store = Store(parse_address(url, **secrets), timeout_s=2, metrics=Metrics())  # type: ignore[arg-type]
    with pytest.raises(ApiError):
        await store.ping()
    await store.close()
    [record] = [record for record in caplog.records if record.message == "store_unavailable"]
    caplog.clear()
    return str(record.fields["reason"])  # type: ignore[attr-defined]


async def test_a_store_with_tls_and_a_password_is_used(shared_store: StoreProcess) -> None:
    shared_store.add_user(acl_rule("secured", ["test"], password="right"))
    async with behind_tls(shared_store) as port:
        address = parse_address(f"rediss://secured@localhost:{port}", password="right", ca_file=CERTIFICATES / "ca.pem")
        store = Store(address, timeout_s=5, metrics=Metrics())

        found = await inspect(store)

        assert found.problems(num_replicas=0) == []
        assert found.problems(num_replicas=1) != []
        await store.close()


async def test_the_log_says_why_a_store_does_not_answer(
    shared_store: StoreProcess, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    shared_store.add_user(acl_rule("secured", ["test"], password="right"))
    shared_store.add_user("user poor on >right ~* -@all +info")
    plain = shared_store.url
    assert await _trouble(shared_store.url_of("secured", "wrong"), caplog) == "wrong_password"
    assert await _trouble(shared_store.url_of("poor", "right"), caplog) == "not_permitted"
    assert await _trouble("redis://127.0.0.1:1", caplog) == "refused"
    assert await _trouble("redis://no-such-host.invalid", caplog) == "unknown_host"
    assert await _trouble(plain + ".missing", caplog) == "no_socket"
    assert await _trouble("redis+sentinel://127.0.0.1:1/votes", caplog) == "no_primary"
    async with behind_tls(shared_store) as port:
        assert await _trouble(f"rediss://localhost:{port}", caplog) == "certificate_not_trusted"
        assert await _trouble(f"redis://localhost:{port}", caplog) in ("connection_lost", "timeout")


def test_a_replica_that_a_vote_does_not_wait_for_is_a_problem() -> None:
    found = Inspection(version="7.2.4", role="master", num_replicas=2, wrong={}, is_writing=True)

    assert found.problems(num_replicas=2) == []
    assert found.problems(num_replicas=0) == []
    assert "a fail-over may lose votes" in found.problems(num_replicas=1)[0]
    assert "none is acknowledged" in found.problems(num_replicas=3)[0]
