"""Every expression of the dashboard and the alert rules asks for metrics and labels that running services give."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import webui.metrics
from docs import monitoring_dashboard
from model_worker.app import create_app
from model_worker.config import WorkerSettings
from model_worker.echo_engine import EchoEngine
from tests.controller.support.arena import make_settings, running_arena
from tests.controller.support.running import running_store

FOLDER = Path(__file__).parents[1] / "docs" / "monitoring"
#: Prometheus itself adds these.
ADDED_METRICS, ADDED_LABELS = {"up"}, {"job", "instance"}
_NAME = re.compile(r"\b(?:arena_|agon_|vllm:|process_|up\b)[a-z0-9_:]*")
_BY = re.compile(r"by \(([^)]*)\)")
_MATCHED = re.compile(r'([a-z_]+)(?:=~|!~|!=|=)"')


def _expressions() -> Iterator[str]:
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text())
    yield from (rule["expr"] for group in rules["groups"] for rule in group["rules"])
    for panel in json.loads((FOLDER / "dashboard.json").read_text())["panels"]:
        yield from (target["expr"] for target in panel["targets"])


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Labels by the name of each series, of a web UI, and of a controller and a worker that have done some work."""
    found: dict[str, set[str]] = {}
    for text in asyncio.run(scrapes(tmp_path_factory.mktemp("store"))):
        for family in text_string_to_metric_families(text):
            # A counter with labels has no series before its first event, but its family is declared.
            found.setdefault(family.name, set())
            found.setdefault(f"{family.name}_total", set())
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


async def scrapes(folder: Path) -> list[str]:
    """The metrics of a controller, a worker and a web UI that have done some work."""
    texts = []
    with running_store(folder) as store:
        async with running_arena(make_settings(store.url, "monitoring")) as arena:
            await arena.add_two()
            battle = (await arena.create())["id"]
            await arena.turn(battle)
            await arena.vote(battle)
            texts.append((await arena.client.get("/metrics", headers=arena.admin)).text)
    worker = create_app(WorkerSettings(model="echo", engine="echo"), EchoEngine())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(worker), base_url="http://localhost") as client:
        asked = {"model": "echo", "prompt": "some words", "max_tokens": 4}
        assert (await client.post("/v1/completions", json=asked)).status_code == 200
        texts.append((await client.get("/metrics")).text)
    registry = CollectorRegistry()
    webui.metrics.Metrics(registry)
    return [*texts, generate_latest(registry).decode()]


@pytest.mark.parametrize("expression", sorted(set(_expressions())))
def test_an_expression_asks_for_what_services_give(expression: str, series: dict[str, set[str]]) -> None:
    names = set(_NAME.findall(expression)) - ADDED_METRICS
    assert names <= series.keys(), f"no service gives {sorted(names - series.keys())}"
    asked = {label.strip() for group in _BY.findall(expression) for label in group.split(",")}
    asked |= set(_MATCHED.findall(expression))
    given = set().union(*(series[name] for name in names)) if names else set()
    has_series = all(series[name] for name in names)
    assert not has_series or asked - ADDED_LABELS <= given, f"no label {sorted(asked - ADDED_LABELS - given)}"


def test_the_dashboard_is_the_generated_one() -> None:
    written: Any = json.loads(monitoring_dashboard.OUTPUT.read_text())
    assert written == monitoring_dashboard.dashboard()


def test_every_alert_says_what_to_do() -> None:
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text())
    for rule in rules["groups"][0]["rules"]:
        assert {"summary", "action"} <= rule["annotations"].keys(), rule["alert"]
        assert rule["labels"]["severity"] in ("page", "warn")
