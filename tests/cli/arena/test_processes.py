"""The processes of `agon up`: models, ports, commands and environments."""

import json
import re
import socket
from pathlib import Path

import httpx
import pytest

from cli.arena.child import ProbeResult
from cli.arena.data_dir import DataDir
from cli.arena.embedded_redis import EmbeddedRedis, StoreBinary
from cli.arena.local_tls import read_local_tls
from cli.arena.placement.assembly import build_arena
from cli.arena.placement.on_ray.cluster import ClusterSettings, Machine
from cli.arena.placement.on_ray.placed_worker import placed_worker
from cli.arena.placement.placement import Replica
from cli.arena.placement.worker_process import WorkerOrder
from cli.arena.processes import (
    DRAIN_S,
    ArenaSettings,
    ModelSource,
    build_stages,
    check_models,
    check_ports,
    demo_models,
    parse_model,
    parse_models,
    parse_replicas,
    replica_spec,
)
from cli.arena.service import base_url
from cli.errors import CliError

CERTIFICATES = Path(__file__).parents[2] / "certificates"


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "finch"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({}))
    return folder


def settings(tmp_path: Path, **changes: object) -> ArenaSettings:
    fields: dict[str, object] = {
        "data_dir": tmp_path,
        "models": (ModelSource("one", "somebody/one"), ModelSource("two", "somebody/two")),
        "host": "127.0.0.1",
        "controller_port": 18101,
        "webui_port": 18102,
        "worker_port": 18103,
        "threads_per_worker": 1,
    }
    return ArenaSettings(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_folder_is_named_after_itself_unless_told_otherwise(model_folder: Path) -> None:
    assert parse_model(str(model_folder)) == ModelSource("finch", str(model_folder))
    assert parse_model(f"bird={model_folder}") == ModelSource("bird", str(model_folder))


def test_a_gguf_file_is_named_after_itself(tmp_path: Path) -> None:
    file = tmp_path / "small.Q4_K_M.gguf"
    file.touch()
    assert parse_model(str(file)) == ModelSource("small.Q4_K_M", str(file))
    assert parse_model(f"bird={file}") == ModelSource("bird", str(file))


def test_a_hub_id_needs_no_folder() -> None:
    assert parse_model("somebody/small-model") == ModelSource("small-model", "somebody/small-model")


def test_a_model_of_another_server_is_named_by_its_source() -> None:
    source = "openai:org/m@https://h/v1#key_env=K"
    assert parse_model(f"gpt={source}") == ModelSource("gpt", source)
    assert parse_model(source) == ModelSource("org/m", source)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nowhere", "there is no folder nowhere"),
        ("./nowhere/model", "there is no folder"),
        ("nowhere/model.gguf", "there is no file nowhere/model.gguf"),
        ("a b=somebody/model", "no usable name"),
        ("{tmp_path}", "no config.json"),
        ("gpt=openai:m@h/v1", "is named openai:MODEL"),
        ("gpt=openai:m@https://h/v1#key=k", "no option 'key'"),
    ],
)
def test_a_model_that_cannot_be_served_is_refused_with_the_reason(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(CliError, match=reason):
        parse_model(text.format(tmp_path=tmp_path))


def test_two_models_of_one_name_are_refused(model_folder: Path) -> None:
    with pytest.raises(CliError, match="two models are named 'finch'"):
        parse_models([str(model_folder), "finch=somebody/model"])


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("localhost", "http://localhost:80"),
    ],
)
def test_a_server_that_binds_everything_is_reached_on_loopback(host: str, url: str) -> None:
    assert base_url(host, 80) == url


@pytest.mark.parametrize("flag", ["--controller-port", "--webui-port", "--worker-port"])
def test_a_port_in_use_is_named_with_the_flag_that_moves_it(flag: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        field = flag.removeprefix("--").replace("-", "_")
        with pytest.raises(CliError, match=rf"port {port} .* choose another with {flag}"):
            check_ports(settings(tmp_path, **{field: port}))


def test_one_port_for_two_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="wanted twice, by --controller-port and --webui-port"):
        check_ports(settings(tmp_path, webui_port=18101))


def test_an_address_that_is_not_this_machines_is_said_to_be_none_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"no address 203\.0\.113\.5"):
        check_ports(settings(tmp_path, host="203.0.113.5"))


async def test_each_process_gets_only_the_secrets_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://:password@host")
    monkeypatch.setenv("SOME_HOST_API_KEY", "sk-1")
    folder = DataDir(tmp_path / "data")
    folder.create()
    secrets = folder.secrets()
    store = EmbeddedRedis(folder.store, StoreBinary(Path("store"), "test"))
    async with httpx.AsyncClient() as client:
        stages = build_stages(settings(tmp_path, is_isolated=True), folder, secrets, store, client)
    assert [[spec.name for spec in stage] for stage in stages] == [
        ["store"],
        ["controller"],
        ["worker one", "worker two"],
        ["webui"],
    ]
    specs = [spec for stage in stages for spec in stage]
    everything = {secrets.worker_token, secrets.admin_token, secrets.voter_key, secrets.proxy_token}
    known = {spec.name: everything & set(spec.environment.values()) for spec in specs}
    assert known["controller"] == everything
    assert known["worker one"] == known["worker two"] == {secrets.worker_token}
    assert known["webui"] == {secrets.proxy_token}
    assert known["store"] == set()
    assert all("REDIS_URL" not in spec.environment for spec in specs)
    assert [spec.name for spec in specs if "SOME_HOST_API_KEY" in spec.environment] == ["worker one", "worker two"]
    assert all(secret not in " ".join(spec.command) for spec in specs for secret in everything)


async def test_a_worker_is_given_longer_to_stop_than_it_takes_to_drain(tmp_path: Path) -> None:
    folder = DataDir(tmp_path / "data")
    folder.create()
    async with httpx.AsyncClient() as client:
        chosen = settings(tmp_path, redis_url="redis://host", is_isolated=True)
        stages = build_stages(chosen, folder, folder.secrets(), None, client)
    workers = [spec for stage in stages for spec in stage if spec.name.startswith("worker")]
    assert len(workers) == 2
    assert all(spec.stop_timeout_s > DRAIN_S for spec in workers)
    assert len({re.search(r"--port (\d+)", " ".join(spec.command))[1] for spec in workers}) == 2  # type: ignore[index]


async def test_workers_get_the_kv_dtype_that_was_asked_for(tmp_path: Path) -> None:
    folder = DataDir(tmp_path / "data")
    folder.create()
    for kv_dtype in (None, "int8"):
        chosen = settings(tmp_path, redis_url="redis://host", kv_dtype=kv_dtype)
        async with httpx.AsyncClient() as client:
            stages = build_stages(chosen, folder, folder.secrets(), None, client)
        for spec in (spec for stage in stages for spec in stage if spec.name.startswith("worker")):
            assert ("--kv-dtype int8" in " ".join(spec.command)) == (kv_dtype == "int8")


@pytest.mark.parametrize(("threads", "own", "wanted"), [(1, None, None), (2, None, "2000"), (3, "7", "7")])
async def test_idle_threads_of_crowded_workers_do_not_keep_cores_busy(
    threads: int, own: str | None, wanted: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    if own is not None:
        monkeypatch.setenv("GOMP_SPINCOUNT", own)
    folder = DataDir(tmp_path / "data")
    folder.create()
    chosen = settings(tmp_path, redis_url="redis://host", threads_per_worker=threads, is_isolated=True)
    async with httpx.AsyncClient() as client:
        stages = build_stages(chosen, folder, folder.secrets(), None, client)
    workers = [spec for stage in stages for spec in stage if spec.name.startswith("worker")]
    assert [spec.environment.get("GOMP_SPINCOUNT") for spec in workers] == [wanted] * 2


@pytest.mark.parametrize(
    ("host", "chosen", "wanted"),
    [("127.0.0.1", None, "true"), ("0.0.0.0", None, "false"), ("0.0.0.0", "1", "1"), ("127.0.0.1", "false", "false")],
)
def test_api_documentation_is_served_on_loopback_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, chosen: str | None, wanted: str
) -> None:
    monkeypatch.delenv("AGON_API_DOCS", raising=False)
    if chosen is not None:
        monkeypatch.setenv("AGON_API_DOCS", chosen)
    data_dir = DataDir(tmp_path)
    data_dir.create()
    stages = build_stages(settings(tmp_path, host=host), data_dir, data_dir.secrets(), None, httpx.AsyncClient())
    services = [spec for stage in stages for spec in stage if spec.name != "webui"]
    assert {spec.environment["AGON_API_DOCS"] for spec in services} == {wanted}


async def test_one_worker_process_has_all_models_unless_they_are_to_be_isolated(tmp_path: Path) -> None:
    folder = DataDir(tmp_path / "data")
    folder.create()
    chosen = settings(tmp_path, redis_url="redis://host", models_dir=tmp_path, memory="2GiB")
    async with httpx.AsyncClient() as client:
        stages = build_stages(chosen, folder, folder.secrets(), None, client)
    [worker] = [spec for stage in stages for spec in stage if spec.name.startswith("worker")]
    command = " ".join(worker.command)
    assert worker.name == "worker"
    assert "--model one=somebody/one --model two=somebody/two" in command
    assert f"--models-file {folder.models_file()} --models-dir {tmp_path} --memory 2GiB" in command
    assert folder.models_file("lab/raven").name == "models-lab%2Fraven.json"


@pytest.mark.parametrize(
    ("models", "named", "undrawn"),
    [(["mine=org/mine"], None, "wren"), (["wren=org/wren"], None, None), (["mine=org/mine"], "mine", "mine")],
)
async def test_battles_do_not_draw_the_demo_model_for_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: list[str], named: str | None, undrawn: str | None
) -> None:
    if named is not None:
        monkeypatch.setenv("AGON_UNDRAWN_MODELS", named)
    folder = DataDir(tmp_path / "data")
    folder.create()
    chosen = settings(tmp_path, redis_url="redis://host", models=parse_models(models))
    async with httpx.AsyncClient() as client:
        stages = build_stages(chosen, folder, folder.secrets(), None, client)
    [controller] = [spec for stage in stages for spec in stage if spec.name == "controller"]
    assert controller.environment.get("AGON_UNDRAWN_MODELS") == undrawn


def test_models_are_served_beside_the_demos_unless_these_are_not_wanted(model_folder: Path) -> None:
    demos = {model.name for model in demo_models()}
    assert "finch" in demos
    mine = f"mine={model_folder}"
    assert {model.name for model in parse_models([mine])} == {"mine", *demos}
    assert {model.name for model in parse_models([mine], removed=["finch"])} == {"mine", *demos} - {"finch"}
    assert parse_models([mine], has_demos=False) == (ModelSource("mine", str(model_folder)),)
    [finch] = [model for model in parse_models([str(model_folder)]) if model.name == "finch"]
    assert finch.source == str(model_folder)  # the one that was given, not the demo


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"models": ()}, "there is no model"),
        ({"is_isolated": True, "memory": "1GiB"}, "leave out --isolate"),
        ({"memory": "much"}, "give a size such as 40GiB"),
        ({"models_dir": Path("/nowhere/at/all")}, "there is no folder"),
        ({"models": tuple(ModelSource(f"m{number}", "a/b") for number in range(17))}, "at most 16"),
    ],
)
def test_flags_that_cannot_be_served_are_refused_with_the_reason(
    changes: dict[str, object], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(CliError, match=reason):
        check_models(settings(tmp_path, **changes), ())


async def test_replicas_of_a_model_are_processes_with_ports_and_files_of_their_own(tmp_path: Path) -> None:
    models = (ModelSource("one", "somebody/one"), ModelSource("two", "somebody/two"))
    replicas = parse_replicas(["two=3"], models)
    wanted = settings(tmp_path, models=models, replicas=replicas)
    folder = DataDir(tmp_path / "data")
    folder.create()
    async with httpx.AsyncClient() as client:
        stages = build_stages(wanted, folder, folder.secrets(), None, client)
    workers = {spec.name: spec.command for spec in stages[1]}
    assert list(workers) == ["worker", "worker two 2", "worker two 3"]
    values = {name: [value(command, "--port"), value(command, "--models-file")] for name, command in workers.items()}
    assert [port for port, _ in values.values()] == ["18103", "18104", "18105"]
    assert len({file for _, file in values.values()}) == 3
    assert [command.count("--model") for command in workers.values()] == [2, 1, 1]
    isolated = settings(tmp_path, models=models, replicas=replicas, is_isolated=True).processes
    assert [process.name for process in isolated] == ["worker one", "worker two", "worker two 2", "worker two 3"]


async def test_replicas_of_a_cluster_are_those_of_the_command_line(tmp_path: Path) -> None:
    folder = DataDir(tmp_path)
    folder.create()
    wanted = settings(tmp_path, replicas={"two": 3}, cluster=ClusterSettings(Machine("here")))
    async with httpx.AsyncClient() as client:
        _, _, fleet = build_arena(wanted, folder, folder.secrets(), None, client, lambda *_: None, lambda _: None)
    assert {group.model: group.replicas for group in fleet.view().groups} == {"one": 1, "two": 3}


def value(command: tuple[str, ...], flag: str) -> str:
    return command[command.index(flag) + 1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("two", "give NAME=COUNT"),
        ("two=0", "a count from 1 to 64"),
        ("three=2", "there is no model 'three'; there are one, two"),
    ],
)
def test_replicas_that_cannot_be_are_refused(text: str, reason: str) -> None:
    models = (ModelSource("one", "somebody/one"), ModelSource("two", "somebody/two"))
    with pytest.raises(CliError, match=reason):
        parse_replicas([text], models)


async def test_with_tls_local_processes_use_a_name_of_the_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGON_TLS_CERT_FILE", str(CERTIFICATES / "server.pem"))
    monkeypatch.setenv("AGON_TLS_KEY_FILE", str(CERTIFICATES / "server.key"))
    monkeypatch.setenv("AGON_CA_FILE", str(CERTIFICATES / "ca.pem"))
    for host, name in (("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "127.0.0.1"), ("localhost", "localhost")):
        wanted = settings(tmp_path, host=host, tls=read_local_tls(host))
        assert wanted.controller_url == f"https://{name}:18101"
        assert wanted.webui_url == f"https://{name}:18102"
    folder = DataDir(tmp_path / "data")
    folder.create()
    async with httpx.AsyncClient() as client:
        stages = build_stages(wanted, folder, folder.secrets(), None, client)
    speaking = [spec.name for stage in stages for spec in stage if "AGON_TLS_KEY_FILE" in spec.environment]
    assert speaking == ["controller", "webui"]  # workers listen on loopback
    assert wanted.worker_url(0).startswith("http://127.0.0.1:")
    with pytest.raises(CliError, match=r"is for .*: the services reach one another at 127\.8\.8\.8"):
        read_local_tls("127.8.8.8")


@pytest.mark.parametrize(
    ("name", "ca_file", "reason"),
    [("server", "", "an authority that is not trusted here"), ("expired", "expired.pem", "has expired")],
)
def test_a_certificate_that_local_processes_would_not_trust_is_refused(
    name: str, ca_file: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGON_TLS_CERT_FILE", str(CERTIFICATES / f"{name}.pem"))
    monkeypatch.setenv("AGON_TLS_KEY_FILE", str(CERTIFICATES / f"{name}.key"))
    monkeypatch.setenv("AGON_CA_FILE", str(CERTIFICATES / ca_file) if ca_file else "")
    with pytest.raises(CliError, match=reason):
        read_local_tls("127.0.0.1")


def test_the_address_that_is_shown_has_the_path_prefix(tmp_path: Path) -> None:
    assert settings(tmp_path, root_path="/arena").page_url == "http://127.0.0.1:18102/arena"
    assert settings(tmp_path).page_url == "http://127.0.0.1:18102"


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.2"])
async def test_with_tls_a_replica_that_ray_places_speaks_https(host: str) -> None:
    """Every machine reaches it, so it has the certificate of its machine, and its actor asks it over TLS."""
    machine = {
        **{name: f"/machine/{name}" for name in ("AGON_TLS_CERT_FILE", "AGON_TLS_KEY_FILE", "AGON_CA_FILE")},
        "AGON_WORKER_TOKEN": "token",
        "AGON_DATA_DIR": "/data",
        "RAY_AUTH_TOKEN": "of the cluster",
        "OMP_NUM_THREADS": "3",
    }
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(200)

    replica = Replica(id="org/one#1", model="org/one", source="somebody/one")
    order = WorkerOrder(replica=replica, controller_url="https://10.0.0.1:8100")
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        spec = placed_worker(order, host, 8201, machine, client)
        assert await spec.probe() is ProbeResult.READY
        plain = placed_worker(order, host, 8201, {}, client)
        await plain.probe()
    assert asked == [f"https://{host}:8201/ready", f"http://{host}:8201/ready"]
    kept = {name: value for name, value in machine.items() if name not in ("RAY_AUTH_TOKEN", "OMP_NUM_THREADS")}
    assert spec.environment == {**kept, "PYTHONUNBUFFERED": "1"}
    assert spec.log_path == Path("/data/logs/worker-org-one-1.log")


async def test_with_tls_a_replica_on_this_machine_speaks_plain_http_on_loopback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGON_TLS_CERT_FILE", str(CERTIFICATES / "server.pem"))
    monkeypatch.setenv("AGON_TLS_KEY_FILE", str(CERTIFICATES / "server.key"))
    folder = DataDir(tmp_path)
    folder.create()
    replica = Replica(id="one#1", model="one", source="somebody/one")
    async with httpx.AsyncClient() as client:
        spec = replica_spec(settings(tmp_path), folder, folder.secrets(), replica, 18110, client)
    assert not {"AGON_TLS_CERT_FILE", "AGON_TLS_KEY_FILE"} & {name for name, value in spec.environment.items() if value}
