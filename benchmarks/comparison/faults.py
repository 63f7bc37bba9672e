"""What a client sees when a process dies: how a running stream ends, and for how long requests fail afterwards."""

import os
import signal
import threading
import time
from typing import Any

import httpx

from benchmarks.comparison.arena import Arena

PROBE_INTERVAL_S = 0.1
QUIET_S = 5.0  #: after this many seconds of successes the outage counts as over
GIVE_UP_S = 180.0


def worker_death(arena: Arena, model: str) -> dict[str, Any]:
    """`kill -9` the worker of `model` while it streams a battle-sized answer."""
    ending: dict[str, Any] = {}
    reader = threading.Thread(target=_read_stream, args=(arena.url, model, ending))
    reader.start()
    while "first" not in ending:
        time.sleep(0.01)
    victim = _worker_of(arena, model)
    os.kill(victim, signal.SIGKILL)
    window = _error_window(arena.url, model)
    reader.join()
    return {"stream_ended_with": ending["last"], **window}


def controller_death(arena: Arena, model: str) -> dict[str, Any]:
    """`kill -9` the controller; the supervisor starts a new one."""
    os.kill(arena.processes("controller")[0], signal.SIGKILL)
    return _error_window(arena.url, model)


def ten_votes(url: str) -> dict[str, Any]:
    """Send the same vote on one battle ten times; `votes_recorded` is what the leaderboard counted."""
    with httpx.Client(base_url=url, timeout=120) as client:
        before = client.get("/arena/leaderboard").json()["num_votes"]
        battle = client.post("/arena/battles", json={"mode": "anonymous"}).json()["id"]
        client.post(f"/arena/battles/{battle}/turns", json={"content": "Hello!"})
        answers = [client.post(f"/arena/battles/{battle}/vote", json={"outcome": "a"}) for _ in range(10)]
        other = client.post(f"/arena/battles/{battle}/vote", json={"outcome": "b"})
        time.sleep(3)
        after = client.get("/arena/leaderboard").json()["num_votes"]
    return {
        "votes_sent": 10,
        "statuses": sorted({answer.status_code for answer in answers}),
        "equal_answers": len({answer.text for answer in answers}) == 1,
        "votes_recorded": after - before,
        "different_vote_status": other.status_code,
    }


def _read_stream(url: str, model: str, ending: dict[str, Any]) -> None:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Tell me a story about a fox."}],
        "max_tokens": 500,
        "ignore_eos": True,
        "stream": True,
    }
    ending["last"] = "nothing"
    try:
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=120) as response:
            for line in response.iter_lines():
                if line.startswith("data: "):
                    ending["first"] = True
                    ending["last"] = line.removeprefix("data: ")[:200]
    except httpx.HTTPError as error:
        ending["last"] = f"connection lost without a word ({type(error).__name__})"


def _worker_of(arena: Arena, model: str) -> int:
    for pid in arena.processes("model_worker"):
        with open(f"/proc/{pid}/cmdline", "rb") as command:
            if any(part.startswith(f"{model}=") for part in command.read().decode(errors="replace").split("\0")):
                return pid
    raise RuntimeError(f"no worker process serves {model}")


def _error_window(url: str, model: str) -> dict[str, Any]:
    """Send a request every 100 ms until QUIET_S seconds of successes; count the failures by status."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    started = last_failure = time.monotonic()
    failures: dict[str, int] = {}
    while time.monotonic() - last_failure < QUIET_S and time.monotonic() - started < GIVE_UP_S:
        try:
            status = str(httpx.post(f"{url}/v1/chat/completions", json=body, timeout=30).status_code)
        except httpx.HTTPError as error:
            status = type(error).__name__
        if status != "200":
            failures[status] = failures.get(status, 0) + 1
            last_failure = time.monotonic()
        time.sleep(PROBE_INTERVAL_S)
    return {"seconds_of_errors": round(last_failure - started, 1), "failures": failures}
