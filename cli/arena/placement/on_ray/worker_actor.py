"""A detached actor of Ray: starts the worker process of one replica as its child and keeps it running.

It is to a machine of the cluster what the supervisor of `agon up` is to its own: the same probe, back-off and log. If
the actor dies, the kernel kills its child (tether.py); if the child dies, the actor starts it again. Ray starts the
actor again when its machine has died, elsewhere.
"""

import asyncio
import json
import os
import re
import secrets
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

import httpx
import ray

from cli.arena.child import Child, ChildSpec, ChildState
from cli.arena.placement.local_placement import problem_of, state_of
from cli.arena.placement.on_ray.cluster import HOST_VARIABLE
from cli.arena.placement.worker_process import (
    BAD_CHECKPOINT,
    BAD_SETTINGS,
    PORT_TAKEN,
    STOP_S,
    WorkerOrder,
    worker_command,
)
from cli.arena.ports import free_port
from cli.arena.restart_policy import RestartPolicy
from cli.arena.service import http_probe

_FIRST_PORT = 8200
#: Ray sets it to the CPUs of an actor; the worker's own flag says how many threads it has.
_OF_RAY = re.compile(r"RAY_|OMP_NUM_THREADS$")


class WorkerActor:
    """Methods are called by the placer, in threads of Ray; the child is run by an event loop in a thread of its own,
    which lives as long as the actor, because the kernel's death signal follows the thread that started a process."""

    def __init__(self, order: str) -> None:
        """`order`: a WorkerOrder as JSON. Called again after a restart by Ray."""
        self._order = WorkerOrder.model_validate_json(order)
        self._incarnation = secrets.token_hex(4)
        self._loop = asyncio.new_event_loop()
        self._child: Child | None = None
        self._url = ""
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(self._keep_running(), self._loop)

    def state(self) -> str:
        """JSON object: `incarnation` (of this start of the actor), `node`, and `replica`, fields of a ReplicaView."""
        child = self._child
        replica = {
            "state": "starting" if child is None else state_of(child),
            "url": self._url,
            "pid": None if child is None else child.pid,
            "restarts": 0 if child is None else child.num_restarts,
            "problem": "" if child is None else problem_of(child),
        }
        node = ray.get_runtime_context().get_node_id()
        return json.dumps({"incarnation": self._incarnation, "node": node, "replica": replica})

    def stop(self) -> None:
        """Stop the worker; it finishes its answers first. The placer then ends the actor."""
        if self._child is not None:
            self._wait(self._child.stop())

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _keep_running(self) -> None:
        host = os.environ.get(HOST_VARIABLE) or ray.util.get_node_ip_address()
        async with httpx.AsyncClient(trust_env=False) as client:
            # From a random one on: actors of one machine must not choose the same port at the same time.
            port = free_port(host, _FIRST_PORT + secrets.randbelow(1000))
            self._url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            self._child = Child(self._spec(host, port, client), _say, RestartPolicy(), on_change=self._on_change)
            await self._child.run()

    def _on_change(self) -> None:
        """Another program has taken the port while the worker was down: a new actor takes another port."""
        child = self._child
        if child is not None and child.state is ChildState.GIVEN_UP and f"code {PORT_TAKEN}" in child.last_death:
            os._exit(1)

    def _spec(self, host: str, port: int, client: httpx.AsyncClient) -> ChildSpec:
        name = re.sub(r"[^A-Za-z0-9._-]", "-", self._order.replica.id)
        logs = Path(os.environ.get("AGON_DATA_DIR") or ".agon") / "logs"
        logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        return ChildSpec(
            name=self._order.replica.id,
            command=worker_command(self._order, host=host, port=port, is_gpu_chosen=True),
            environment=_environment(),
            log_path=logs / f"worker-{name}.log",
            probe=http_probe(client, f"{self._url}/ready"),
            stop_timeout_s=STOP_S,
            final_exit_codes=frozenset({BAD_SETTINGS, BAD_CHECKPOINT, PORT_TAKEN}),
        )


def _environment() -> Mapping[str, str]:
    """The machine's environment, in which the worker token is, without what Ray has added."""
    return {
        **{name: value for name, value in os.environ.items() if not _OF_RAY.match(name)},
        "PYTHONUNBUFFERED": "1",
    }


def _say(source: str, text: str) -> None:
    """Into the actor's log, in Ray's folder of the machine."""
    print(f"{source}: {text}", flush=True)
