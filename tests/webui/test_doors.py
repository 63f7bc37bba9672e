"""Access rules of the web UI: open routes, limits, headers, and limits of the event queue."""

import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from gradio.queueing import Queue
from gradio.routes import App

from tests.fuzz.maker import web_ui_routes
from tests.webui.conftest import MAX_EVENTS, Site
from tests.webui.fake_answers import MODELS
from webui import doors, texts
from webui.theme import ASSETS


@pytest.fixture(scope="module")
def client(site: Site) -> Iterator[httpx.Client]:
    # No TLS: loading the certificate store takes longer than most tests.
    with httpx.Client(base_url=site.url, timeout=60, trust_env=False, verify=False) as client:
        yield client


def test_health_readiness_and_metrics(client: httpx.Client) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"controller": "ready"}
    assert "agon_webui_requests_total" in client.get("/metrics").text


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/upload",
        "/gradio_api/file=/etc/hostname",
        "/gradio_api/call/ask",
        "/gradio_api/run/ask",
        "/gradio_api/runs",
        "/gradio_api/run-history/buckets",
        "/gradio_api/openapi.json",
        "/gradio_api/proxy=http://example.com/",
        "/gradio_api/mcp/",
        "/monitoring",
        "/docs",
        "/openapi.json",
    ],
)
def test_doors_that_no_page_uses_are_shut(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 404
    assert client.post(path).status_code in (404, 405)


OPEN = {
    *(
        "/",
        "/health",
        "/ready",
        "/metrics",
        "/notices",
        *("/admin", "/admin/desk", "/admin/act", "/admin/actions"),
        "/terms",
        "/config",
        "/theme.css",
        "/favicon.ico",
        "/robots.txt",
        "/assets/{path:path}",
    ),
    *(f"{path}{end}" for path in (*texts.PAGES, texts.ABOUT_PATH) if path != "/" for end in ("", "/")),
    "/leaderboard/data/{name}.csv",
    *("/history", "/history/{name}", "/history/{battle_id}/{action}", "/shared/{name}"),
    *("/gradio_api/queue/join", "/gradio_api/queue/data", "/gradio_api/cancel", "/gradio_api/reset"),
    *("/gradio_api/reset/", "/gradio_api/startup-events", "/alive"),
    *("/gradio_api/theme.css", "/gradio_api/app_id", "/gradio_api/info", "/static/{path:path}", "/assets/{path:path}"),
}


def test_of_all_routes_behind_the_doors_exactly_these_are_open(site: Site, client: httpx.Client) -> None:
    """A route that an update of Gradio brings is closed. No credential opens it: the web UI reads none."""
    routes = {path for _, path in web_ui_routes(site.app)}
    assert routes >= OPEN
    for path in routes - OPEN:
        for headers in ({}, {"Authorization": "Bearer admin-token-for-tests", "Cookie": "access-token=x"}):
            assert client.get(re.sub(r"{[^}]*}", "x", path), headers=headers).status_code == 404, path


def test_a_person_who_follows_a_dead_link_gets_a_page_and_a_program_gets_json(client: httpx.Client) -> None:
    page = client.get("/no-such-page", headers={"Accept": "text/html"})
    assert page.status_code == 404
    assert texts.NOT_FOUND in page.text
    assert page.headers["content-security-policy"]
    assert client.get("/no-such-page").json()["error"]["code"] == "not_found"


def test_the_icon_is_our_own(client: httpx.Client) -> None:
    icon = client.get("/favicon.ico")
    assert icon.content == (ASSETS / "favicon.svg").read_bytes()
    assert icon.headers["content-type"].startswith("image/svg+xml")


def test_a_request_larger_than_any_page_sends_is_refused(client: httpx.Client) -> None:
    reply = client.post("/gradio_api/queue/join", content=b"x" * 600_000)
    assert reply.status_code == 413


#: Routes of our own that read a body themselves.
READING = ("/terms", "/admin/act", "/history/abc/feedback")


@pytest.mark.parametrize("path", READING)
def test_a_body_that_does_not_come_in_time_is_refused(site: Site, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "BODY_TIMEOUT_S", 0.3)
    address = ("127.0.0.1", int(site.url.rpartition(":")[2]))
    with socket.create_connection(address, timeout=10) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
        connection.sendall(head.encode() + b"{")
        assert connection.recv(4096).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("path", READING)
def test_a_body_without_a_length_is_bounded_too(client: httpx.Client, path: str) -> None:
    pieces = (b"x" * 100_000 for _ in range(8))
    reply = client.post(path, content=pieces, headers={"Content-Type": "application/json"})
    assert reply.status_code == 413


def test_pages_may_load_nothing_from_elsewhere(client: httpx.Client) -> None:
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "http:" not in policy
    assert "*" not in policy


@pytest.mark.parametrize("path", ["/", "/side-by-side", "/chat", "/leaderboard", "/workers", "/about", "/config"])
def test_no_page_is_sent_a_model_name_in_its_configuration(client: httpx.Client, path: str) -> None:
    body = client.get(path).text
    assert "gradio" in body
    assert not any(name in body for name in MODELS)


def test_as_many_events_run_at_once_as_configured_and_none_is_public(site: Site) -> None:
    (mounted,) = [route.app for route in site.app.routes if isinstance(getattr(route, "app", None), App)]
    ui = mounted.get_blocks()
    assert len(ui._queue.active_jobs) == MAX_EVENTS
    assert ui._queue.default_concurrency_limit is None
    assert all(fn.concurrency_limit in (None, "default") for fn in ui.fns.values())
    assert all(fn.api_visibility == "private" for fn in ui.fns.values())
    assert len(ui._queue.event_analytics) <= 1
    assert ui._queue.event_count_at_last_cache == 0


def test_an_idle_web_ui_polls_at_most_a_hundred_times_a_second(
    site: Site, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradio polls the length of its event queue, by default every millisecond."""
    client.get("/")  # the first visitor starts the queue
    looks = 0
    length: Any = Queue.__len__

    def counted(queue: Queue) -> int:
        nonlocal looks
        looks += 1
        return length(queue)

    monkeypatch.setattr(Queue, "__len__", counted)
    started = time.monotonic()
    time.sleep(0.5)
    assert 1 <= looks <= 120 * (time.monotonic() - started) + 2
