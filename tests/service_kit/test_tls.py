"""Services speak HTTPS; clients say what is wrong with a certificate that they do not trust."""

import os
import shutil
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from service_kit.certificate import examine
from service_kit.listening import listen
from service_kit.serving import server_config
from service_kit.trust import tls_problem, trust
from tests.quick_server import QuickServer

CERTIFICATES = Path(__file__).parents[1] / "certificates"
CA, SERVER, SERVER_KEY = (CERTIFICATES / name for name in ("ca.pem", "server.pem", "server.key"))
EXPIRED, EXPIRED_KEY, OTHER, OTHER_KEY = (
    CERTIFICATES / name for name in ("expired.pem", "expired.key", "other.pem", "other.key")
)


async def scheme_app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the scheme that it was asked by."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["scheme"].encode()})


@asynccontextmanager
async def serving(pair: tuple[Path, Path] | None, app: ASGIApp = scheme_app) -> AsyncIterator[int]:
    """The port of a service."""
    with listen("127.0.0.1", 0) as listener:
        config = server_config(app, drain_s=10, lifespan="off", tls_pair=pair)
        server = QuickServer(config)
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[listener])
        try:
            yield listener.getsockname()[1]
        finally:
            await server.shutdown(sockets=[listener])


async def test_a_service_with_a_certificate_is_trusted_by_its_authority_and_by_no_other() -> None:
    async with serving((SERVER, SERVER_KEY)) as port:
        url = f"https://127.0.0.1:{port}/"
        async with httpx.AsyncClient(verify=trust(CA), trust_env=False) as client:
            assert (await client.get(url)).text == "https"
        async with aiohttp.ClientSession() as session, session.get(url, ssl=trust(CA)) as answer:
            assert await answer.text() == "https"
        for foreign in (None, OTHER):
            said = await _problem(url, foreign)
            assert "not trusted here" in said
            assert "AGON_CA_FILE" in said


@pytest.mark.parametrize(
    ("pair", "authority", "sentence"),
    [
        ((EXPIRED, EXPIRED_KEY), EXPIRED, "has expired"),
        ((OTHER, OTHER_KEY), OTHER, "for another host"),
        (None, CA, "speaks plain HTTP"),
    ],
)
async def test_what_is_wrong_with_a_server_is_said(
    pair: tuple[Path, Path] | None, authority: Path, sentence: str
) -> None:
    async with serving(pair) as port:
        said = await _problem(f"https://127.0.0.1:{port}/", authority)
        assert sentence in said
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError) as failure:
                await session.get(f"https://127.0.0.1:{port}/", ssl=trust(authority))
        assert tls_problem(failure.value) == said


async def test_a_client_that_keeps_its_connection_holds_no_stop_up() -> None:
    async with httpx.AsyncClient(verify=trust(CA), trust_env=False) as client:
        async with serving((SERVER, SERVER_KEY)) as port:
            await client.get(f"https://127.0.0.1:{port}/")
            stopping_at = time.monotonic()
        assert time.monotonic() - stopping_at < 5


async def test_a_renewed_certificate_is_shown_from_the_next_connection_on(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    number = 0

    def write(source: Path, target: Path) -> None:
        nonlocal number
        number += 1
        shutil.copy(source, target)
        os.utime(target, (number, number))

    write(SERVER, cert)
    write(SERVER_KEY, key)
    async with serving((cert, key)) as port:
        url = f"https://127.0.0.1:{port}/"

        async def answer() -> str:
            async with httpx.AsyncClient(verify=trust(CA), trust_env=False) as client:
                return (await client.get(url)).text

        assert await answer() == "https"
        write(EXPIRED, cert)  # the key is still the old one: the old pair stays
        assert await answer() == "https"
        write(EXPIRED_KEY, key)
        assert "has expired" in await _problem(url, EXPIRED)
        cert.unlink()
        assert "has expired" in await _problem(url, EXPIRED)
        write(SERVER_KEY, key)
        write(SERVER, cert)
        assert await answer() == "https"


async def _problem(url: str, ca_file: Path | None) -> str:
    async with httpx.AsyncClient(verify=trust(ca_file), trust_env=False) as client:
        with pytest.raises(httpx.TransportError) as failure:
            await client.get(url)
    return tls_problem(failure.value) or ""


def test_an_error_without_tls_says_nothing_of_it() -> None:
    assert tls_problem(ConnectionRefusedError()) is None


def test_a_certificate_tells_its_names_and_its_end() -> None:
    shown = examine(SERVER, SERVER_KEY, CA)
    assert {"localhost", "127.0.0.1", "10.231.0.2"} <= set(shown.names)
    assert shown.days_left > 30_000


@pytest.mark.parametrize(
    ("cert", "key", "ca_file", "sentence"),
    [
        (EXPIRED, EXPIRED_KEY, None, "has expired"),
        (SERVER, SERVER_KEY, OTHER, "not trusted here"),
        (SERVER, OTHER_KEY, None, "is not that of the certificate"),
        (SERVER_KEY, SERVER_KEY, None, "no certificate and key in PEM form"),
        (SERVER, CERTIFICATES / "nowhere", None, "AGON_TLS_KEY_FILE cannot be read: No such file"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_refused_with_the_reason(
    cert: Path, key: Path, ca_file: Path | None, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        examine(cert, key, ca_file)


def test_a_file_without_certificates_is_no_authority(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(ValueError, match="it holds no certificate"):
        trust(tmp_path / "ca.pem")
    assert isinstance(trust(CA), ssl.SSLContext)
