"""What a cluster must stand, on three machines that are processes here. Each scenario returns its figures; a failed
assertion ends the run."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.cluster.machines import RunningCluster, command_of, descendants, started_at
from tests.e2e.arena import take_turn

LONG = "word " * 200  # ten seconds
_OUTAGE_S = 15.0
_VISITORS = 3


def placement(cluster: RunningCluster) -> dict[str, Any]:
    """Labels and GPUs are kept to; replicas are spread."""
    source = cluster.model
    cluster.agon("models", "add", f"left={source}", "--replicas", "2")
    cluster.agon("models", "add", f"right={source}")
    cluster.agon("models", "add", f"labelled={source}", "--on", "rack=b")
    cluster.agon("models", "add", f"large={source}", "--gpus", "2")
    where = {replica.id: replica.machine for replica in cluster.view().placement.replicas}
    assert where["left#1"] != where["left#2"], where
    assert where["labelled#1"] == "m3", where
    assert where["large#1"] == "m2", where  # two GPUs are on one machine only
    cluster.agon("models", "remove", "labelled")
    cluster.agon("models", "remove", "large")
    cluster.wait("removal", lambda: {one.model for one in cluster.view().placement.replicas} == {"left", "right"})
    cluster.agon("models", "scale", "left", "1")
    cluster.wait("one replica", lambda: len(cluster.replicas("left")) == 1)
    return {"where": where}


def machine_killed(cluster: RunningCluster) -> dict[str, Any]:
    """The machine of a model's only replica dies in the middle of its answers."""
    [replica] = cluster.replicas("left")
    cluster.wait("spare processes", lambda: all(machine.has_spare() for machine in cluster.machines.values()))
    old = set(cluster.registered("left"))
    texts, kinds, registered_after = {"a": "", "b": ""}, [], []
    killed_at = killed_time = 0.0

    def watch() -> None:
        cluster.wait("replacement", lambda: bool(set(cluster.registered("left")) - old))
        registered_after.append(time.monotonic() - killed_at)

    watching = threading.Thread(target=watch)
    with _visitor(cluster) as client:
        battle = _new_battle(client)
        for name, data in take_turn(client, battle, LONG):
            kinds.append(name)
            assert name != "failed", data
            if name == "delta":
                texts[data["side"]] += data["text"]
            if not killed_at and all(len(text) > 50 for text in texts.values()):
                cluster.machines[replica.machine].die()
                killed_at, killed_time = time.monotonic(), time.time()
                watching.start()
        watching.join()
        assert texts == {"a": LONG, "b": LONG}, "the visitor's texts are not those of an undisturbed answer"
        assert _vote(client, battle) == 200
    cluster.wait("the new place", lambda: [one.state for one in cluster.replicas("left")] == ["ready"])
    [now] = cluster.replicas("left")
    assert now.machine not in ("", replica.machine)
    assert now.restarts == replica.restarts + 1
    assert now.pid is not None
    return {
        "killed": replica.machine,
        "moved_to": now.machine,
        "noticed_after_s": round(cluster.last_loss() - killed_time, 2),
        "worker_started_after_s": round(started_at(now.pid) - killed_time, 2),
        "registered_after_s": round(registered_after[0], 2),
    }


def head_killed(cluster: RunningCluster) -> dict[str, Any]:
    """Ray's head is killed again and again for a while. Battles and votes go on; placement resumes afterwards."""
    pids = {replica.id: replica.pid for replica in cluster.view().placement.replicas}
    is_over = threading.Event()
    votes: list[float] = []
    errors: list[str] = []

    def visit() -> None:
        with _visitor(cluster) as client:
            while not is_over.is_set():
                try:
                    battle = _new_battle(client)
                    names = [name for name, _ in take_turn(client, battle, "a few words here")]
                    if "failed" in names or _vote(client, battle) != 200:
                        errors.append(str(names[-3:]))
                    else:
                        votes.append(time.monotonic())
                except (httpx.HTTPError, AssertionError) as error:
                    errors.append(repr(error))

    visitors = [threading.Thread(target=visit) for _ in range(_VISITORS)]
    for visitor in visitors:
        visitor.start()
    started = time.monotonic()
    num_kills = 0
    while time.monotonic() - started < _OUTAGE_S:
        num_kills += _kill_head(cluster)
        time.sleep(0.2)
    during = [at for at in votes if at - started <= _OUTAGE_S]
    cluster.wait("a problem is shown", lambda: cluster.view().placement.problem is not None)
    cluster.wait("the head is back", lambda: cluster.view().placement.problem is None)
    back_after_s = time.monotonic() - started - _OUTAGE_S
    is_over.set()
    for visitor in visitors:
        visitor.join()
    assert not errors, errors
    assert len(during) > 5, "no votes while the head was gone"
    cluster.wait("replicas are known", lambda: all(one.state == "ready" for one in cluster.view().placement.replicas))
    after = {replica.id: replica.pid for replica in cluster.view().placement.replicas}
    assert after == pids, "a replica was started again although only the head was killed"
    cluster.agon("models", "scale", "right", "2")  # placement works again
    resumed_s = cluster.wait(
        "a new replica", lambda: [one.state for one in cluster.replicas("right")] == ["ready", "ready"]
    )
    return {
        "kills": num_kills,
        "outage_s": _OUTAGE_S,
        "votes_during": len(during),
        "errors": 0,
        "head_back_after_s": round(back_after_s, 1),
        "new_replica_after_s": round(resumed_s, 1),
    }


def replica_killed(cluster: RunningCluster) -> dict[str, Any]:
    """A dead worker process is started again on its machine; one whose actor dies ends with it."""
    replica = cluster.replicas("right")[0]
    assert replica.pid is not None
    os.kill(replica.pid, signal.SIGKILL)

    def is_back(pid: int) -> bool:
        now = next((one for one in cluster.replicas("right") if one.id == replica.id), None)
        return now is not None and now.state == "ready" and now.pid != pid

    again_s = cluster.wait("the worker is back", lambda: is_back(replica.pid or 0))
    now = next(one for one in cluster.replicas("right") if one.id == replica.id)
    assert (now.url, now.machine) == (replica.url, replica.machine)
    assert now.pid is not None
    actor = _parent(now.pid)
    assert "WorkerActor" in command_of(actor)[0]
    os.kill(actor, signal.SIGKILL)
    gone_s = cluster.wait("the worker dies with its actor", lambda: not command_of(now.pid or 0))
    cluster.wait("Ray starts the actor again", lambda: is_back(now.pid or 0))
    return {"worker_back_after_s": round(again_s, 2), "gone_with_actor_after_s": round(gone_s, 3)}


def scaled_by_load(cluster: RunningCluster) -> dict[str, Any]:
    """More requests than one replica takes bring a second one."""
    cluster.agon("models", "add", f"busy={cluster.model}", "--min", "1", "--max", "2")
    key = {"Authorization": f"Bearer {cluster.secrets()['worker_token']}"}
    body = {"model": "busy", "messages": [{"role": "user", "content": "word " * 150}], "max_tokens": 150}
    is_over = threading.Event()

    def load() -> None:
        with _visitor(cluster) as client:
            while not is_over.is_set():
                client.post("/v1/chat/completions", json=body, headers=key, timeout=120)

    threads = [threading.Thread(target=load, daemon=True) for _ in range(30)]
    for thread in threads:
        thread.start()
    took_s = cluster.wait("a second replica", lambda: len(cluster.replicas("busy")) == 2)
    cluster.wait("it serves", lambda: len(cluster.registered("busy")) == 2)
    is_over.set()
    for thread in threads:
        thread.join(120)
    [line] = [text for text in cluster.up.output.splitlines() if "busy: 1 -> 2 replicas" in text]
    cluster.agon("models", "remove", "busy")
    return {"second_replica_wanted_after_s": round(took_s, 1), "said": line.split("busy: ")[1]}


def encrypted(cluster: RunningCluster) -> dict[str, Any]:
    """In an arena that speaks TLS a replica shows the certificate of its machine, and is ready for its actor, too."""
    cluster.agon("models", "add", f"left={cluster.model}")
    cluster.agon("models", "add", f"right={cluster.model}")

    def are_ready() -> bool:
        return [one.state for model in ("left", "right") for one in cluster.replicas(model)] == ["ready", "ready"]

    cluster.wait("replicas", are_ready)
    urls = [one.url for model in ("left", "right") for one in cluster.replicas(model)]
    assert all(url.startswith("https://") for url in urls), urls
    cluster.wait("registered", lambda: bool(cluster.registered("left") and cluster.registered("right")))
    with _visitor(cluster) as client:
        battle = _new_battle(client)
        names = [name for name, _ in take_turn(client, battle, "a few words here")]
        assert "failed" not in names, names
        assert _vote(client, battle) == 200
    return {"workers": urls, "controller": cluster.up.controller_url}


def _kill_head(cluster: RunningCluster) -> int:
    """Kill the head's processes that run now."""
    killed = 0
    for pid in descendants(cluster.up.process.pid):
        command = command_of(pid)
        if "--head" in command or command[0].endswith("/gcs_server"):
            os.kill(pid, signal.SIGKILL)
            killed += 1
    return killed


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])


@contextmanager
def _visitor(cluster: RunningCluster) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=cluster.up.controller_url, trust_env=False, timeout=60, verify=cluster.up.trusted
    ) as client:
        yield client


def _new_battle(client: httpx.Client) -> str:
    answer = client.post("/arena/battles", json={"mode": "anonymous"})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def _vote(client: httpx.Client, battle: str) -> int:
    return client.post(f"/arena/battles/{battle}/vote", json={"outcome": "a"}).status_code


SCENARIOS = {
    "placement": placement,
    "machine-killed": machine_killed,
    "head-killed": head_killed,
    "replica-killed": replica_killed,
    "scaled-by-load": scaled_by_load,
}
