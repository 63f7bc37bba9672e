"""A detached actor of Ray: starts the worker process of one replica as its child and keeps it running.

It is to a machine of the cluster what the supervisor of `agon up` is to its own: the same probe, back-off and log. If
the actor dies, the kernel kills its child (tether.py); if the child dies, the actor starts it again. Ray starts the
actor again when its machine has died, elsewhere.
"""

import asyncio
import json
import os
import secrets
import threading
from collections.abc import Coroutine
from typing import Any

import httpx
import ray

from cli.arena.child import Child, ChildState
from cli.arena.placement.local_placement import problem_of, state_of
from cli.arena.placement.on_ray.cluster import HOST_VARIABLE
from cli.arena.placement.on_ray.placed_worker import placed_worker, worker_url
from cli.arena.placement.worker_process import PORT_TAKEN, WorkerOrder
from cli.arena.ports import free_port
from cli.arena.restart_policy import RestartPolicy

_FIRST_PORT = 8200


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
        # Its own worker, at an address of this machine that need not be in the certificate; nothing secret is asked.
        async with httpx.AsyncClient(trust_env=False, verify=False) as client:
            # From a random one on: actors of one machine must not choose the same port at the same time.
            port = free_port(host, _FIRST_PORT + secrets.randbelow(1000))
            self._url = worker_url(host, port, os.environ)
            spec = placed_worker(self._order, host, port, os.environ, client)
            spec.log_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._child = Child(spec, _say, RestartPolicy(), on_change=self._on_change)
            await self._child.run()

    def _on_change(self) -> None:
        """Another program has taken the port while the worker was down: a new actor takes another port."""
        child = self._child
        if child is not None and child.state is ChildState.GIVEN_UP and f"code {PORT_TAKEN}" in child.last_death:
            os._exit(1)


def _say(source: str, text: str) -> None:
    """Into the actor's log, in Ray's folder of the machine."""
    print(f"{source}: {text}", flush=True)
