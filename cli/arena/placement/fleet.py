"""The models of an arena that have worker processes of their own: added, removed and scaled while the arena runs.

Owns the list of groups and its file, and tells the placement which replicas should run. Knows neither processes nor
Ray. Used by one event loop.
"""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, ValidationError

from cli.arena.placement.groups import GroupsFile, ReplicaGroup
from cli.arena.placement.placement import Placement, PlacementView
from cli.errors import CliError


class FleetView(BaseModel):
    """What `agon cluster status` and `agon models` are told."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    has_machines: bool
    groups: tuple[ReplicaGroup, ...]
    placement: PlacementView


class Fleet:
    """See the module. Every method that changes something raises CliError, and has changed nothing then."""

    def __init__(self, placement: Placement, file: GroupsFile, given: Sequence[ReplicaGroup] = ()) -> None:
        """`given`: groups of the command line. What the file says of the same model and source wins, since it may have
        been scaled. Raises CliError."""
        self._placement = placement
        self._file = file
        kept = {group.model: group for group in file.read()}
        for group in given:
            known = kept.get(group.model)
            if known is None or known.source != group.source:
                kept[group.model] = group
        self._groups = kept
        for group in kept.values():
            self._check(group)

    @property
    def groups(self) -> tuple[ReplicaGroup, ...]:
        """All groups, in the order in which they were added."""
        return tuple(self._groups.values())

    def start(self) -> None:
        """Tell the placement for the first time."""
        self._placement.want([replica for group in self.groups for replica in group.wanted()])

    def view(self) -> FleetView:
        """Groups, replicas and machines now."""
        return FleetView(
            has_machines=self._placement.has_machines, groups=self.groups, placement=self._placement.view()
        )

    def add(self, group: ReplicaGroup) -> None:
        """Run a model in processes of its own."""
        if group.model in self._groups:
            raise CliError(f"{group.model} has processes of its own already; `agon models scale` changes their number.")
        self._check(group)
        self._set({**self._groups, group.model: group})

    def remove(self, model: str) -> None:
        """End all replicas of a model; they finish their answers first."""
        self._group(model)
        self._set({name: group for name, group in self._groups.items() if name != model})

    def scale(self, model: str, replicas: int | None, least: int | None = None, most: int | None = None) -> None:
        """Set the number of replicas by hand, or bounds between which it follows the load. A number alone ends the
        scaling by load."""
        known = self._group(model)
        if least is None and most is None:
            changes = {"replicas": known.replicas if replicas is None else replicas, "least": 1, "is_scaled": False}
            changes["most"] = ReplicaGroup.model_fields["most"].default
        else:
            least = (known.least if known.is_scaled else 1) if least is None else least
            most = (known.most if known.is_scaled else max(least, known.replicas)) if most is None else most
            start = known.replicas if replicas is None else replicas
            changes = {"replicas": max(least, min(most, start)), "least": least, "most": most, "is_scaled": True}
        self._replace(known, changes)

    def set_replicas(self, model: str, replicas: int) -> None:
        """The number that the load asks for; bounds stay."""
        self._replace(self._group(model), {"replicas": replicas})

    def _replace(self, known: ReplicaGroup, changes: dict[str, int]) -> None:
        try:
            group = ReplicaGroup.model_validate({**known.model_dump(), **changes})
        except ValidationError as error:
            raise CliError(first_sentence(error)) from None
        self._set({**self._groups, known.model: group})

    def _set(self, groups: dict[str, ReplicaGroup]) -> None:
        self._file.write(tuple(groups.values()))
        self._groups = groups
        self.start()

    def _group(self, model: str) -> ReplicaGroup:
        group = self._groups.get(model)
        if group is None:
            raise CliError(f"{model} has no processes of its own.")
        return group

    def _check(self, group: ReplicaGroup) -> None:
        if not self._placement.has_machines and (group.needs.gpus or group.needs.label is not None):
            raise CliError(
                f"{group.model}: GPUs and labels choose a machine of a cluster; start the arena with --placement ray."
            )


def first_sentence(error: ValidationError) -> str:
    """What is wrong with values that a person gave."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    message = str(first["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}." if where else f"{message}."
