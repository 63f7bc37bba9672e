"""What users and programs rely on is what was recorded: routes, metrics, error codes, commands, greedy tokens.

A change that alters one of these on purpose alters `recorded_surface.json` in the same commit: the failing test shows
the difference, and `AGON_RECORD=1 python -m pytest tests/test_recorded_surface.py` writes the file anew.
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from pydantic import SecretStr

import controller.app
import controller.config
import controller.metrics
import model_worker.app
from cli.main import COMMANDS
from engine import LLM, SamplingParams
from model_worker.config import WorkerSettings
from model_worker.echo_engine import EchoEngine
from wire.errors import STATUS

RECORD = Path(__file__).parent / "recorded_surface.json"
DEMO_MODELS = Path(__file__).parents[1] / "demo_models"
QUESTIONS = ("What is 17 + 25?", "Hello! Who are you?", "Name three colours.", "What is the capital of France?")


def controller_app() -> FastAPI:
    return controller.app.create_app(
        controller.config.Settings(
            redis_url="redis://127.0.0.1:1/0", worker_token=SecretStr("t" * 32), admin_token=SecretStr("a" * 32)
        )
    )


def worker_app() -> FastAPI:
    settings = WorkerSettings(model="echo", engine="echo", worker_token="t" * 32)
    return model_worker.app.create_app(settings, EchoEngine())


def routes(app: FastAPI) -> list[str]:
    paths = app.openapi()["paths"]
    return sorted(f"{method.upper()} {path}" for path, methods in paths.items() for method in methods)


def metrics(exposition: bytes) -> list[str]:
    return sorted(re.findall(r"^# TYPE (\S+ \S+)$", exposition.decode(), re.MULTILINE))


def greedy_tokens() -> dict[str, list[list[int]]]:
    params = SamplingParams(temperature=0.0, max_tokens=32)
    found = {}
    for name in ("finch", "raven", "robin"):
        with LLM(str(DEMO_MODELS / name), dtype="float32") as llm:
            answers = llm.chat([[{"role": "user", "content": question}] for question in QUESTIONS], params)
            found[name] = [list(answer.outputs[0].token_ids) for answer in answers]
    return found


SURFACE: dict[str, Callable[[], Any]] = {
    "controller routes": lambda: routes(controller_app()),
    "worker routes": lambda: routes(worker_app()),
    "controller metrics": lambda: metrics(controller.metrics.Metrics().exposition()),
    "worker metrics": lambda: metrics(worker_app().state.models.metrics.render()),
    "error codes": lambda: {code.value: status for code, status in STATUS.items()},
    "commands": lambda: sorted(COMMANDS),
    "greedy tokens": greedy_tokens,
}


@pytest.mark.parametrize("part", SURFACE)
def test_the_surface_is_as_recorded(part: str) -> None:
    found = SURFACE[part]()
    recorded = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
    if os.environ.get("AGON_RECORD"):
        RECORD.write_text(json.dumps({**recorded, part: found}, indent=1) + "\n")
        return
    assert found == recorded[part]
