"""Every setting and command in the files under docs/deploy, docker/ and the compose files exists."""

import re
from pathlib import Path

import pytest
import yaml

from cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
SETTINGS = set(re.findall(r"`(AGON_[A-Z0-9_]+)`", (ROOT / "docs" / "settings.md").read_text()))
FILES = [
    path
    for path in sorted((ROOT / "docs" / "deploy").rglob("*"))
    if path.is_file() and path.suffix != ".md" and "secrets" not in path.parts
]
FILES += [*sorted(ROOT.glob("docker-compose*.yml")), ROOT / "docker" / "Dockerfile"]
NAMES = [path.relative_to(ROOT).as_posix() for path in FILES]
#: What a person sets for the file itself: `${NAME...}` of compose and of shell.
_OWN = re.compile(r"\$\{(AGON_[A-Z0-9_]+)")


@pytest.mark.parametrize("name", NAMES)
def test_settings_exist(name: str) -> None:
    text = (ROOT / name).read_text()
    named = set(re.findall(r"\bAGON_[A-Z0-9_]+", text))
    assert named - SETTINGS - set(_OWN.findall(text)) == set()


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in NAMES
        if Path(name).name.startswith("docker-compose") or ("two-hosts/" in name and name.endswith(".yml"))
    ],
)
def test_what_a_service_gets_is_a_setting(name: str) -> None:
    """Variables of the file itself end in it: a service never gets one that it does not read."""
    for service, content in yaml.safe_load((ROOT / name).read_text())["services"].items():
        given = {key for key in content.get("environment", {}) if key.startswith("AGON_")}
        assert given <= SETTINGS, service


@pytest.mark.parametrize("name", NAMES)
def test_commands_exist(name: str) -> None:
    text = (ROOT / name).read_text()
    called = set(re.findall(r"(?:/bin/|^|[\s\"'`$])agon (?:\\\n\s*)?([a-z]+)\b", _code(text), re.MULTILINE))
    assert called <= set(COMMANDS), name
    modules = set(re.findall(r'"-m", "(\w+)"', text)) | set(re.findall(r"python3? -m (\w+)", text))
    assert {module for module in modules if not (ROOT / module).is_dir()} <= {"venv", "pip"}


def _code(text: str) -> str:
    """Without comments, except for code in them."""
    return "\n".join(re.sub(r"#.*", "", line) if "`agon " not in line else line for line in text.splitlines())
