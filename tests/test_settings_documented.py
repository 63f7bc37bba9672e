"""docs/settings.md has every setting of the controller and of the web UI, with its default."""

import re
from pathlib import Path
from typing import Any

import controller.config
import webui.config

PAGE = Path(__file__).parents[1] / "docs/settings.md"
TOKENS = ("AGON_WORKER_TOKEN", "AGON_ADMIN_TOKEN")
FIELDS: dict[str, Any] = {
    f"AGON_{name.upper()}": field
    for settings in (controller.config.Settings, webui.config.Settings)
    for name, field in settings.model_fields.items()
}


def documented() -> dict[str, str]:
    """Variable to default, as the tables have them; several may share a row."""
    found: dict[str, str] = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        names = re.findall(r"`(AGON_\w+)`", cells[0])
        if len(cells) == 3 and names:
            defaults = re.findall(r"`([^`]*)`", cells[1]) if len(names) > 1 else [cells[1].strip("`")]
            found.update(zip(names, defaults, strict=True))
    return found


def test_every_setting_is_documented_and_no_other() -> None:
    files = {name for name in FIELDS if name.endswith("_FILE") and name != "AGON_WEBUI_TERMS_FILE"}
    assert set(documented()) == set(FIELDS) - files
    assert all(f"`{name}`" in PAGE.read_text() for name in files)


def test_documented_defaults_are_the_real_ones() -> None:
    wrong = {}
    for name, said in documented().items():
        default = FIELDS[name].default
        if isinstance(default, str | bool):
            is_right = said == str(default)
        elif isinstance(default, int | float):
            is_right = float(said) == default
        elif default is None or name in TOKENS:
            is_right = said.startswith("none")
        else:
            continue  # networks and hosts, told in words
        if not is_right:
            wrong[name] = (said, default)
    assert wrong == {}
