"""Models with processes of their own: what the fleet keeps and tells a placement, and how commands reach it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from cli.arena.placement.control import Question, answering, ask
from cli.arena.placement.fleet import Fleet
from cli.arena.placement.groups import GroupsFile, ReplicaGroup
from cli.arena.placement.on_ray.cluster import require_ray
from cli.arena.placement.on_ray.ray_placement import RayPlacement, Wanted
from cli.arena.placement.placement import MachineView, Needs, PlacementView, Replica, ReplicaView
from cli.arena.placement.scaler import Scaler
from cli.arena.placement.scaling import ScalingRule
from cli.errors import CliError
from cli.placed_models import PlacedModels, replica_group


class Machines:
    """A placement without processes: a replica is ready as soon as it is wanted."""

    def __init__(self, *, has_machines: bool = True) -> None:
        self.has_machines = has_machines
        self.wanted: tuple[Replica, ...] = ()
        self.failing = ""

    def want(self, replicas: Sequence[Replica]) -> None:
        self.wanted = tuple(replicas)

    def view(self) -> PlacementView:
        views = [
            ReplicaView(
                id=one.id,
                model=one.model,
                state="failed" if one.model == self.failing else "ready",
                machine="m1",
                url=f"http://10.0.0.1:{8200 + number}",
                problem="config.json is missing" if one.model == self.failing else "",
            )
            for number, one in enumerate(self.wanted)
        ]
        return PlacementView(machines=(MachineView(name="m1", address="10.0.0.1"),), replicas=tuple(views))

    async def end(self) -> None:
        self.wanted = ()


@pytest.fixture
def file(tmp_path: Path) -> GroupsFile:
    return GroupsFile(tmp_path / "replicas.json")


def group(model: str = "mine", source: str = "org/mine", **more: object) -> ReplicaGroup:
    return ReplicaGroup(model=model, source=source, **more)  # type: ignore[arg-type]


def test_what_was_added_and_scaled_is_wanted_again_after_a_restart(file: GroupsFile) -> None:
    fleet = Fleet(Machines(), file, [group("given")])
    fleet.add(group(replicas=2, needs=Needs(cpus=2, gpus=1, label="rack=a")))
    fleet.scale("given", 3)
    machines = Machines()
    again = Fleet(machines, file, [group("given")])
    again.start()
    assert [one.id for one in machines.wanted] == ["given#1", "given#2", "given#3", "mine#1", "mine#2"]
    assert machines.wanted[-1].needs == Needs(cpus=2, gpus=1, label="rack=a")
    again.remove("mine")
    assert [one.id for one in machines.wanted] == ["given#1", "given#2", "given#3"]


def test_another_source_on_the_command_line_replaces_what_was_kept(file: GroupsFile) -> None:
    Fleet(Machines(), file, [group()]).scale("mine", 3)
    fleet = Fleet(Machines(), file, [group(source="org/other")])
    assert fleet.groups == (group(source="org/other"),)


@pytest.mark.parametrize("needs", [Needs(gpus=1), Needs(label="rack=a")])
def test_one_machine_knows_neither_gpus_nor_labels(file: GroupsFile, needs: Needs) -> None:
    fleet = Fleet(Machines(has_machines=False), file)
    with pytest.raises(CliError, match="--placement ray"):
        fleet.add(group(needs=needs))
    assert fleet.groups == ()


def test_bounds_let_the_load_decide_and_a_number_alone_ends_that(file: GroupsFile) -> None:
    fleet = Fleet(Machines(), file, [group()])
    fleet.scale("mine", None, 2, 5)
    assert (fleet.groups[0].replicas, fleet.groups[0].is_scaled) == (2, True)
    fleet.set_replicas("mine", 4)
    assert (fleet.groups[0].least, fleet.groups[0].replicas, fleet.groups[0].most) == (2, 4, 5)
    fleet.scale("mine", 1)
    assert (fleet.groups[0].replicas, fleet.groups[0].is_scaled) == (1, False)
    with pytest.raises(CliError, match="the least number of replicas, 6, is above the most, 5"):
        fleet.scale("mine", None, 6, 5)
    with pytest.raises(CliError, match="nobody has no processes of its own"):
        fleet.scale("nobody", 1)


def test_a_file_that_is_no_list_of_replicas_is_named(file: GroupsFile, tmp_path: Path) -> None:
    (tmp_path / "replicas.json").write_text("[]")
    with pytest.raises(CliError, match=r"replicas\.json"):
        Fleet(Machines(), file)


async def test_commands_reach_the_fleet_of_the_data_directory(file: GroupsFile, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40)  # a socket's name has 107 bytes at most
    folder.mkdir()
    machines = Machines()
    fleet, placed = Fleet(machines, file), PlacedModels(folder)
    assert placed.view() is None
    with pytest.raises(CliError, match="no arena runs on"):
        placed.add(group())
    async with answering(folder, fleet):
        said = await asyncio.to_thread(placed.add, group(replicas=2))
        assert said == "mine is served by http://10.0.0.1:8200 on m1, http://10.0.0.1:8201 on m1"
        assert await asyncio.to_thread(placed.has, "mine")
        with pytest.raises(CliError, match="mine has processes of its own already"):
            await asyncio.to_thread(placed.add, group())
        machines.failing = "broken"
        with pytest.raises(CliError, match=r"config\.json is missing"):
            await asyncio.to_thread(placed.add, group("broken"))
        assert [one.model for one in fleet.groups] == ["mine"], "a model that does not start is not kept"
        assert (await asyncio.to_thread(placed.scale, "mine", 3, None, None)).replicas == 3
        await asyncio.to_thread(placed.remove, "mine")
        assert machines.wanted == ()
        view = await asyncio.to_thread(ask, folder, Question())
        assert view is not None
        assert view.groups == ()
    assert placed.view() is None


def test_what_a_person_asks_of_replicas_is_checked() -> None:
    assert replica_group("m", "s", gpus=2).needs == Needs(cpus=0, gpus=2)
    assert replica_group("m", "s", least=2, most=4).replicas == 2
    assert replica_group("m", "s", most=4).least == 1
    with pytest.raises(CliError, match="label"):
        replica_group("m", "s", label="no label")
    with pytest.raises(CliError, match="not between 2 and 3"):
        replica_group("m", "s", replicas=5, least=2, most=3)


async def test_the_load_that_the_controller_reports_adds_a_replica(file: GroupsFile) -> None:
    card = {"name": "mine", "revision": "r", "architecture": "a", "num_parameters": 1, "dtype": "f"}
    worker = {
        "worker_id": "w-000000000001",
        "model": "mine",
        "state": "ready",
        "card": {**card, "context_length": 9},
        "capacity": {"max_running": 2, "max_queued": 9, "kv_tokens": 9},
        "load": {"running": 2, "waiting": 7, "queued_tokens": 900},
    }

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/arena/workers":
            assert request.headers["authorization"] == "Bearer admin"
            return httpx.Response(200, json=[worker])
        return httpx.Response(200, text="arena_time_to_first_token_seconds_sum 1.0\n")

    fleet, said = Fleet(Machines(), file, [group(least=1, most=2, is_scaled=True)]), []
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        scaler = Scaler(
            fleet,
            client,
            "http://c",
            {"Authorization": "Bearer admin"},
            lambda source, text: said.append(f"{source}: {text}"),
            ScalingRule(queued_tokens=100, up_after_s=5.0),
        )
        for second in range(6):
            await scaler.step(float(second))
    assert fleet.groups[0].replicas == 2
    assert said == ["mine: 1 -> 2 replicas (7 waiting with 900 tokens, 2 running)"]


def test_ray_is_told_what_should_run_and_is_stale_when_it_does_not_answer(tmp_path: Path) -> None:
    placement = RayPlacement(tmp_path, "http://10.0.0.1:8100", ("--kv-dtype", "int8"))
    placement.want(group(replicas=2).wanted())
    [first, _] = Wanted.read(placement.wanted_path).orders
    assert (first.replica.id, first.controller_url, first.options) == (
        "mine#1",
        "http://10.0.0.1:8100",
        ("--kv-dtype", "int8"),
    )
    assert "token" not in placement.wanted_path.read_text()
    view = placement.view()
    assert [one.state for one in view.replicas] == ["waiting", "waiting"]
    assert view.problem is not None
    known = ReplicaView(id="mine#1", model="mine", state="ready", machine="m2")
    placement.placed_path.write_text(PlacementView(replicas=(known,)).model_dump_json())
    view = placement.view()
    assert [(one.id, one.machine) for one in view.replicas] == [("mine#1", "m2"), ("mine#2", "")]
    assert view.problem is None


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CliError, match=r"needs Ray, which is not installed: `pip install 'agon\[cluster\]'`"):
        require_ray("--placement ray")
