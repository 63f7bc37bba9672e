"""Cold starts: the real `agon up` with echo models; one process is killed at a time, and the time is taken to the first
battle that is voted on. Services start as they do for a user, imports included, by the real supervisor."""

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.arena import arena, take_turn
from tests.faults.tally import Tally, percentiles

ROLES = ("store", "controller", "ash", "webui")
_RECOVERY_S = 60.0


def kill_under_supervisor(folder: Path, rounds: int, tally: Tally) -> None:
    """`rounds` kills of each role, in turn; fills `tally.figures` with the recovery of each."""
    model = folder / "echo-model"
    model.mkdir(parents=True, exist_ok=True)
    (model / "config.json").write_text(json.dumps({"model_type": "echo"}))
    flags = [
        "--no-demos",
        "--isolate",
        "--engine",
        "echo",
        *(word for name in ("ash", "elm") for word in ("--model", f"{name}={model}")),
    ]
    times: dict[str, list[float]] = {role: [] for role in ROLES}
    with arena(folder / "data", flags, 2, AGON_ECHO_TOKENS_PER_S="400", AGON_VOTE_RATE_PER_MINUTE="6000") as up:
        up.wait_ready()
        with httpx.Client(base_url=up.controller_url, trust_env=False, timeout=5, verify=False) as client:
            for number in range(1, rounds + 1):
                tally.round = number
                for role in ROLES:
                    up.wait_workers("ash", "elm")
                    killed_at = time.monotonic()
                    pid = up.kill(role)
                    up_url = up.webui_url if role == "webui" else None
                    if not _recovers(client, up_url, killed_at):
                        tally.break_promise("never_recovered", f"{role}: {up.output[-600:]}")
                        return
                    times[role].append(time.monotonic() - killed_at)
                    up.wait_replaced(role, pid)
                print(f"cold: round {number} of {rounds}", flush=True)
    for role, seconds in times.items():
        tally.recovery_s.extend(seconds)
        for name, value in percentiles(seconds).items():
            tally.figures[f"recovery_s_{name}_{'worker' if role == 'ash' else role}"] = value or 0.0


def _recovers(client: httpx.Client, webui_url: str | None, since: float) -> bool:
    """Wait for a voted battle, or where the web UI was killed for its health."""
    while time.monotonic() - since < _RECOVERY_S:
        with contextlib.suppress(httpx.HTTPError, AssertionError):
            if webui_url is not None:
                if httpx.get(f"{webui_url}/health", trust_env=False, timeout=2).status_code == 200:
                    return True
            elif _is_voted(client):
                return True
        time.sleep(0.02)
    return False


def _is_voted(client: httpx.Client) -> bool:
    created = client.post("/arena/battles", json={"mode": "anonymous"})
    if created.status_code != 201:
        return False
    battle_id: str = created.json()["id"]
    state: Any = None
    for name, data in take_turn(client, battle_id, "two words"):
        state = data["state"] if name == "turn_finished" else state
    return (
        state == "answered"
        and client.post(f"/arena/battles/{battle_id}/vote", json={"outcome": "a"}).status_code == 200
    )
