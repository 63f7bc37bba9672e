"""The images and the compose files. There may be no Docker where the tests run, so: the files against the part of the
Compose schema that they use and our own rules, the Dockerfile against a linter, and the services' own commands as plain
processes, wired together as the file says. `make containers` builds the images and runs them.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from packaging.requirements import Requirement

from cli.arena.embedded_redis import EmbeddedRedis, find_binary
from cli.arena.processes import DRAIN_S
from tests.e2e.arena import free_ports

ROOT = Path(__file__).parent.parent
SERVICES = ("redis", "controller", "worker-finch", "worker-robin", "worker-hosted", "webui")
STARTED = tuple(name for name in SERVICES if name != "worker-hosted")  #: without a profile
PATIENCE_S = 120.0

#: The keys of the Compose specification that the file uses, and what each may hold.
SERVICE_KEYS: dict[str, type | tuple[type, ...]] = {
    "build": dict, "cap_drop": list, "command": list, "depends_on": dict, "deploy": dict, "environment": dict,
    "healthcheck": dict, "image": str, "init": bool, "logging": dict, "networks": list, "pids_limit": int,
    "ports": list, "profiles": list, "read_only": bool, "restart": str, "secrets": list, "security_opt": list,
    "stop_grace_period": str, "tmpfs": list, "user": str, "volumes": list,
}  # fmt: skip
TOP_KEYS = {"name", "services", "networks", "volumes"}
TWO_HOSTS = "docs/deploy/two-hosts"
#: Files that change services of docker-compose.yml or stand beside it.
OTHERS = (
    "docker-compose.gpu.yml", "docker-compose.secrets.yml", f"{TWO_HOSTS}/head.yml", f"{TWO_HOSTS}/worker.yml"
)  # fmt: skip
#: A service that is no change of another has all of these.
HARDENED = (
    "init", "restart", "read_only", "tmpfs", "cap_drop", "security_opt", "pids_limit", "logging", "user",
    "stop_grace_period",
)  # fmt: skip
HEALTH_KEYS = {"test", "interval", "timeout", "retries", "start_period"}
DURATION = re.compile(r"(\d+)s")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return loaded


@pytest.fixture(scope="module")
def dockerfile() -> str:
    return (ROOT / "docker" / "Dockerfile").read_text()


def seconds(text: str) -> int:
    found = DURATION.fullmatch(text)
    assert found, f"{text!r} is no duration in seconds"
    return int(found[1])


def test_only_known_keys_of_the_right_type_are_used(compose: dict[str, Any]) -> None:
    assert {key for key in compose if not key.startswith("x-")} == TOP_KEYS
    assert tuple(compose["services"]) == SERVICES
    for name, service in compose["services"].items():
        assert set(service) <= set(SERVICE_KEYS), name
        wrong = {key: value for key, value in service.items() if not isinstance(value, SERVICE_KEYS[key])}
        assert wrong == {}, name
        assert set(service["healthcheck"]) <= HEALTH_KEYS
        assert service["healthcheck"]["test"][0] == "CMD"
        assert all(isinstance(word, str) for word in (*service["command"], *service["healthcheck"]["test"])), name


@pytest.mark.parametrize("file", OTHERS)
def test_other_compose_files_use_known_keys_and_lock_down_their_services(file: str, compose: dict[str, Any]) -> None:
    content = yaml.safe_load((ROOT / file).read_text())
    assert set(content) <= {"name", "services", "volumes", "secrets"}
    worker = compose["services"]["worker-finch"]
    for name, service in content["services"].items():
        wrong = {key: value for key, value in service.items() if not isinstance(value, SERVICE_KEYS.get(key, ()))}
        assert wrong == {}, name
        if name not in compose["services"]:
            assert {key: service[key] for key in HARDENED} == {key: worker[key] for key in HARDENED}, name
        assert set(service.get("secrets", [])) <= set(content.get("secrets", {})), name


def test_the_gpu_worker_asks_for_a_gpu_and_keeps_its_kernels(dockerfile: str) -> None:
    content = yaml.safe_load((ROOT / "docker-compose.gpu.yml").read_text())
    worker = content["services"]["worker-gpu"]
    [device] = worker["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
    image = dockerfile.partition(" AS gpu\n")[2].partition("\nFROM ")[0]
    [cache] = re.findall(r"TRITON_CACHE_DIR=(\S+)", image)
    mounted = [volume.split(":") for volume in worker["volumes"]]
    assert any(name in content["volumes"] and cache.startswith(f"{path}/") for name, path, *_ in mounted)
    assert not any(path.startswith("/tmp") for path in (cache, *worker["tmpfs"][1:]))
    assert {"gcc", "libc6-dev"} <= set(image.split())


def test_secrets_in_files_replace_those_in_the_environment(compose: dict[str, Any], tmp_path: Path) -> None:
    """Every secret of docker-compose.yml, for every service, and the script makes each file."""
    content = yaml.safe_load((ROOT / "docker-compose.secrets.yml").read_text())
    for name, service in compose["services"].items():
        given = {key for key, value in service.get("environment", {}).items() if "demo-" in str(value)}
        changed = content["services"].get(name, {}).get("environment", {})
        assert {key for key, value in changed.items() if value == ""} == given, name
        files = {key: value for key, value in changed.items() if value != ""}
        assert files == {f"{key}_FILE": f"/run/secrets/{key.removeprefix('AGON_').lower()}" for key in given}, name
    subprocess.run([sys.executable, str(ROOT / "docker" / "make_secrets.py"), str(tmp_path / "made")], check=True)
    made = {path.name: path for path in (tmp_path / "made").iterdir()}
    assert set(made) == set(content["secrets"])
    assert all(len(path.read_text()) >= 32 and path.stat().st_mode & 0o777 == 0o444 for path in made.values())
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700


def test_what_services_refer_to_exists(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert set(service["networks"]) <= set(compose["networks"]), name
        for volume in service.get("volumes", []):
            assert volume.partition(":")[0] in compose["volumes"]
        for other, condition in service.get("depends_on", {}).items():
            assert other in compose["services"]
            assert condition == {"condition": "service_healthy"}


def test_every_service_is_locked_down(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        user, _, group = service["user"].partition(":")
        assert int(user) > 0, name
        assert int(group) > 0, name
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["pids_limit"] > 0, name
        assert "latest" not in service["image"].partition(":")[2], name


def test_only_the_web_ui_is_published_and_only_to_this_machine(compose: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}
    assert published == {"webui": ["${AGON_PUBLISH:-127.0.0.1:7860}:7860"]}
    assert compose["networks"]["back"] == {"internal": True}
    assert [name for name, service in compose["services"].items() if "profiles" in service] == ["worker-hosted"]
    assert [name for name, service in compose["services"].items() if "out" in service["networks"]] == ["worker-hosted"]
    on_the_way_out = [name for name, service in compose["services"].items() if "front" in service["networks"]]
    assert on_the_way_out == ["webui"]


def test_it_starts_with_one_command_and_tells_what_to_replace(compose: dict[str, Any]) -> None:
    """Every variable has a default that is of use inside the closed network only, or is handed on if it is set (null).
    The example file has all of them."""
    text = (ROOT / "docker-compose.yml").read_text()
    variables = set(re.findall(r"\$\{(\w+)", text))
    assert set(re.findall(r"\$\{(\w+):-[^}]+\}", text)) == variables
    handed_on = {
        key
        for service in compose["services"].values()
        for key, value in service.get("environment", {}).items()
        if value is None
    }
    assert {"AGON_API_KEYS", "AGON_API_KEY"} <= handed_on
    example = (ROOT / "docker" / ".env.example").read_text()
    assert set(re.findall(r"^(\w+)=", example, re.MULTILINE)) == variables | handed_on
    secrets = {
        value
        for service in compose["services"].values()
        for key, value in service.get("environment", {}).items()
        if value is not None and key.endswith(("_TOKEN", "_KEY"))
    }
    defaults = {secret.partition(":-")[2].rstrip("}") for secret in secrets}
    assert len(defaults) == 4
    assert all(len(default) >= 16 for default in defaults)


def test_the_store_keeps_votes_as_the_embedded_one_does(compose: dict[str, Any], tmp_path: Path) -> None:
    words = compose["services"]["redis"]["command"][1:]
    flags = {words[index].removeprefix("--"): words[index + 1] for index in range(0, len(words), 2)}
    assert flags.pop("protected-mode") == "no"  # only this network reaches it
    embedded = dict(line.split(" ", 1) for line in EmbeddedRedis(tmp_path, find_binary()).config().splitlines())
    assert {name: embedded[name].strip('"') for name in flags} == flags
    assert flags["appendfsync"] == "always"
    assert compose["services"]["redis"]["volumes"] == ["votes:/data"]


def test_no_service_is_killed_before_it_has_drained(compose: dict[str, Any]) -> None:
    graces = {name: seconds(service["stop_grace_period"]) for name, service in compose["services"].items()}
    assert all(grace > DRAIN_S for name, grace in graces.items() if name.startswith("worker"))
    assert all(grace >= 15 for grace in graces.values())


def test_commands_in_image_and_compose_are_the_same_programs(compose: dict[str, Any], dockerfile: str) -> None:
    in_image = [json.loads(command) for command in re.findall(r"^CMD (\[.*\])$", dockerfile, re.MULTILINE)]
    modules = [command[2] for command in in_image]
    assert modules == ["controller", "model_worker", "model_worker", "webui"]
    for name in SERVICES[1:]:
        assert compose["services"][name]["command"][2] == {"worker": "model_worker"}.get(name.partition("-")[0], name)
        assert compose["services"][name]["build"]["target"] == name.partition("-")[0]


def test_images_run_without_root_and_can_be_built_on_any_base(dockerfile: str) -> None:
    final = ("controller", "worker", "gpu", "webui")
    for image in final:
        stage = dockerfile.partition(f"FROM runtime AS {image}\n")[2].partition("\nFROM ")[0]
        assert "\nUSER 10001:10001\n" in stage, image
        assert stage.count("HEALTHCHECK") == 1, image
    assert re.search(r"^ARG BASE=python:3\.11-slim-bookworm$", dockerfile, re.MULTILINE)
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", dockerfile, re.MULTILINE)
    assert {source for source, _ in stages} <= {"${BASE}", *(name for _, name in stages)}


def test_a_source_edit_installs_no_package_again(dockerfile: str) -> None:
    """The stages with packages get a list and the versions, not the source, and Agon has a layer of its own."""
    for image in ("controller", "worker", "gpu", "webui"):
        stage = dockerfile.partition(f"FROM environment AS packages-{image}\n")[2].partition("\nFROM ")[0]
        assert re.findall(r"^COPY (.+)$", stage, re.MULTILINE) == [f"--from=requirements /requirements/{image}.txt /"]
        last = dockerfile.partition(f"FROM runtime AS {image}\n")[2].partition("\nFROM ")[0]
        assert "COPY --from=app /opt/app /opt/app\n" in last


def test_the_pinned_versions_are_those_that_the_project_allows(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    subprocess.run([sys.executable, str(ROOT / "docker" / "requirements.py"), str(tmp_path)], check=True)
    lines = (ROOT / "docker" / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    wanted = {image: (tmp_path / f"{image}.txt").read_text() for image in ("controller", "worker", "gpu", "webui")}
    assert "torch" in wanted["worker"]
    assert "torch" not in wanted["controller"]
    assert "triton" in wanted["gpu"]
    for text in wanted.values():
        for requirement in map(Requirement, text.splitlines()):
            pinned = pins[requirement.name.lower()]
            assert requirement.specifier.contains(pinned), f"{requirement}: run `python docker/pin.py`"


def test_only_what_the_images_need_reaches_the_builder(dockerfile: str) -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = set()
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE):
        copied |= set(sources.split())
    assert {name for name in copied if not name.startswith("engine/")} == allowed
    assert all((ROOT / name).exists() for name in copied)


def test_the_linter_has_nothing_to_say() -> None:
    linter = shutil.which("hadolint", path=sysconfig.get_path("scripts")) or shutil.which("hadolint")
    if linter is None:
        pytest.skip("hadolint is not installed")
    answer = subprocess.run([linter, str(ROOT / "docker" / "Dockerfile")], capture_output=True, text=True, check=False)
    assert answer.stdout == ""


@pytest.fixture
def running_services(compose: dict[str, Any], tmp_path: Path) -> Iterator[dict[str, str]]:
    """Every service's command as a process here: same words and environment, with our own ports and paths."""
    ports = free_ports(4)
    address = {
        "redis:6379": f"127.0.0.1:{ports.first_worker + 2}",
        "controller:8100": f"127.0.0.1:{ports.controller}",
        "worker-finch:8200": f"127.0.0.1:{ports.first_worker}",
        "worker-robin:8200": f"127.0.0.1:{ports.first_worker + 1}",
        "webui:7860": f"127.0.0.1:{ports.webui}",
    }

    def localised(text: str, service: str) -> str:
        for name, here in address.items():
            text = text.replace(name, here)
            if name.startswith(f"{service}:"):
                text = text.replace(f"127.0.0.1:{name.partition(':')[2]}/", f"{here}/")
        text = re.sub(r"\$\{\w+:-([^}]+)\}", r"\1", text)
        text = str(tmp_path / "journal") if text == "/journal" else text
        return text.replace("/models/", f"{ROOT / 'demo_models'}/").replace("/opt/healthcheck.py", HEALTHCHECK)

    processes: dict[str, subprocess.Popen[bytes]] = {}
    logs = {name: tmp_path / f"{name}.log" for name in STARTED}
    try:
        for name in STARTED:
            service = compose["services"][name]
            own_port = next(here for key, here in address.items() if key.startswith(f"{name}:")).rpartition(":")[2]
            command = [localised(word, name) for word in service["command"]]
            if name == "redis":
                binary = str(find_binary().path)
                command = [binary, *command[1:], "--port", own_port, "--bind", "127.0.0.1", "--dir", str(tmp_path)]
            else:
                command[0:1] = [sys.executable, "-P"]
                command[command.index("--port") + 1] = own_port
                command[command.index("--host") + 1] = "127.0.0.1"
            given = service.get("environment", {}).items()
            environment = {key: localised(value, name) for key, value in given if value is not None}
            inherited = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
            with open(logs[name], "wb") as log:
                processes[name] = subprocess.Popen(
                    command, stdout=log, stderr=subprocess.STDOUT, env={**inherited, **environment}, cwd=tmp_path
                )
            if name in ("redis", "controller"):
                wait_healthy(name, compose, localised, own_port, logs[name])
        for name in STARTED[2:]:
            own_port = next(here for key, here in address.items() if key.startswith(f"{name}:")).rpartition(":")[2]
            wait_healthy(name, compose, localised, own_port, logs[name])
        yield address
    finally:
        for process in reversed(processes.values()):
            process.terminate()
        for process in processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=45)
            process.kill()
            process.wait()


HEALTHCHECK = str(ROOT / "docker" / "healthcheck.py")


def wait_healthy(name: str, compose: dict[str, Any], localised: Any, port: str, log: Path) -> None:
    """By the health check of the compose file itself."""
    words = compose["services"][name]["healthcheck"]["test"][1:]
    if words[0] == "redis-cli":
        time.sleep(1)  # there is no redis-cli here; the controller will find out
        return
    words = [re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{port}", localised(word, name)) for word in words]
    words[0] = sys.executable
    deadline = time.monotonic() + PATIENCE_S
    while (answer := subprocess.run(words, capture_output=True, text=True, check=False)).returncode != 0:
        assert time.monotonic() < deadline, f"{name} is not healthy: {answer.stdout}\n{log.read_text()[-2000:]}"
        time.sleep(0.3)


@pytest.mark.e2e
def test_the_services_of_the_compose_file_make_a_working_arena(running_services: dict[str, str]) -> None:
    with httpx.Client(base_url=f"http://{running_services['controller:8100']}", trust_env=False, timeout=60) as client:
        deadline = time.monotonic() + PATIENCE_S
        while {row["id"] for row in client.get("/v1/models").json()["data"]} != {"finch", "robin"}:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        battle_id = client.post("/arena/battles", json={"mode": "anonymous"}).json()["id"]
        turn = client.post(f"/arena/battles/{battle_id}/turns", json={"content": "Hello!"})
        assert "turn_finished" in turn.text
        vote = client.post(f"/arena/battles/{battle_id}/vote", json={"outcome": "tie"})
        assert set(vote.json()["models"].values()) == {"finch", "robin"}
    page = httpx.get(f"http://{running_services['webui:7860']}/ready", trust_env=False)
    assert page.json() == {"controller": "ready"}
