"""Metrics, variables, flags, files and links that the documents name exist."""

import contextlib
import importlib
import io
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from cli.main import COMMANDS
from controller.config import Settings as ControllerSettings
from controller.metrics import Metrics as ControllerMetrics
from model_worker.config import WorkerSettings
from model_worker.engine_protocol import Hosting
from model_worker.metrics import Metrics as WorkerMetrics
from model_worker.metrics import ModelFigures
from webui.config import Settings as WebuiSettings
from webui.metrics import Metrics as WebuiMetrics
from wire.workers import Capacity, Load, PageCounts

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
NAMES = [path.relative_to(ROOT).as_posix() for path in PAGES]
FOREIGN_FLAGS = {
    "--data-binary", "--nproc-per-node", "--model_args",  # curl, torchrun, lm_eval
    "--build-arg", "--gpus-per-node", "--nodes", "--now", "--requeue",  # docker, Slurm, systemctl
}  # fmt: skip


@cache
def tracked() -> tuple[str, ...]:
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    try:
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no git checkout")
    return tuple(answer.stdout.splitlines())


@cache
def sources() -> str:
    """Code and configuration, without tests and documents."""
    endings = (".py", ".yml", ".toml", ".cpp", ".h", "Makefile", "Dockerfile", ".env.example", ".ci/run")
    names = [name for name in tracked() if name.endswith(endings) and not name.startswith("tests/")]
    commands = re.compile(r"tests/\w+/__main__\.py|tests/model_cycles\.py")  # that people run
    names += [name for name in tracked() if commands.fullmatch(name)]
    return "\n".join((ROOT / name).read_text() for name in names if (ROOT / name).is_file())


def metric_names() -> set[str]:
    load = Load(pages=(PageCounts(layer_type="x", used=0, evictable=0, empty=0, page_bytes=1),))
    capacity = Capacity(max_running=1, max_queued=1, kv_tokens=1)
    hosting = Hosting({("401", "status_401"): 1}, True, None, 1, 1.0)
    worker = WorkerMetrics()
    model = worker.of("m", ModelFigures(lambda: load, lambda: capacity, lambda: "torch", lambda: True, lambda: hosting))
    model.count_finished("stop", 1.0)
    model.count_failed("queue_full")
    registry = CollectorRegistry()
    webui = WebuiMetrics(registry)
    webui.requests.labels("page", "200")
    families = [*ControllerMetrics().registry.collect(), *registry.collect()]
    families += text_string_to_metric_families(worker.render().decode())
    names = {family.name for family in families}
    return names | {name + ending for name in names for ending in ("_total", "_bucket", "_count", "_sum")}


@cache
def flags() -> frozenset[str]:
    """Flags of every command, from its own parser."""
    found: set[str] = set()
    for command in COMMANDS.values():
        if command.is_service:
            found |= set(re.findall(r"--[a-z][a-z0-9-]*", service_help(command.target)))
        else:
            found |= set(options(typer.main.get_command(importlib.import_module(command.target).app)))
    return frozenset(found)


def service_help(package: str) -> str:
    module = "model_worker.main" if package == "model_worker" else f"{package}.__main__"
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        importlib.import_module(module).main(["--help"])
    return text.getvalue()


def options(command: Any) -> Iterator[str]:
    """command: a click.Command, of click or of the copy inside typer."""
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    for child in getattr(command, "commands", {}).values():
        yield from options(child)


@pytest.mark.parametrize("page", NAMES)
def test_metrics_exist(page: str) -> None:
    named = set(re.findall(r"(?<![\w/.-])(?:arena|agon)_[a-z][a-z_]+\b(?!\.)", (ROOT / page).read_text()))
    assert named - metric_names() == set()


@pytest.mark.parametrize("page", NAMES)
def test_variables_exist(page: str) -> None:
    named = set(re.findall(r"\bAGON_[A-Z0-9_]+", (ROOT / page).read_text()))
    classes = (ControllerSettings, WorkerSettings, WebuiSettings)
    known = {f"AGON_{field.upper()}" for settings in classes for field in settings.model_fields}
    assert {name for name in named - known if not re.search(rf"\b{name}\b", sources())} == set()


@pytest.mark.parametrize("page", NAMES)
def test_flags_exist(page: str) -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", (ROOT / page).read_text()))
    unknown = named - flags() - FOREIGN_FLAGS
    assert {flag for flag in unknown if f'"{flag}' not in sources()} == set()


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_files_exist(page: str) -> None:
    folders = "|".join(sorted({re.escape(name.partition("/")[0]) for name in tracked() if "/" in name}))
    text = (ROOT / page).read_text()
    named = set(re.findall(rf"(?<![\w/.-])((?:{folders})/[\w./-]*)", text))
    named |= set(re.findall(r"`([\w.-]+\.(?:md|toml|yml))`", text))
    real = {name.rstrip(".") for name in named if "NAME" not in name}  # NAME: a file that a recipe makes
    assert {name for name in real if not (ROOT / name).exists()} == set()


@pytest.mark.parametrize("page", NAMES)
def test_links_lead_to_files(page: str) -> None:
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", (ROOT / page).read_text())
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs/decisions"
    index = (folder / "README.md").read_text()
    pages = sorted(folder.glob("[0-9]*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        title = page.read_text().splitlines()[0].partition(". ")[2]
        assert f"({page.name}): {title}" in index
