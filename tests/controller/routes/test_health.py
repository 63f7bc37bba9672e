import logging
import re
from pathlib import Path

import pytest

from controller.workers.routing_table import RoutingTable
from service_kit import background
from service_kit.logs import JsonLines
from tests.controller.conftest import OpenArena
from tests.controller.support.arena import ADMIN_TOKEN, WORKER_TOKEN, Arena, eventually, visitor
from tests.controller.support.fake_worker import FakeWorker


async def test_a_controller_says_that_it_lives_and_which_version_it_is(arena: Arena) -> None:
    assert (await arena.client.get("/health")).json() == {"status": "ok"}
    assert (await arena.client.get("/version")).json()["name"] == "agon"
    assert (await arena.client.get("/ready")).json() == {"status": "ready", "models": 0}


async def test_a_web_ui_learns_whether_its_visitors_are_told_apart(arena: Arena) -> None:
    ready = {"status": "ready", "models": 0}
    believed = await arena.client.get("/ready", headers=visitor("192.0.2.1"))
    assert believed.json() == {**ready, "forwarded_address": "believed"}
    doubted = await arena.client.get("/ready", headers={"X-Forwarded-For": "192.0.2.1"})
    assert doubted.json() == {**ready, "forwarded_address": "ignored"}


async def test_the_api_works_under_a_path_prefix(open_arena: OpenArena) -> None:
    async with open_arena(root_path="/arena/api", api_docs=True) as arena:
        assert (await arena.client.get("/arena/api/ready")).status_code == 200
        document = (await arena.client.get("/arena/api/openapi.json")).json()
        assert document["servers"] == [{"url": "/arena/api"}]
        assert "/v1/models" in document["paths"]
        assert "<code>/arena/api</code>" in (await arena.client.get("/arena/api/docs")).text
        checked = await arena.client.post("/arena/api/arena/voters/check", json={"response": "x"})
        assert "Path=/arena/api;" in checked.headers["set-cookie"]


async def test_health_names_the_processes_that_a_supervisor_calls_not_ready(
    tmp_path: Path, open_arena: OpenArena
) -> None:
    file = tmp_path / "processes.json"
    async with open_arena(processes_file=file) as arena:
        assert (await arena.client.get("/health")).json() == {"status": "ok"}
        file.write_text(
            '{"processes":[{"name":"store","state":"restarting","restarts":7},'
            '{"name":"controller","state":"ready","restarts":0}]}   '
        )
        answer = await arena.client.get("/health")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok", "processes": [{"name": "store", "state": "restarting", "restarts": 7}]}


async def test_a_controller_whose_table_cannot_be_read_is_not_ready_until_it_can(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: RoutingTable) -> None:
        raise RuntimeError("a library's words that nothing maps")

    monkeypatch.setattr(background, "LONGEST_PAUSE_S", 0.05)
    with monkeypatch.context() as patch:
        patch.setattr(RoutingTable, "refresh", broken)
        await eventually(lambda: _ready_is(arena, 503))
        refusal = await arena.client.get("/ready")
        assert refusal.json()["error"]["code"] == "not_ready"
        assert "routing_table" in refusal.json()["error"]["message"]
    await eventually(lambda: _ready_is(arena, 200))


async def _ready_is(arena: Arena, status: int) -> bool:
    return (await arena.client.get("/ready")).status_code == status


async def _has_no_open_turn(arena: Arena) -> bool:
    return "arena_open_turns 0.0" in (await arena.client.get("/metrics", headers=arena.admin)).text


async def test_metrics_count_what_happened(arena: Arena) -> None:
    for model in ("alpha", "beta"):
        await arena.add_worker(FakeWorker(model))
    battle = await arena.create()
    await arena.turn(battle["id"])
    for outcome in ("a", "a", "b"):
        await arena.vote(battle["id"], outcome)
    await eventually(lambda: _has_no_open_turn(arena))

    text = (await arena.client.get("/metrics", headers=arena.admin)).text

    for line in (
        'arena_battles_total{outcome="created"} 1.0',
        'arena_turns_total{result="finished"} 1.0',
        'arena_votes_total{result="new"} 1.0',
        'arena_votes_total{result="dup"} 1.0',
        'arena_votes_total{result="conflict"} 1.0',
        'arena_stream_terminations_total{reason="finished"} 2.0',
        'arena_registry_workers{model="alpha",state="ready"} 1.0',
    ):
        assert line in text, line
    assert "arena_vote_commit_seconds_bucket" in text


async def test_neither_logs_nor_metrics_hold_what_people_wrote(arena: Arena, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for model in ("alpha", "beta"):
        worker = await arena.add_worker(FakeWorker(model))
        worker.reply = "canary-answer"
    headers = visitor("203.0.113.77")
    battle = (await arena.client.post("/arena/battles", json={"mode": "anonymous"}, headers=headers)).json()
    path = f"/arena/battles/{battle['id']}"
    await arena.client.post(path + "/turns", json={"content": "canary-prompt"}, headers=headers)
    vote = {"outcome": "a", "comment": "canary-comment"}
    assert (await arena.client.post(path + "/vote", json=vote, headers=headers)).status_code == 200
    chat = {"model": "alpha", "messages": [{"role": "user", "content": "canary-prompt"}]}
    await arena.client.post("/v1/chat/completions", json=chat, headers=headers)
    arena.workers[0].break_at = 0
    await arena.client.post("/v1/chat/completions", json=chat, headers=headers)

    ours = [record for record in caplog.records if record.name.startswith(("controller", "service_kit"))]
    logged = "\n".join(JsonLines().format(record) for record in ours)
    metrics = (await arena.client.get("/metrics", headers=arena.admin)).text
    assert "vote_recorded" in logged
    for text in (logged, metrics):
        for secret in ("canary", "203.0.113", WORKER_TOKEN, ADMIN_TOKEN, battle["id"]):
            assert secret not in text, secret
        assert not re.search(r"\d+\.\d+\.\d+\.\d+", text)
