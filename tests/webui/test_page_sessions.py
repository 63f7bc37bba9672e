"""What an open page costs this service, and what is forgotten when."""

import asyncio

import httpx
import pytest

from benchmarks.webui_sessions import Visitors, free_port, resident_mb, webui
from tests.webui.conftest import Site
from webui import page_sessions
from webui.page_sessions import MAX_UNREAD_MESSAGES, PageSessions

MOST_KB_A_SESSION = 30  #: before the mend a session cost 250 kB
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
    async with asyncio.timeout(30):
        while sessions._has_events("bare"):
            await asyncio.sleep(0.02)
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


def test_a_browser_that_does_not_read_is_told_to_reload_and_gets_no_more() -> None:
    messages = page_sessions._Messages()
    for number in range(MAX_UNREAD_MESSAGES + 5):
        messages.put_nowait(number)
    assert messages.qsize() == 1
    assert messages.get_nowait().session_not_found
    messages.put_nowait("more")
    assert messages.empty()


def test_a_session_hash_that_no_page_makes_is_refused(site: Site, sessions: PageSessions) -> None:
    num_sessions = len(sessions.session_data)
    assert join(site, "x" * 100_000) == 400
    assert len(sessions.session_data) == num_sessions


def test_sessions_share_one_configuration_and_do_not_see_what_another_changes(sessions: PageSessions) -> None:
    first, second = sessions["first"], sessions["second"]
    key, block = next((key, block) for key, block in first.blocks_config.blocks.items() if not block.stateful)
    changed = object()
    first[key] = changed
    assert first[key] is changed, "Gradio reads an updated component back"
    assert second[key] is block
    second[key] = changed
    assert first[key] is block
