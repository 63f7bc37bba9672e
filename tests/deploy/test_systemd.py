"""The units under docs/deploy/systemd, by systemd's own checks where it is installed; no unit is started."""

import re
import shutil
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path

import pytest

from cli.arena.processes import DRAIN_S

FOLDER = Path(__file__).parents[2] / "docs" / "deploy" / "systemd"
UNITS = sorted(path.name for path in FOLDER.glob("*.service"))
MAX_EXPOSURE = 40  #: of systemd's 100; a unit without any of its settings has 96


class _Repeated(dict[str, str]):
    """Settings that are given several times are joined, as systemd does for lists."""

    def __setitem__(self, key: str, value: str | list[str]) -> None:
        if isinstance(value, list) and key in self and isinstance(self[key], list):
            value = [*self[key], *value]
        super().__setitem__(key, value)  # type: ignore[assignment]


def service(unit: str) -> dict[str, list[str]]:
    """The settings of [Service], each with its values."""
    parser = RawConfigParser(dict_type=_Repeated, strict=False, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(FOLDER / unit)
    return {key: value.split("\n") for key, value in parser["Service"].items()}


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units with a program that exists."""
    for unit in UNITS:
        text = (FOLDER / unit).read_text()
        (tmp_path / unit).write_text(text.replace("/opt/agon/bin/agon", sys.executable))
    return tmp_path


def systemd_analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd is not installed")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def test_systemd_finds_nothing_wrong(installed: Path) -> None:
    answer = systemd_analyze("verify", *(str(installed / unit) for unit in UNITS))
    assert (answer.returncode, answer.stderr) == (0, "")


def test_systemd_finds_a_setting_that_there_is_not(installed: Path) -> None:
    unit = installed / "agon-controller.service"
    unit.write_text(unit.read_text().replace("ProtectHome=", "ProtectHoume="))
    assert "ProtectHoume" in systemd_analyze("verify", str(unit)).stderr


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_is_locked_down(unit: str, installed: Path) -> None:
    answer = systemd_analyze("security", "--offline=true", f"--threshold={MAX_EXPOSURE}", str(installed / unit))
    assert answer.returncode == 0, answer.stdout[-300:]


def test_no_service_is_killed_before_it_has_drained() -> None:
    seconds = {unit: float(service(unit)["TimeoutStopSec"][0]) for unit in UNITS}
    assert seconds["agon-worker@.service"] > DRAIN_S
    assert seconds["agon-controller.service"] > 10


@pytest.mark.parametrize("unit", UNITS)
def test_secrets_come_from_files_that_the_unit_loads(unit: str) -> None:
    settings = service(unit)
    loaded = {line.partition(":")[0] for line in settings["LoadCredential"]}
    read = dict(line.split("=", 1) for line in settings["Environment"] if "_FILE=" in line)
    assert set(read.values()) == {f"%d/{name}" for name in loaded}
    named = {re.sub(r"^AGON_(\w+)_FILE$", r"\1", name).lower() for name in read}
    assert named == loaded


@pytest.mark.parametrize("unit", UNITS)
def test_the_settings_file_of_a_unit_has_an_example(unit: str) -> None:
    [file] = service(unit)["EnvironmentFile"]
    name = Path(file.lstrip("-")).name.replace("%i", "raven")
    assert (FOLDER / name).read_text().startswith(f"# {file.lstrip('-').replace('%i', 'raven')}\n")
