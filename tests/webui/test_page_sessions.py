"""What an open page costs this service, and what is forgotten when."""

import asyncio

import httpx
import pytest

from benchmarks.webui_sessions import Visitors, free_port, resident_mb, webui
from tests.webui.conftest import Site
from webui import page_sessions
from webui.page_sessions import PageSessions

#: Before the mend a session cost 250 kB. A third of this are messages that are kept for some seconds.
MOST_KB_A_SESSION = 60
NUM_SESSIONS = 400


def test_a_session_costs_little_and_a_bare_join_no_more() -> None:
    port = free_port()
    with webui(port) as process:
        visitors = Visitors(port)
        asyncio.run(visitors.repeat(visitors.visit, 50))
        before_mb = resident_mb(process.pid)
        for action in (visitors.visit, visitors.join_only):
            asyncio.run(visitors.repeat(action, NUM_SESSIONS // 2))
        grown_mb = resident_mb(process.pid) - before_mb
    assert visitors.refused == {}
    assert grown_mb * 1000 / NUM_SESSIONS < MOST_KB_A_SESSION


def join(site: Site, session: str) -> int:
    body = {**Visitors(int(site.url.rpartition(":")[2])).load_event, "session_hash": session}
    return httpx.post(f"{site.url}/gradio_api/queue/join", json=body, trust_env=False, timeout=30).status_code


def read(site: Site, session: str) -> str:
    url = f"{site.url}/gradio_api/queue/data"
    return httpx.get(url, params={"session_hash": session}, trust_env=False, timeout=30).text


def test_beyond_the_capacity_the_session_that_was_idle_for_longest_is_forgotten(
    site: Site, sessions: PageSessions
) -> None:
    sessions.capacity = 3
    for name in ("one", "two", "three"):
        assert join(site, name) == 200
        assert "close_stream" in read(site, name)
    assert join(site, "one") == 200  # used again
    assert "close_stream" in read(site, "one")
    assert join(site, "four") == 200
    assert "close_stream" in read(site, "four")
    assert "two" not in sessions
    assert {"one", "three", "four"} <= set(sessions.session_data)
    assert "two" not in sessions._queue.pending_messages_per_session


async def test_what_nothing_reads_is_forgotten_after_a_while(
    site: Site, sessions: PageSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(join, site, "bare")
    await sessions.forget_abandoned()
    assert "bare" in sessions, "its page may still open its stream"
    monkeypatch.setattr(page_sessions, "ABANDONED_AFTER_S", 0.0)
    monkeypatch.setattr(sessions, "_is_read", lambda session: session == "bare")
    await sessions.forget_abandoned()
    assert "bare" in sessions, "a browser reads it"
    monkeypatch.setattr(sessions, "_is_read", lambda _: False)
    await sessions.forget_abandoned()
    assert "bare" not in sessions
    assert "bare" not in sessions._queue.pending_messages_per_session
    assert "bare" not in sessions._queue.pending_event_ids_session


async def test_a_page_that_says_it_is_open_keeps_its_session(
    site: Site, sessions: PageSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(join, site, "idle")
    sessions.session_data["idle"].last_used -= page_sessions.ABANDONED_AFTER_S + 1  # type: ignore[attr-defined]
    alive = await asyncio.to_thread(httpx.get, f"{site.url}/alive?session_hash=idle", trust_env=False)
    assert alive.json() == {"server": alive.json()["server"]}
    await sessions.forget_abandoned()
    assert "idle" in sessions
    assert httpx.get(f"{site.url}/alive?session_hash=nobody", trust_env=False).json() == alive.json()
    assert "nobody" not in sessions.session_data
