"""How machines join a cluster: command lines, labels, addresses, tokens. No Ray is started."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli import join
from cli.arena.data_dir import DataDir
from cli.arena.placement.on_ray.cluster import (
    ClusterSettings,
    Machine,
    check_labels,
    node_command,
    ray_environment,
    selector,
    shown_labels,
    split_address,
    temp_dir,
)
from cli.arena.placement.on_ray.ray_placement import RayPlacement
from cli.arena.placement.on_ray.services import cluster_specs, end_strays
from cli.cluster_node import join_cluster
from cli.errors import CliError


def test_the_head_has_no_cpu_and_every_process_of_the_cluster_the_token(tmp_path: Path) -> None:
    folder = DataDir(tmp_path)
    folder.create()
    folder.cluster.mkdir()
    placement = RayPlacement(folder.cluster, "http://10.0.0.1:8100", ())
    settings = ClusterSettings(Machine("here", cpus=8, gpus=2, labels=("rack=a",)), port=16379)
    specs = {spec.name: spec for spec in cluster_specs(settings, "10.0.0.1", folder, "token", placement)}
    assert list(specs) == ["cluster-store", "ray-head", "ray-node", "placer"]
    head, node, placer = specs["ray-head"], specs["ray-node"], specs["placer"]
    assert " ".join(head.command).count("--num-cpus 0 --num-gpus 0") == 1
    store = (folder.cluster / "store" / "store.conf").read_text()
    assert f"requirepass {head.command[head.command.index('--redis-password') + 1]}" in store
    assert head.environment["RAY_REDIS_ADDRESS"] in f"127.0.0.1:{store.split('port ')[1].split()[0]}"
    assert "--num-cpus 8 --num-gpus 2" in " ".join(node.command)
    assert {spec.environment["RAY_AUTH_TOKEN"] for spec in (head, node, placer)} != {"token"}
    assert len({spec.environment["RAY_AUTH_TOKEN"] for spec in (head, node, placer)}) == 1
    # Only machines start workers, so only they have the worker token; the head keeps its place after a restart.
    assert [name for name, spec in specs.items() if "AGON_WORKER_TOKEN" in spec.environment] == ["ray-node"]
    again = {spec.name: spec for spec in cluster_specs(settings, "10.0.0.1", folder, "token", placement)}
    prefix = "RAY_external_storage_namespace"
    assert again["ray-head"].environment[prefix] == head.environment[prefix]


def test_what_a_node_leaves_is_ended_and_nothing_else(tmp_path: Path) -> None:
    """A process of Ray that starts while its node ends finds it no more, and would wait for ever."""

    def process(**variables: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(["sleep", "600"], env=variables)

    stray = process(AGON_DATA_DIR=str(tmp_path), RAY_RAYLET_PID="1")
    others = [process(AGON_DATA_DIR=str(tmp_path)), process(AGON_DATA_DIR=f"{tmp_path}2", RAY_RAYLET_PID="1")]
    try:
        end_strays(tmp_path)
        assert stray.wait(10) == -signal.SIGKILL
        assert [other.poll() for other in others] == [None, None]
    finally:
        for one in (stray, *others):
            one.kill()
            one.wait()


def test_a_store_of_the_operators_keeps_the_heads_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = DataDir(tmp_path)
    folder.create()
    folder.cluster.mkdir()
    placement = RayPlacement(folder.cluster, "http://10.0.0.1:8100", ())
    settings = ClusterSettings(Machine("here"))
    monkeypatch.setenv("AGON_CLUSTER_STORE_URL", "redis://:p%40ss@10.0.0.9")
    head = cluster_specs(settings, "10.0.0.1", folder, "token", placement)[0]
    assert (head.name, head.environment["RAY_REDIS_ADDRESS"]) == ("ray-head", "10.0.0.9:6379")
    assert head.command[head.command.index("--redis-password") + 1] == "p@ss"
    monkeypatch.setenv("AGON_CLUSTER_STORE_URL", "redis+sentinel://a:1,b:2/votes")
    with pytest.raises(CliError, match="AGON_CLUSTER_STORE_URL must be redis://"):
        cluster_specs(settings, "10.0.0.1", folder, "token", placement)
    other = ClusterSettings(Machine("here"), head="10.0.0.9:6379")  # a cluster that exists: only a node and the placer
    assert [spec.name for spec in cluster_specs(other, "10.0.0.1", folder, "token", placement)] == [
        "ray-node",
        "placer",
    ]


def test_a_token_of_an_existing_cluster_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert "RAY_AUTH_TOKEN" not in ray_environment("token")


def test_labels_come_back_as_they_were_given() -> None:
    command = node_command("h:1", Machine("m1", labels=("fast", "rack=a")), Path("/t"))
    given = dict(pair.split("=") for pair in command[command.index("--labels") + 1].split(","))
    assert shown_labels({**given, "ray.io/node-id": "x"}) == ("fast", "rack=a")
    assert selector("fast").items() <= given.items()
    assert selector("rack=a").items() <= given.items()
    assert selector("rack=b").items().isdisjoint(given.items())
    for bad in ("", "no label", "a=", "a=b=c", "ray.io/x"):
        with pytest.raises(CliError, match="is no label"):
            check_labels([bad])


@pytest.mark.parametrize(("text", "address"), [("head", "head:6379"), ("10.0.0.1:7000", "10.0.0.1:7000")])
def test_the_heads_port_can_be_left_out(text: str, address: str) -> None:
    assert split_address(text) == address


@pytest.mark.parametrize("text", ["http://head:8100", ":1", "head:port"])
def test_what_is_no_address_of_a_head_is_refused(text: str) -> None:
    with pytest.raises(CliError, match="no address of a cluster's head"):
        split_address(text)


def test_names_of_rays_sockets_stay_short(tmp_path: Path) -> None:
    path = temp_dir(tmp_path / ("long" * 40), "node")
    assert len(str(path / "session_2026-11-26_23-47-41_925084_32325/sockets/plasma_store.1")) < 108
    assert path != temp_dir(tmp_path / ("long" * 40), "head")


def test_joining_needs_ray_and_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGON_WORKER_TOKEN", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CliError, match="`agon cluster join` needs Ray"):
        join_cluster("head", Machine("m1"), data_dir=tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    with pytest.raises(CliError, match="the worker token of the arena is needed"):
        join_cluster("head", Machine("m1"), data_dir=tmp_path)
    with pytest.raises(CliError, match="cannot read"):
        join_cluster("head", Machine("m1"), token_file=tmp_path / "missing", data_dir=tmp_path)
    assert not (tmp_path / "logs").exists()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["http://10.0.0.1:8100"], "which model does this machine serve"),
        (["10.0.0.1", "--threads", "2"], "--threads is a flag of workers"),
        (["http://10.0.0.1:8100", "--model", "one=one", "--label", "rack=a"], "--label is for machines of a Ray"),
        (["10.0.0.1", "--label", "a b"], "'a b' is no label"),
    ],
)
def test_agon_join_tells_a_worker_from_a_machine_of_a_cluster(arguments: list[str], sentence: str) -> None:
    found = CliRunner().invoke(join.app, arguments).exception
    assert isinstance(found, CliError)
    assert sentence in str(found)


def test_agon_join_without_a_model_joins_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[tuple[str, tuple[str, ...]]] = []

    def note(head: str, machine: Machine, **_: object) -> None:
        joined.append((head, machine.labels))

    monkeypatch.setattr(join, "join_cluster", note)
    assert CliRunner().invoke(join.app, ["10.0.0.1", "--label", "rack=a"]).exit_code == 0
    assert joined == [("10.0.0.1", ("rack=a",))]
