"""Builds Agon's wheel from a copy of the source, so that no build folder is left in the tree.

`python -m tests.wheel`, or `make wheel`, installs it with its dependencies into a new environment, runs `agon up` in an
empty folder and takes one battle there. Minutes; the end-to-end tests run the unpacked wheel.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import httpx

from cli.bootstrap import torch_source

ROOT = Path(__file__).parents[1]
PACKAGES = ("wire", "ratings", "service_kit", "engine", "controller", "model_worker", "webui", "cli", "demo_models")
MAX_WHEEL_BYTES = 24 * 2**20  #: the demo models are 15 MiB of it
_CONTROLLER, _WEBUI, _WORKER = 18100, 17860, 18200  #: ports
_READY_S = 300.0


def build_wheel(folder: Path) -> Path:
    """Build the wheel into `folder` with the setuptools that is installed, and return its path."""
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "runs"))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(source)], check=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def battle(controller: str) -> dict[str, str]:
    """A turn and a vote; the models that the vote reveals, by side."""
    with httpx.Client(base_url=controller, trust_env=False, timeout=60) as client:
        battle_id = client.post("/arena/battles", json={"mode": "anonymous"}).raise_for_status().json()["id"]
        turn = client.post(f"/arena/battles/{battle_id}/turns", json={"content": "What is 12 + 30?"})
        if "turn_finished" not in turn.text:
            raise SystemExit(turn.text[-1000:])
        vote = client.post(f"/arena/battles/{battle_id}/vote", json={"outcome": "tie"}).raise_for_status()
        models: dict[str, str] = vote.json()["models"]
        return models


def main() -> None:
    """Build, install, run, battle; exit code 1 where one of them fails."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        wheel = build_wheel(folder)
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
        venv.create(folder / "environment", with_pip=True)
        programs = folder / "environment" / "bin"
        install = [str(programs / "pip"), "install", "--quiet", *torch_source(), f"{wheel}[all]"]
        subprocess.run(install, check=True)
        empty, log = folder / "empty", folder / "up.log"
        empty.mkdir()
        ports = ["--controller-port", str(_CONTROLLER), "--webui-port", str(_WEBUI), "--worker-port", str(_WORKER)]
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("AGON_", "PYTHON"))}
        with log.open("wb") as output:
            up = subprocess.Popen(
                [str(programs / "agon"), "up", *ports], cwd=empty, env=clean, stdout=output, stderr=output
            )
        try:
            started = time.monotonic()
            while "The arena is ready" not in log.read_text():
                if up.poll() is not None or time.monotonic() - started > _READY_S:
                    raise SystemExit(log.read_text()[-3000:])
                time.sleep(0.2)
            print(f"ready after {time.monotonic() - started:.0f} s; {battle(f'http://127.0.0.1:{_CONTROLLER}')}")
        finally:
            up.send_signal(signal.SIGINT)
            code = up.wait(timeout=60)
        print(f"stopped with {code}; {sorted(path.name for path in empty.iterdir())} is left")


if __name__ == "__main__":
    main()
