"""The process that talks to Ray: makes actors for the replicas that are wanted, and tells how they are.

A process of its own, because a driver of Ray dies with the node that it is connected to; `agon up` starts it again and
goes on meanwhile. It keeps nothing: what is wanted is in one file, what exists in Ray, and how it is goes into another.
"""

import contextlib
import hashlib
import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.util.placement_group import get_placement_group, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from cli.arena.placement.groups import write_whole
from cli.arena.placement.on_ray.cluster import MACHINE_LABEL, selector, shown_labels
from cli.arena.placement.on_ray.ray_placement import Wanted
from cli.arena.placement.on_ray.worker_actor import WorkerActor
from cli.arena.placement.placement import MachineView, PlacementView, Replica, ReplicaState, ReplicaView
from cli.arena.placement.worker_process import STOP_S, WorkerOrder

_EVERY_S = 0.2
_ASK_EVERY_S = 0.5  #: each actor, how it is
_LOOK_EVERY_S = 1.0  #: machines and placement groups
_WARM_EVERY_S = 5.0  #: each machine
_DEAF_S = 8.0  #: an actor that has room and does not answer for so long
_NO_ROOM = "no machine with room for it"


def _warm() -> None:
    """Runs in Ray's idle process of a machine, which it starts if there is none; an actor that comes to the machine
    takes that process, in which Ray and WorkerActor are imported already."""


@dataclass(slots=True)
class _Placed:
    """One replica that is wanted. `name`: of its actor and its placement group."""

    replica: Replica
    name: str
    actor: Any
    target: str | None  #: node that it was meant for
    asked: Any = None  #: reference to the answer that is under way
    heard_at: float = 0.0  #: the last answer, or the last moment without room
    next_ask: float = 0.0
    incarnation: str = ""
    moves: int = 0  #: starts of the actor after the first one
    view: ReplicaView | None = None


@dataclass(slots=True)
class _Ending:
    """A replica that finishes its answers."""

    actor: Any
    stopped: Any
    give_up_at: float
    view: ReplicaView


@dataclass(slots=True)
class _Nodes:
    """Ray's nodes by id, as `ray.nodes()` shows them, and the states of placement groups by name."""

    by_id: dict[str, dict[str, Any]] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)

    def name(self, node_id: str) -> str:
        """The name that people know a machine by."""
        node = self.by_id.get(node_id, {})
        return str(node.get("Labels", {}).get(MACHINE_LABEL) or node.get("NodeManagerAddress", ""))


class Placer:
    """Owns the actors and placement groups of one namespace. One thread."""

    def __init__(self, wanted: Path, placed: Path) -> None:
        """The two files; `placed` is written here. ray.init has been called."""
        self._wanted_path = wanted
        self._placed_path = placed
        self._placed: dict[str, _Placed] = {}
        self._ending: dict[str, _Ending] = {}
        self._nodes = _Nodes()
        self._next_look = 0.0
        self._warm: Any = ray.remote(_warm)
        self._warmed: dict[str, float] = {}  #: when, by node

    def run(self) -> None:
        """Work until killed. Raises what Ray raises when its node or head is gone."""
        while True:
            self.step(time.monotonic())
            time.sleep(_EVERY_S)

    def step(self, now_s: float) -> None:
        """One round: look, make what is missing, end what is too much, ask, write."""
        if now_s >= self._next_look:
            self._look()
            self._next_look = now_s + _LOOK_EVERY_S
            self._keep_warm(now_s)
        orders = {_name(order): order for order in Wanted.read(self._wanted_path).orders}
        existing = {str(name) for name in ray.util.list_named_actors()}  # also those that an earlier placer made
        for name in self._placed.keys() - existing:  # it was killed by hand, or its restart was refused
            del self._placed[name]
        for name in existing - orders.keys() - self._ending.keys():
            self._begin_to_end(name, now_s)
        for name, order in orders.items():
            if name not in self._placed and name not in self._ending:
                self._place(name, order)
        for placed in self._placed.values():
            self._ask(placed, now_s)
        for name in list(self._ending):
            self._end_if_over(name, now_s)
        for name in list(self._nodes.groups):
            if "@" in name and name not in {*existing, *orders, *self._ending}:
                self._free(name)  # a placer died between a placement group and its actor
        write_whole(self._placed_path, self._view().model_dump_json(), is_durable=False)

    def _look(self) -> None:
        self._nodes.by_id = {node["NodeID"]: node for node in ray.nodes()}
        self._nodes.groups = {
            group["name"]: group["state"] for group in placement_group_table().values() if group["state"] != "REMOVED"
        }

    def _keep_warm(self, now_s: float) -> None:
        """Have an idle process on each machine that takes replicas: a replacement then starts without the time that
        Python and Ray need."""
        for node_id, node in self._nodes.by_id.items():
            takes_replicas = node["Resources"].get("CPU", 0) + node["Resources"].get("GPU", 0) > 0
            if node["Alive"] and takes_replicas and now_s - self._warmed.get(node_id, -math.inf) >= _WARM_EVERY_S:
                self._warmed[node_id] = now_s
                there = NodeAffinitySchedulingStrategy(node_id, soft=False)
                self._warm.options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote()

    def _place(self, name: str, order: WorkerOrder) -> None:
        needs, target = order.replica.needs, self._emptiest(order.replica)
        bundle = {"CPU": needs.cpus, **({"GPU": needs.gpus} if needs.gpus else {})}
        try:
            group = get_placement_group(name)
        except ValueError:
            # One bundle, which Ray never divides: a model over several GPUs stays on one machine.
            group = placement_group(
                [bundle],
                strategy="STRICT_PACK",
                name=name,
                lifetime="detached",
                bundle_label_selector=[selector(needs.label)] if needs.label else None,
                _soft_target_node_id=target,
            )
        actor = (
            ray.remote(WorkerActor)
            .options(
                name=name,
                lifetime="detached",
                get_if_exists=True,
                max_restarts=-1,
                max_concurrency=4,
                num_cpus=needs.cpus,
                num_gpus=needs.gpus,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0),
            )
            .remote(order.model_dump_json())
        )
        self._placed[name] = _Placed(order.replica, name, actor, target)

    def _emptiest(self, replica: Replica) -> str | None:
        """The machine that fits and has the fewest replicas of the model, then of all: replicas are spread. Ray takes
        another if it has no room."""
        needs, label = replica.needs, selector(replica.needs.label)
        fitting = [
            node_id
            for node_id, node in self._nodes.by_id.items()
            if node["Alive"]
            and node["Resources"].get("CPU", 0) >= needs.cpus > 0
            and node["Resources"].get("GPU", 0) >= needs.gpus
            and label.items() <= node["Labels"].items()
        ]
        homes = [(placed.replica.model, self._home(placed)) for placed in self._placed.values()]

        def load(node_id: str) -> tuple[int, int, str]:
            here = [model for model, home in homes if home == self._nodes.name(node_id)]
            return here.count(replica.model), len(here), node_id

        return min(fitting, key=load, default=None)

    def _home(self, placed: _Placed) -> str:
        """The machine of a replica, or the one that it is meant for."""
        if placed.view is not None and placed.view.machine:
            return placed.view.machine
        return "" if placed.target is None else self._nodes.name(placed.target)

    def _ask(self, placed: _Placed, now_s: float) -> None:
        if placed.asked is None:
            if now_s >= placed.next_ask:
                placed.asked = placed.actor.state.remote()
            return
        if not ray.wait([placed.asked], timeout=0)[0]:
            placed.view = self._unheard(placed)
            self._check_heard(placed, now_s)
            return
        asked, placed.asked = placed.asked, None
        placed.next_ask = now_s + _ASK_EVERY_S
        try:
            answer = json.loads(ray.get(asked))
        except ray.exceptions.RayActorError:
            placed.view = self._unheard(placed, is_lost=True)
            self._check_heard(placed, now_s)
            return
        placed.heard_at = now_s
        if answer["incarnation"] != placed.incarnation:
            placed.moves += bool(placed.incarnation)
            placed.incarnation = answer["incarnation"]
        fields = answer["replica"]
        fields["restarts"] += placed.moves
        placed.view = ReplicaView(
            id=placed.replica.id, model=placed.replica.model, machine=self._nodes.name(answer["node"]), **fields
        )

    def _check_heard(self, placed: _Placed, now_s: float) -> None:
        """After its head was killed Ray may not tell a driver that an actor is alive again; a new driver knows. Raises
        SystemExit for an actor that has room and has not answered for too long."""
        if self._nodes.groups.get(placed.name) != "CREATED" or not placed.heard_at:
            placed.heard_at = now_s
        elif now_s - placed.heard_at > _DEAF_S:
            raise SystemExit(f"{placed.name} does not answer: beginning anew")

    def _unheard(self, placed: _Placed, *, is_lost: bool = False) -> ReplicaView | None:
        """What is known of a replica whose actor does not answer: it is being placed, or a machine is lost."""
        known, group = placed.view, self._nodes.groups.get(placed.name)
        if group == "CREATED" and not is_lost and known is not None:
            return known  # an answer takes a moment
        state: ReplicaState = "starting" if group == "CREATED" else "waiting"
        return ReplicaView(
            id=placed.replica.id,
            model=placed.replica.model,
            state="restarting" if placed.incarnation else state,
            restarts=0 if known is None else known.restarts,
            problem="" if group == "CREATED" else _NO_ROOM,
        )

    def _begin_to_end(self, name: str, now_s: float) -> None:
        placed = self._placed.pop(name, None)
        replica_id = name.rpartition("@")[0]
        view = placed.view if placed is not None else None
        if view is None:
            view = ReplicaView(id=replica_id, model=replica_id.rpartition("#")[0], state="stopping")
        try:
            actor = placed.actor if placed is not None else ray.get_actor(name)
        except ValueError:  # it ended meanwhile
            return
        is_running = bool(view.url) or placed is None
        self._ending[name] = _Ending(
            actor,
            actor.stop.remote() if is_running else None,
            now_s + 2 * STOP_S,
            view.model_copy(update={"state": "stopping"}),
        )

    def _end_if_over(self, name: str, now_s: float) -> None:
        ending = self._ending[name]
        is_stopped = ending.stopped is None or bool(ray.wait([ending.stopped], timeout=0)[0])
        if not is_stopped and now_s < ending.give_up_at:
            return
        ray.kill(ending.actor, no_restart=True)
        self._free(name)
        del self._ending[name]

    def _free(self, name: str) -> None:
        """Give back the room of a replica."""
        with contextlib.suppress(ValueError):  # it is gone, or of another arena
            remove_placement_group(get_placement_group(name))
        self._nodes.groups.pop(name, None)

    def _view(self) -> PlacementView:
        unknown = [
            ReplicaView(id=placed.replica.id, model=placed.replica.model, state="waiting")
            for placed in self._placed.values()
            if placed.view is None
        ]
        known = [placed.view for placed in self._placed.values() if placed.view is not None]
        machines = [
            MachineView(
                name=self._nodes.name(node_id),
                address=node["NodeManagerAddress"],
                is_alive=node["Alive"],
                labels=shown_labels(node["Labels"]),
                cpus=node["Resources"].get("CPU", 0.0),
                gpus=node["Resources"].get("GPU", 0.0),
            )
            for node_id, node in self._nodes.by_id.items()
            if MACHINE_LABEL in node["Labels"]
        ]
        alive = {machine.name for machine in machines if machine.is_alive}
        dead = {machine.name: machine for machine in machines if machine.name not in alive}
        return PlacementView(
            machines=tuple(sorted((*(one for one in machines if one.is_alive), *dead.values()), key=_by_name)),
            replicas=tuple(sorted((*known, *unknown, *(one.view for one in self._ending.values())), key=_by_id)),
        )


def _by_name(machine: MachineView) -> str:
    return machine.name


def _by_id(view: ReplicaView) -> str:
    return view.id


def _name(order: WorkerOrder) -> str:
    """Name of the actor: another source or other needs make another one."""
    digest = hashlib.sha256(order.model_dump_json().encode()).hexdigest()[:8]
    return f"{order.replica.id}@{digest}"
