"""docs/settings.md lists every setting of every service, with flag, variable, default and meaning."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic_settings import BaseSettings

import controller.config
import model_worker.config
import webui.config
from docs import settings_page
from engine.config import EngineConfig
from engine.settings import setting_fields

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/settings.md").read_text()
SERVICES: dict[str, type[BaseSettings]] = {
    "controller": controller.config.Settings,
    "webui": webui.config.Settings,
    "model_worker": model_worker.config.WorkerSettings,
}
HEADINGS = {"controller": "Controller", "webui": "Web UI", "model_worker": "Worker"}


def section(service: str) -> str:
    """The part of the page that is about a service; the engine's settings belong to the worker."""
    return PAGE.split(f"\n## {HEADINGS[service]}\n")[1].split(
        "\n## Other variables\n" if service == "model_worker" else "\n## "
    )[0]


def test_the_page_is_what_the_settings_classes_say() -> None:
    assert settings_page.text() == PAGE, "run `make pages`"


@pytest.mark.parametrize("service", SERVICES)
def test_every_setting_of_a_service_has_a_row_with_its_default_and_meaning(service: str) -> None:
    rows = dict(re.findall(r"^\|[^|]*\| `([A-Z_]+)` \| (.+) \|$", section(service), re.MULTILINE))
    assert set(rows) == {f"AGON_{name.upper()}" for name in SERVICES[service].model_fields}
    for row in rows.values():
        default, meaning = row.split(" | ", 1)
        assert default == "required" or default == "none" or re.fullmatch(r"`.+`", default)
        assert len(meaning) >= 10


@pytest.mark.parametrize("service", SERVICES)
def test_every_flag_of_a_service_is_on_the_page(service: str) -> None:
    command = [sys.executable, "-m", service, "--help"]
    help_text = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    flags = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", help_text)) - {"--help"}
    assert flags == set(re.findall(r"`(--[a-z0-9-]+)`", section(service)))


def test_every_field_of_the_engines_configuration_is_a_setting_of_the_worker() -> None:
    names = {entry.name for entry in setting_fields(EngineConfig)}
    assert names <= set(model_worker.config.WorkerSettings.model_fields)


def test_every_variable_that_the_product_reads_is_on_the_page() -> None:
    pattern = re.compile(r"""environ(?:\.get\(|\[)["'](AGON_[A-Z_]+)["']""")
    sources = [file for package in ("cli", "engine", *SERVICES) for file in (ROOT / package).rglob("*.py")]
    read = {name for file in sources for name in pattern.findall(file.read_text())}
    assert read, os.fspath(ROOT)
    assert read <= set(re.findall(r"`(AGON_[A-Z_]+)`", PAGE))
