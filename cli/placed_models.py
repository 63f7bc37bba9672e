"""Models with worker processes of their own, as commands see them: the running `agon up` adds and scales them."""

import time
from pathlib import Path

from pydantic import ValidationError

from cli.arena.data_dir import DataDir, default_data_dir
from cli.arena.placement.control import Question, ask
from cli.arena.placement.fleet import FleetView, first_sentence
from cli.arena.placement.groups import ReplicaGroup
from cli.arena.placement.placement import Needs, ReplicaView
from cli.errors import CliError

_POLL_S = 0.2
_NO_ROOM_S = 15.0  #: no machine has room for so long: the command says so and ends, the replica goes on waiting


class PlacedModels:
    """The fleet of the arena that runs on a data directory."""

    def __init__(self, data_dir: Path | None) -> None:
        self._folder = DataDir(data_dir or default_data_dir()).path

    def view(self) -> FleetView | None:
        """The fleet now; None if no arena runs on the folder. Raises CliError."""
        return ask(self._folder, Question())

    def has(self, model: str) -> bool:
        """Whether a model has processes of its own."""
        view = self.view()
        return view is not None and any(group.model == model for group in view.groups)

    def add(self, group: ReplicaGroup) -> str:
        """Start the processes of a model, and wait until they serve it. Returns a sentence. Raises CliError with the
        reason; then nothing of it is left."""
        self._ask(Question(action="add", group=group))
        print(f"{group.model} is being loaded in {_processes(group.replicas)} of its own")
        try:
            return self._await(group.model)
        except CliError:
            self._ask(Question(action="remove", model=group.model))
            raise

    def remove(self, model: str) -> None:
        """End the processes of a model when they have finished their answers. Raises CliError."""
        self._ask(Question(action="remove", model=model))

    def scale(self, model: str, replicas: int | None, least: int | None, most: int | None) -> ReplicaGroup:
        """See Fleet.scale; returns the group. Raises CliError."""
        view = self._ask(Question(action="scale", model=model, replicas=replicas, least=least, most=most))
        return next(group for group in view.groups if group.model == model)

    def _ask(self, question: Question) -> FleetView:
        view = ask(self._folder, question)
        if view is None:
            raise CliError(
                f"no arena runs on {self._folder}, and only `agon up` starts processes: run this where it runs, with "
                "its --data-dir."
            )
        return view

    def _await(self, model: str) -> str:
        without_room_since: float | None = None
        while True:
            replicas = [replica for replica in self._ask(Question()).placement.replicas if replica.model == model]
            failed = next((replica for replica in replicas if replica.state == "failed"), None)
            if failed is not None:
                raise CliError(failed.problem or f"{failed.id} does not start")
            if replicas and all(replica.state == "ready" for replica in replicas):
                return f"{model} is served by {', '.join(_where(replica) for replica in replicas)}"
            waiting = [replica for replica in replicas if replica.problem and replica.state == "waiting"]
            without_room_since = (without_room_since or time.monotonic()) if waiting else None
            if without_room_since is not None and time.monotonic() - without_room_since > _NO_ROOM_S:
                names = ", ".join(replica.id for replica in waiting)
                return f"{names}: {waiting[0].problem} yet; it is placed as soon as there is one"
            time.sleep(_POLL_S)


def replica_group(
    model: str,
    source: str,
    *,
    replicas: int | None = None,
    least: int | None = None,
    most: int | None = None,
    cpus: float | None = None,
    gpus: int = 0,
    label: str | None = None,
) -> ReplicaGroup:
    """A group from what a person gave. Raises CliError."""
    is_scaled = least is not None or most is not None
    first = replicas or least or 1
    try:
        return ReplicaGroup(
            model=model,
            source=source,
            needs=Needs(cpus=(0.0 if gpus else 1.0) if cpus is None else cpus, gpus=gpus, label=label),
            replicas=first,
            least=least or 1,
            most=most or (max(first, least or 1) if is_scaled else ReplicaGroup.model_fields["most"].default),
            is_scaled=is_scaled,
        )
    except ValidationError as error:
        raise CliError(first_sentence(error)) from None


def _processes(number: int) -> str:
    return "a process" if number == 1 else f"{number} processes"


def _where(replica: ReplicaView) -> str:
    return f"{replica.url} on {replica.machine}"
