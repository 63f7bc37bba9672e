"""The bootstrap script: when it makes an environment anew, and how it chooses Python and torch."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli import bootstrap
from engine.kernels.cpu.build import usable_instruction_sets


@pytest.fixture
def venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "venv"
    folder.mkdir()
    monkeypatch.setattr(bootstrap, "VENV", folder)
    monkeypatch.setattr(bootstrap, "STAMP", folder / ".agon-install.json")
    return folder


@pytest.fixture
def installs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Makes real environments, but with a stand-in for pip, which takes seconds to unpack."""
    commands: list[list[str]] = []

    def run(command: list[str], title: str, environment: dict[str, str] | None = None) -> None:
        commands.append(command)
        if title == "python -m venv":
            subprocess.run([*command, "--without-pip"], check=True)
            [packages] = Path(command[-1]).glob("lib/python*/site-packages")
            (packages / "pip").mkdir()
            (packages / "pip" / "__init__.py").touch()

    monkeypatch.setattr(bootstrap, "run", run)
    monkeypatch.setattr(bootstrap, "has_uv", lambda python: False)
    monkeypatch.setattr(bootstrap, "torch_source", lambda: [])
    return commands


@pytest.mark.usefixtures("venv")
def test_it_installs_once_and_then_only_when_dependencies_change(
    installs: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap.ensure_environment("all")
    assert [command[1:3] for command in installs] == [["-m", "venv"], ["-m", "pip"]]
    installs.clear()
    bootstrap.ensure_environment("all")
    assert installs == []
    monkeypatch.setattr(bootstrap, "dependencies_digest", lambda: "changed")
    bootstrap.ensure_environment("all")
    assert [command[2] for command in installs] == ["pip"]


@pytest.mark.usefixtures("venv", "installs")
def test_operators_are_built_with_nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\nfor path; do :; done\necho library > "$path"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("AGON_CACHE_DIR", str(tmp_path / "cache"))
    bootstrap.ensure_environment("dev", builds_operators=True)
    built = {path.name.rpartition("-")[0] for path in (tmp_path / "cache" / "operators").glob("*.so")}
    assert built == {f"operators-{name}" for name in usable_instruction_sets()}


@pytest.mark.usefixtures("venv")
@pytest.mark.parametrize("status", [0, 2], ids=["uv can", "uv fails"])
def test_uv_installs_and_pip_does_where_uv_fails(
    installs: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    by_uv: list[list[str]] = []

    def run(command: list[str], **settings: Any) -> subprocess.CompletedProcess[str]:
        by_uv.append(command) if "uv" in command else None
        return subprocess.CompletedProcess(command, status if "uv" in command else 0, stdout="", stderr="")

    monkeypatch.setattr(bootstrap, "has_uv", lambda python: True)
    monkeypatch.setattr(subprocess, "run", run)
    bootstrap.install(["--editable", "agon"])
    assert [command[-2:] for command in by_uv] == [["--editable", "agon"]]
    assert [command[1:] for command in installs] == ([["-m", "pip", "install", "--editable", "agon"]] if status else [])
    assert ("trying with pip" in capsys.readouterr().out) is (status != 0)


def test_uv_is_told_what_pip_is_configured_with_and_pip_installs_where_that_cannot_be() -> None:
    configured = """:env:.find-links='/wheels /more'
global.find-links='/old'
global.cert='/ca.pem'
global.extra-index-url='file:///a\\nhttps://b/simple'
global.no-compile='1'
user.agent='not of pip'
"""
    assert bootstrap.uv_environment(configured, {"HOME": "/home", "SSL_CERT_FILE": "/mine"}) == {
        "HOME": "/home",
        "SSL_CERT_FILE": "/mine",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INDEX": "file:///a https://b/simple",
    }
    assert bootstrap.uv_environment("", {}) == {}
    assert bootstrap.uv_environment("install.require-hashes='true'", {}) is None


@pytest.mark.parametrize("is_inside", [True, False])
def test_an_environment_that_moved_with_its_tree_is_made_again_and_one_elsewhere_changes_hands(
    venv: Path, installs: list[list[str]], monkeypatch: pytest.MonkeyPatch, is_inside: bool
) -> None:
    bootstrap.ensure_environment("all")
    (venv / "lib" / "mine").touch()
    root = venv.parent if is_inside else venv.parent / "other-clone"
    root.mkdir(exist_ok=True)
    (root / "pyproject.toml").write_text((bootstrap.ROOT / "pyproject.toml").read_text())
    monkeypatch.setattr(bootstrap, "ROOT", root)
    bootstrap.ensure_environment("all")
    assert (venv / "lib" / "mine").exists() is not is_inside
    assert installs[-1][-1].startswith(f"{root}[all")


def test_a_stamp_covers_what_it_includes() -> None:
    wanted = {"root": "r", "dependencies": "d", "extra": "all"}
    assert bootstrap.is_covered(wanted, {**wanted, "extra": "dev"})
    assert not bootstrap.is_covered({**wanted, "extra": "dev"}, wanted)
    assert not bootstrap.is_covered(wanted, {**wanted, "root": "elsewhere"})


def test_a_half_made_environment_is_made_again(venv: Path, installs: list[list[str]]) -> None:
    """The creation was interrupted after the interpreter had been linked, before pip was there."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (venv / "lib" / "rubbish").touch()
    bootstrap.ensure_environment("all")
    assert installs[0][1:3] == ["-m", "venv"]
    assert not (venv / "lib" / "rubbish").exists()
    assert bootstrap.is_whole_venv()


def test_a_failed_install_leaves_no_stamp(
    venv: Path, monkeypatch: pytest.MonkeyPatch, installs: list[list[str]]
) -> None:
    bootstrap.ensure_environment("all")

    def fail(command: list[str], title: str, environment: dict[str, str] | None = None) -> None:
        raise SystemExit(title)

    monkeypatch.setattr(bootstrap, "run", fail)
    with pytest.raises(SystemExit):
        bootstrap.ensure_environment("dev")
    assert not (venv / ".agon-install.json").exists()


def test_an_interpreter_that_does_not_know_it_is_inside_is_not_installed_into(venv: Path) -> None:
    """Without the home line of pyvenv.cfg, pip would install into the system's Python."""
    (venv / "pyvenv.cfg").touch()
    (venv / "bin").mkdir()
    (venv / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    assert not bootstrap.is_whole_venv()


def test_a_folder_that_is_no_environment_is_never_deleted(venv: Path) -> None:
    (venv / "thesis.txt").write_text("years of work")
    with pytest.raises(SystemExit):
        bootstrap.ensure_environment("all")
    assert (venv / "thesis.txt").exists()


def test_the_interpreter_with_a_local_torch_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "usable_interpreters", lambda: [((3, 13), "new"), ((3, 11), "old")])
    monkeypatch.setattr(bootstrap, "has_nvidia_gpu", lambda: False)
    monkeypatch.setattr(bootstrap, "local_torch_tags", lambda python: {"cp311"})
    assert bootstrap.choose_interpreter() == "old"
    monkeypatch.setattr(bootstrap, "local_torch_tags", lambda python: set())
    assert bootstrap.choose_interpreter() == "new"


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_{machine}.whl", True),
        ("torch-2.13.0-cp311-cp311-manylinux_2_28_{machine}.whl", False),
        ("torch-2.15.0+cpu-cp311-cp311-manylinux_2_28_{machine}.whl", False),
        ("torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_other.whl", False),
    ],
)
def test_only_a_cpu_wheel_that_pip_would_take_counts(
    name: str, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name.format(machine=os.uname().machine)).touch()
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert bootstrap.local_torch_tags(sys.executable) == ({"cp311"} if fits else set())


def test_it_runs_without_anything_installed_and_is_quick_when_nothing_changed(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    stamp = {"root": str(bootstrap.ROOT), "dependencies": bootstrap.dependencies_digest(), "extra": "dev"}
    (venv / ".agon-install.json").write_text(json.dumps(stamp))
    answer = subprocess.run(
        [sys.executable, "-I", "-S", str(bootstrap.__file__), "--extra", "all"],
        env={**os.environ, "AGON_VENV": str(venv)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")


def test_tool_settings_in_pyproject_cause_no_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    project = '[project]\nname = "agon"\n'
    (tmp_path / "pyproject.toml").write_text(project + "\n[tool.ruff]\nline-length = 100\n")
    before = bootstrap.dependencies_digest()
    (tmp_path / "pyproject.toml").write_text(project + "\n[tool.ruff]\nline-length = 120\n")
    assert bootstrap.dependencies_digest() == before


def test_chromium_that_is_there_is_not_installed(monkeypatch: pytest.MonkeyPatch, installs: list[list[str]]) -> None:
    monkeypatch.setenv("AGON_CHROMIUM", sys.executable)
    bootstrap.ensure_chromium()
    assert installs == []


def test_without_root_it_says_how_to_get_chromium(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGON_CHROMIUM", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match="AGON_CHROMIUM"):
        bootstrap.ensure_chromium()


def test_a_compiler_that_is_there_is_not_installed(monkeypatch: pytest.MonkeyPatch, installs: list[list[str]]) -> None:
    monkeypatch.setenv("CXX", sys.executable)
    bootstrap.ensure_compiler()
    assert installs == []


def test_proxies_that_are_there_are_not_installed(monkeypatch: pytest.MonkeyPatch, installs: list[list[str]]) -> None:
    monkeypatch.setattr(bootstrap, "PROXY_NAMES", {"nginx": (sys.executable,), "caddy": (sys.executable,)})
    bootstrap.ensure_proxies()
    assert installs == []


def test_without_root_it_says_how_to_get_nginx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match="apt install nginx"):
        bootstrap.ensure_proxies()


def test_without_root_it_says_how_to_get_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match="apt install g"):
        bootstrap.ensure_compiler()
