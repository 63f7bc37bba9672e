"""Behaviour of an arena whose processes are killed, and of one that is stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.arena import UpProcess, arena, is_alive, take_turn, wait_gone

SHORT = "two words"
LONG = "word " * 100  # five seconds


def new_battle(client: httpx.Client) -> str:
    answer = client.post("/arena/battles", json={"mode": "anonymous"})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def finished_battle(client: httpx.Client, content: str) -> str:
    """The id of a new battle after one whole turn."""
    battle_id = new_battle(client)
    for _ in take_turn(client, battle_id, content):
        pass
    return battle_id


def vote(client: httpx.Client, battle_id: str, outcome: str = "a") -> httpx.Response:
    return client.post(f"/arena/battles/{battle_id}/vote", json={"outcome": outcome})


def test_a_worker_killed_in_the_middle_of_an_answer_is_a_pause(echo_arena: UpProcess, client: httpx.Client) -> None:
    """It has both models. The supervisor starts it again, and the tokens that it had sent are replayed there."""
    battle_id = new_battle(client)
    texts = {"a": "", "b": ""}
    killed = None
    for name, data in take_turn(client, battle_id, LONG):
        assert name != "failed", data
        if name == "delta":
            texts[data["side"]] += data["text"]
        if killed is None and all(texts.values()):
            killed = echo_arena.kill("worker")
    assert killed is not None
    assert (name, data["state"]) == ("turn_finished", "answered")
    assert texts == {"a": LONG, "b": LONG}
    assert vote(client, battle_id).status_code == 200


def wait_until(condition: Any, timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_second_arena_on_the_same_data_refuses_and_tells_where_the_first_is(echo_arena: UpProcess) -> None:
    second = subprocess.run(
        echo_arena.command, env=echo_arena.environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert second.returncode == 1
    assert f"pid {echo_arena.process.pid}" in second.stderr
    assert echo_arena.webui_url in second.stderr
    assert "Traceback" not in second.stderr


def test_a_port_in_use_stops_it_before_anything_starts(echo_arena: UpProcess, tmp_path: Path) -> None:
    command = [str(tmp_path / "other") if word == str(echo_arena.data_dir) else word for word in echo_arena.command]
    answer = subprocess.run(
        command, env=echo_arena.environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert answer.returncode == 1
    assert "--controller-port" in answer.stderr
    assert not list((tmp_path / "other" / "logs").iterdir())


def test_ctrl_c_stops_everything_and_the_next_start_has_every_vote(tmp_path: Path, echo_flags: list[str]) -> None:
    with arena(tmp_path / "data", echo_flags, 2, AGON_ECHO_TOKENS_PER_S="200") as up:
        up.wait_ready()
        with httpx.Client(base_url=up.controller_url, trust_env=False, timeout=60) as client:
            battle_id = finished_battle(client, SHORT)
            vote_id = vote(client, battle_id).json()["vote_id"]
        _stop_whole(up, signal.SIGINT)
    with arena(tmp_path / "data", echo_flags, 2) as up:
        up.wait_ready()
        exported = subprocess.run(
            [*up.command[:4], "votes", "export", "--data-dir", str(tmp_path / "data")],
            env=up.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        _stop_whole(up, signal.SIGTERM)
    rows = [json.loads(line) for line in exported.stdout.splitlines()]
    assert [(row["battle_id"], row["vote_id"]) for row in rows] == [(battle_id, vote_id)]


def _stop_whole(up: UpProcess, how: signal.Signals) -> None:
    children = up.children()
    assert set(children) == {"store", "controller", "webui", "worker"}
    assert up.stop(how) == 0, up.report()
    assert wait_gone(list(children.values()), timeout_s=2) == []


def test_even_kill_9_of_the_supervisor_leaves_no_process_behind(tmp_path: Path, echo_flags: list[str]) -> None:
    with arena(tmp_path / "data", echo_flags, 2) as up:
        up.wait_ready()
        children = up.children()
        up.process.kill()
        up.process.wait()
        assert wait_gone(list(children.values()), timeout_s=30) == []
        assert len(children) == 4


@pytest.mark.parametrize("role", ["controller", "webui"])
def test_a_killed_service_is_back_by_itself(echo_arena: UpProcess, role: str) -> None:
    killed = echo_arena.kill(role)
    echo_arena.wait_replaced(role, killed)
    url = {"controller": echo_arena.controller_url, "webui": echo_arena.webui_url}[role]
    wait_until(lambda: _answers(f"{url}/health"))
    assert is_alive(echo_arena.process.pid)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def agon(up: UpProcess, *arguments: str) -> str:
    command = [sys.executable, "-P", "-m", "cli.main", *arguments, "--data-dir", str(up.data_dir)]
    done = subprocess.run(command, env=up.environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_model_added_with_processes_of_its_own_is_started_again_and_scaled(
    echo_arena: UpProcess, tmp_path: Path
) -> None:
    """The supervisor starts processes for it, and another one when one of them is killed."""
    (tmp_path / "config.json").write_text('{"model_type": "echo"}')
    said = agon(echo_arena, "models", "add", f"own={tmp_path}", "--replicas", "2")
    assert "own is served by http://127.0.0.1:" in said
    status = json.loads(agon(echo_arena, "cluster", "status", "--json"))
    first, second = status["placement"]["replicas"]
    assert [first["id"], second["id"]] == ["own#1", "own#2"]
    assert first["url"] != second["url"]
    os.kill(first["pid"], signal.SIGKILL)
    assert agon(echo_arena, "models", "scale", "own", "1") == "own: 1 replicas\n"

    def replicas() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(agon(echo_arena, "cluster", "status", "--json"))["placement"][
            "replicas"
        ]
        return found

    wait_until(lambda: [(one["id"], one["state"], one["restarts"]) for one in replicas()] == [("own#1", "ready", 1)])
    agon(echo_arena, "models", "remove", "own")
    wait_until(lambda: not replicas())
    assert not is_alive(second["pid"])
    echo_arena.wait_workers("left", "right")
