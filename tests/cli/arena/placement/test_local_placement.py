"""Replicas as processes of this machine: started, replaced and ended as the list of what is wanted changes."""

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from cli.arena.child import ChildSpec
from cli.arena.placement.local_placement import LocalPlacement
from cli.arena.placement.placement import Needs, Replica
from cli.arena.placement.worker_process import WorkerOrder, worker_command
from cli.arena.supervisor import Supervisor

MakeSpec = Callable[..., ChildSpec]
Until = Callable[..., Awaitable[None]]


@pytest.fixture
async def supervisor(make_spec: MakeSpec, news: Any) -> AsyncIterator[Supervisor]:
    """With a store and a page, which are small processes."""
    found = Supervisor([[make_spec("store")], [make_spec("webui")]], news)
    await found.start()
    yield found
    await found.stop()


def replicas(*names: str, **more: Any) -> list[Replica]:
    return [Replica(id=name, model=name.partition("#")[0], source="org/m", **more) for name in names]


async def test_what_is_wanted_runs_and_what_is_not_ends(
    supervisor: Supervisor, make_spec: MakeSpec, until: Until, is_alive: Callable[[int], bool]
) -> None:
    ports: list[int] = []

    def of_replica(replica: Replica, port: int) -> ChildSpec:
        ports.append(port)
        return replace(make_spec(replica.id.replace("#", "-")), name=f"worker {replica.id}")

    placement = LocalPlacement(supervisor, of_replica, first_port=18300)

    def states() -> dict[str, str]:
        return {view.id: view.state for view in placement.view().replicas}

    placement.want(replicas("mine#1", "mine#2"))
    await until(lambda: states() == {"mine#1": "ready", "mine#2": "ready"})
    assert len(set(ports)) == 2
    first, second = (view.pid for view in placement.view().replicas)
    placement.want(replicas("mine#1"))
    await until(lambda: states() == {"mine#1": "ready"})
    assert first is not None
    assert second is not None
    assert is_alive(first)
    assert not is_alive(second)
    os.kill(first, 9)
    await until(lambda: states() == {"mine#1": "ready"} and placement.view().replicas[0].restarts == 1)
    assert placement.view().replicas[0].problem.startswith("was killed by SIGKILL")
    placement.want(replicas("mine#1", needs=Needs(cpus=2)))  # other needs: another process
    await until(lambda: states() == {"mine#1": "ready"} and placement.view().replicas[0].restarts == 0)
    await until(lambda: [child.spec.name for child in supervisor.children] == ["store", "worker mine#1", "webui"])


async def test_a_replica_that_cannot_start_says_why(supervisor: Supervisor, make_spec: MakeSpec, until: Until) -> None:
    def of_replica(replica: Replica, port: int) -> ChildSpec:
        program = "raise SystemExit('config.json is missing')"
        return replace(make_spec("broken"), command=(sys.executable, "-c", program), final_exit_codes=frozenset({1}))

    placement = LocalPlacement(supervisor, of_replica, first_port=18300)
    placement.want(replicas("broken#1"))
    await until(lambda: placement.view().replicas[0].state == "failed")
    assert placement.view().replicas[0].problem == "ended with exit code 1: config.json is missing"


def test_a_replica_is_a_worker_with_its_own_flags() -> None:
    [two_gpus] = replicas("m#1", needs=Needs(cpus=0, gpus=2))
    order = WorkerOrder(replica=two_gpus, controller_url="http://10.0.0.1:8100", options=("--kv-dtype", "int8"))
    words = worker_command(order, host="10.0.0.2", port=8201, is_gpu_chosen=True)
    assert " ".join(words[3:]) == (
        "model_worker --model m=org/m --host 10.0.0.2 --port 8201 --controller http://10.0.0.1:8100 "
        "--tensor-parallel 2 --device cuda --kv-dtype int8"
    )
    [on_cpu] = replicas("m#1", needs=Needs(cpus=3))
    words = worker_command(WorkerOrder(replica=on_cpu, controller_url="http://c"), host="h", port=1, is_gpu_chosen=True)
    assert words[-4:] == ("--threads", "3", "--device", "cpu")
    here = worker_command(WorkerOrder(replica=on_cpu, controller_url="http://c"), host="h", port=1, is_gpu_chosen=False)
    assert "--device" not in here  # one machine: the worker takes what it finds
