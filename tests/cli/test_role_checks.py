"""`agon doctor --role`: what a service that runs by itself needs, each with a sentence of what to do."""

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version
from pathlib import Path

import pytest

from cli.findings import Finding, Verdict
from cli.role_checks import check_controllers, check_names, check_packages, check_secrets, check_store, check_tls
from service_kit.extras import missing_extra

CERTIFICATES = Path(__file__).parents[1] / "certificates"


@pytest.fixture(autouse=True)
def _no_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("AGON_") or name == "REDIS_URL":
            monkeypatch.delenv(name)


def problems(findings: Iterator[Finding]) -> list[str]:
    return [finding.text for finding in findings if finding.verdict is Verdict.PROBLEM]


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("torch", "gradio") else real(name))
    assert problems(check_packages("worker")) == ["torch not installed: pip install 'agon[worker]'"]
    assert problems(check_packages("webui")) == ["gradio not installed: pip install 'agon[webui]'"]
    assert problems(check_packages("controller")) == []
    assert len(problems(check_packages("arena"))) == 2
    assert missing_extra(ModuleNotFoundError(name="redis.asyncio")).endswith("pip install 'agon[controller]'")
    assert missing_extra(ModuleNotFoundError(name="rich")).endswith("pip install 'agon[all]'")


_FLAGS = {"controller": [], "webui": ["--port", "0"], "model_worker": ["--model", "m=/nowhere", "--port", "0"]}
_NEEDED = [("controller", "redis"), ("webui", "gradio"), ("model_worker", "torch")]


@pytest.mark.parametrize(("service", "package"), _NEEDED)
def test_a_service_without_its_extra_says_which(service: str, package: str) -> None:
    code = f"import sys, runpy; sys.modules[{package!r}] = None; sys.argv[1:] = {_FLAGS[service]!r}; "
    code += f"runpy.run_module({service!r}, run_name='__main__')"
    environment = {**os.environ, "AGON_WORKER_TOKEN": "w" * 20, "AGON_ADMIN_TOKEN": "a" * 20}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    extra = {"model_worker": "worker"}.get(service, service)
    assert (done.returncode, f"pip install 'agon[{extra}]'" in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr


def test_packages_of_other_distributions_under_our_names_are_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert problems(check_names()) == []
    monkeypatch.setattr("importlib.metadata.packages_distributions", lambda: {"cli": ["agon", "pyinfra"]})
    [text] = problems(check_names())
    assert "`cli` is also in pyinfra" in text
    assert "virtual environment of its own" in text
    monkeypatch.undo()
    real = importlib.util.find_spec
    (tmp_path / "engine.py").touch()
    other = importlib.util.spec_from_file_location("engine", tmp_path / "engine.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: other if name == "engine" else real(name))
    assert f"`engine` is {tmp_path}/engine.py, not Agon's" in problems(check_names())[0]


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"CERT": "server.pem"}, "belong together"),
        ({"CERT": "server.pem", "KEY": "other.key"}, "is not that of the certificate"),
        ({"CERT": "expired.pem", "KEY": "expired.key"}, "has expired"),
        ({"CERT": "server.pem", "KEY": "server.key", "CA": "other.pem"}, "services of this arena would refuse it"),
        ({"CA": "server.key"}, "AGON_CA_FILE cannot be used: it holds no certificate"),
        ({"CERT": "server.pem", "KEY": "server.key", "CA": "ca.pem"}, None),
        ({}, None),
    ],
)
def test_files_of_tls_are_checked(files: dict[str, str], sentence: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"CERT": "AGON_TLS_CERT_FILE", "KEY": "AGON_TLS_KEY_FILE", "CA": "AGON_CA_FILE"}
    for kind, file in files.items():
        monkeypatch.setenv(names[kind], str(CERTIFICATES / file))
    found = problems(check_tls())
    assert [sentence in text for text in found] == [True] if sentence else found == []


def test_settings_that_a_service_would_refuse_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "AGON_WORKER_TOKEN must be set" in problems(check_secrets("controller"))[0]
    monkeypatch.setenv("AGON_MAX_RUNNING", "many")
    assert "AGON_MAX_RUNNING" in problems(check_secrets("worker"))[0]
    monkeypatch.setenv("AGON_PROXY_TOKEN_FILE", "/nowhere/token")
    assert "AGON_PROXY_TOKEN_FILE" in problems(check_secrets("webui"))[0]


def test_a_controller_needs_a_store_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "AGON_REDIS_URL is not set" in problems(check_store())[0]
    monkeypatch.setenv("AGON_REDIS_URL", "redis://127.0.0.1:9/0")
    assert problems(check_store())


def test_the_controllers_of_a_worker_are_asked_for_version_and_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    class Answers(BaseHTTPRequestHandler):
        found, date = version("agon"), ""

        def do_GET(self) -> None:
            body = json.dumps({"name": "agon", "version": self.found}).encode()
            self.send_response_only(200)
            self.send_header("Date", self.date or self.date_time_string())
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("AGON_CONTROLLER_URLS", url)
        assert [finding.verdict for finding in check_controllers()] == [Verdict.OK, Verdict.OK]
        Answers.date = "Thu, 01 Jan 2026 00:00:00 GMT"
        assert "turn on NTP" in list(check_controllers())[1].text
        Answers.found = "0.0.1"
        assert "install one version everywhere" in problems(check_controllers())[0]
        server.shutdown()
    assert "does not answer" in problems(check_controllers())[0]
    monkeypatch.delenv("AGON_CONTROLLER_URLS")
    assert [finding.verdict for finding in check_controllers()] == [Verdict.HINT]


def test_each_role_has_its_own_checks() -> None:
    """No engine for a web UI; its own port only."""
    command = [sys.executable, "-P", "-m", "cli.main", "doctor", "--role", "webui"]
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    subjects = {line.split()[0] for line in done.stdout.splitlines() if line.strip()}
    assert {"extra", "packages", "tls", "settings", "controller", "descriptors", "port"} <= subjects
    assert not {"torch", "store", "operators"} & subjects
    assert "7860" in done.stdout
    assert "8200" not in done.stdout
