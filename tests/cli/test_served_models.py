"""`agon models` against a running controller with two worker processes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli.arena.placement.control import answering
from cli.arena.placement.fleet import Fleet
from cli.arena.placement.groups import GroupsFile
from cli.errors import CliError
from cli.models import app
from cli.served_models import with_options
from model_worker.app import create_app
from model_worker.config import WorkerSettings
from model_worker.heartbeat import Heartbeat, controller_client
from model_worker.models import Models
from model_worker.worker import Worker
from tests.cli.arena.placement.test_fleet import Machines
from tests.controller.support.arena import ADMIN_TOKEN, WORKER_TOKEN, Arena, eventually, make_settings, running_arena
from tests.controller.support.running import running_app, running_store
from tests.model_worker.echo_host import EchoHost


@dataclass
class TwoWorkers:
    arena: Arena
    urls: list[str]
    processes: list[Models]

    def states(self) -> list[dict[str, str]]:
        return [{row.name: row.residence for row in process.view().models} for process in self.processes]


@pytest.fixture
async def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TwoWorkers]:
    """A process with the models ash and elm, and one with oak."""
    monkeypatch.setenv("AGON_ADMIN_TOKEN", ADMIN_TOKEN)
    with running_store(tmp_path / "store") as store:
        async with running_arena(make_settings(store.url, "served")) as arena, AsyncExitStack() as stack:
            client = await stack.enter_async_context(controller_client(WORKER_TOKEN))
            found = TwoWorkers(arena, [], [])
            for models in (("ash=a", "elm=e"), ("oak=o",)):
                settings = WorkerSettings(
                    model=models, controller_urls=(arena.url,), worker_token=WORKER_TOKEN, engine="paged"
                )
                urls: list[str] = []

                def link(worker: Worker, urls: list[str] = urls) -> Heartbeat:
                    return Heartbeat(worker, client, url=urls[0], boot_id="boot-0001")

                process = Models(settings, host=EchoHost(), link=link)
                urls.append(await stack.enter_async_context(running_app(create_app(settings, models=process))))
                stack.push_async_callback(process.shutdown)
                await process.start()
                found.urls.append(urls[0])
                found.processes.append(process)

            async def all_known() -> bool:
                return len((await arena.client.get("/v1/models")).json()["data"]) == 3

            await eventually(all_known)
            yield found


async def run(two: TwoWorkers, *arguments: str) -> None:
    await asyncio.to_thread(app, args=[*arguments, "--controller", two.arena.url], standalone_mode=False)


async def test_models_are_listed_added_put_to_sleep_woken_moved_and_removed(
    two: TwoWorkers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "fir"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    await run(two, "list", "--json")
    listed = json.loads(capsys.readouterr().out)
    assert {process["url"]: [row["name"] for row in process["models"]] for process in listed["processes"]} == {
        two.urls[0]: ["ash", "elm"],
        two.urls[1]: ["oak"],
    }

    await run(two, "add", f"fir={folder}", "--reason", "a new one")  # where there are fewest
    assert two.states() == [{"ash": "resident", "elm": "resident"}, {"oak": "resident", "fir": "resident"}]
    await run(two, "sleep", "fir")
    await run(two, "list")
    shown = capsys.readouterr().out
    assert "fir is served" in shown
    assert "asleep" in shown
    await run(two, "wake", "fir", "--json")
    woken = json.loads(capsys.readouterr().out)
    states = {row["name"]: row["residence"] for process in woken["processes"] for row in process["models"]}
    assert states["fir"] == "resident"
    assert two.states()[1]["fir"] == "resident"
    await run(two, "move", "fir", "--to", two.urls[0])
    await eventually(lambda: "fir" not in two.states()[1])
    assert two.states()[0]["fir"] == "resident"
    await run(two, "remove", "fir")
    await eventually(lambda: two.states() == [{"ash": "resident", "elm": "resident"}, {"oak": "resident"}])

    actions = (await two.arena.client.get("/arena/admin/actions", headers=two.arena.admin)).json()["actions"]
    assert [(action["action"], action["subject"]) for action in actions] == [
        ("remove_model", "fir"),
        ("move_model", "fir"),
        ("wake_model", "fir"),
        ("sleep_model", "fir"),
        ("add_model", "fir"),
    ]
    assert actions[-1]["reason"] == "a new one"


async def test_mistakes_are_told_in_the_loaders_words(two: TwoWorkers) -> None:
    with pytest.raises(CliError, match="there is no folder"):
        await run(two, "add", "fir=/nowhere/at/all")
    with pytest.raises(CliError, match="served from a already"):
        await run(two, "add", "ash=lab/another")
    with pytest.raises(CliError, match="No worker serves 'fir'"):
        await run(two, "sleep", "fir")
    with pytest.raises(CliError, match="No worker 'elsewhere'"):
        await run(two, "move", "ash", "--to", "elsewhere")


async def test_a_model_that_no_process_can_share_gets_one_of_its_own(
    two: TwoWorkers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGON_CONTROLLER_URL", two.arena.url)
    before = two.states()
    placement = Machines(has_machines=False)
    fleet = Fleet(placement, GroupsFile(tmp_path / "replicas.json"))

    async def add(model: str) -> str:
        await asyncio.to_thread(app, args=["add", model, "--data-dir", str(tmp_path)], standalone_mode=False)
        said = capsys.readouterr()
        return said.err + said.out

    async with answering(tmp_path, fleet):
        said = await add("fir=lab/broken")
        assert "the worker process refuses it: cannot load broken: weights are cut off" in said
        assert "fir is served by http://10.0.0.1:8200 on m1" in said
        await eventually(lambda: two.states() == before)
        monkeypatch.setattr("cli.served_models.MAX_MODELS", 1)
        said = await add("yew=lab/yew")
        assert "no worker process has room for it" in said
        assert "yew is served by http://10.0.0.1:8201 on m1" in said
        placement.failing = "ivy"
        with pytest.raises(CliError, match="is missing"):
            await add("ivy=lab/ivy")
    assert two.states() == before
    assert [(one.model, one.source) for one in placement.wanted] == [("fir", "lab/broken"), ("yew", "lab/yew")]


async def test_the_last_model_of_a_process_goes_and_another_one_comes(two: TwoWorkers, tmp_path: Path) -> None:
    folder = tmp_path / "fir"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    process = two.processes[1]
    await run(two, "remove", "oak")

    async def is_gone() -> bool:
        return "oak" not in [row["id"] for row in (await two.arena.client.get("/v1/models")).json()["data"]]

    await eventually(is_gone)
    assert process.is_ready
    await run(two, "add", f"fir={folder}", "--worker", two.urls[1])
    assert [row.name for row in process.view().models] == ["fir"]


async def test_a_base_model_is_marked_when_it_is_added_and_listed(
    two: TwoWorkers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    await run(two, "add", "fir=lab/base")
    assert "in memory; it is a base model: it completes text" in capsys.readouterr().out
    await run(two, "list")
    [row] = [line for line in capsys.readouterr().out.splitlines() if "fir" in line]
    assert "resident; a base model: it completes text, and battles and chats leave it out" in row


async def test_a_battle_wakes_what_it_draws(two: TwoWorkers) -> None:
    await run(two, "sleep", "ash")
    await run(two, "sleep", "oak")

    async def both_known_to_sleep() -> bool:  # the controller learns it from the next heartbeats
        rows = (await two.arena.client.get("/arena/workers", headers=two.arena.admin)).json()
        return {"ash": "asleep", "oak": "asleep"}.items() <= {row["model"]: row["state"] for row in rows}.items()

    await eventually(both_known_to_sleep)
    battle = await two.arena.create("ash", "oak")
    events = await two.arena.turn(battle["id"])
    assert [event.event for event in events[:1]] == ["waking"]
    assert [event.event for event in events].count("finished") == 2
    assert two.states() == [{"ash": "resident", "elm": "resident"}, {"oak": "resident"}]


def test_flags_of_a_hosted_model_become_options_of_its_source() -> None:
    added = with_options("gpt=openai:m@https://h/v1#max_running=2", {"key_env": "K"}, ["stream_usage=false"])
    assert added == "gpt=openai:m@https://h/v1#key_env=K&max_running=2&stream_usage=false"
    with pytest.raises(CliError, match="for hosted models"):
        with_options("mine=/models/mine", {"key_env": "K"}, [])
    with pytest.raises(CliError, match="no option 'nothing'"):
        with_options("gpt=openai:m@https://h/v1", {}, ["nothing=1"])
