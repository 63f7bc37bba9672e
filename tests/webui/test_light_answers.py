"""Pages and files are compressed, kept by browsers and not sent again while they are the same."""

import gzip
from collections.abc import Iterator

import brotli
import httpx
import pytest

from tests.webui.conftest import Site
from webui.light_answers import LightAnswers

PAGES = ("/", "/side-by-side", "/chat", "/leaderboard")


@pytest.fixture
def browser_like(site: Site) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=site.url, trust_env=False) as client:
        client.get("/")  # for the cookie: its answer is not the one that later visits get
        yield client


def _raw(client: httpx.Client, path: str, **headers: str) -> tuple[httpx.Response, bytes]:
    with client.stream("GET", path, headers=headers) as answer:
        return answer, b"".join(answer.iter_raw())


def _first_script(client: httpx.Client) -> str:
    page = client.get("/").text
    start = page.index("/assets/index-")
    return page[start : page.index('"', start)]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_small_and_its_second_visit_is_smaller(browser_like: httpx.Client, path: str) -> None:
    plain, whole = _raw(browser_like, path, **{"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    answer, body = _raw(browser_like, path, **{"Accept-Encoding": "gzip, deflate, br, zstd"})
    assert answer.headers["content-encoding"] == "br"
    assert brotli.decompress(body) == whole
    assert int(answer.headers["content-length"]) == len(body) < 40_000
    assert "Accept-Encoding" in answer.headers["vary"]

    again, body = _raw(browser_like, path, **{"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, body) == (304, b"")
    assert again.headers["cache-control"] == "no-cache"


def test_gzip_is_sent_to_those_who_know_nothing_better(browser_like: httpx.Client) -> None:
    for accepted in ("gzip", "br;q=0, gzip;q=0.5"):
        answer, body = _raw(browser_like, "/", **{"Accept-Encoding": accepted})
        assert answer.headers["content-encoding"] == "gzip"
        assert gzip.decompress(body) == _raw(browser_like, "/", **{"Accept-Encoding": ""})[1]


def test_a_page_that_gives_a_cookie_is_kept_by_nobody_else(site: Site) -> None:
    with httpx.Client(base_url=site.url, trust_env=False) as client:
        answer = client.get("/")
    assert "set-cookie" in answer.headers
    assert answer.headers["cache-control"] == "private, no-cache"


def test_a_file_whose_name_bears_a_digest_is_kept_for_a_year(browser_like: httpx.Client) -> None:
    script = _first_script(browser_like)
    plain = _raw(browser_like, script, **{"Accept-Encoding": "identity"})[1]
    answer, body = _raw(browser_like, script, **{"Accept-Encoding": "br"})
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert brotli.decompress(body) == plain
    part, body = _raw(browser_like, script, **{"Range": "bytes=0-99"})
    assert (part.status_code, body) == (206, plain[:100])


def test_what_must_not_be_stored_passes_as_it_is(browser_like: httpx.Client) -> None:
    answer = browser_like.get("/notices", headers={"Accept-Encoding": "br"})
    assert answer.headers["cache-control"] == "no-store"
    assert "etag" not in answer.headers


async def test_what_was_not_asked_for_longest_is_dropped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webui.light_answers._MAX_KEPT_BYTES", 1000)

    async def app(scope, receive, send):  # type: ignore[no-untyped-def]
        """A page that says its path in many words."""
        headers = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        body = b"".join(f"{scope['path']} {n * n * 7919}".encode() for n in range(60))
        await send({"type": "http.response.body", "body": body[:99], "more_body": True})
        await send({"type": "http.response.body", "body": body[99:]})

    light = LightAnswers(app)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(light), base_url="http://arena") as client:
        for number in range(20):
            answer = await client.get(f"/{number}", headers={"Accept-Encoding": "br"})
            assert answer.headers["content-encoding"] == "br"
            assert answer.text.startswith(f"/{number} 0/{number} 7919")
    assert 0 < light.num_kept_bytes <= 1000
