"""Podman as a person would use it, and podman-compose on the files of this repository."""

import json
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
_CONTAINERS_CONF = """[containers]
default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


class Podman:
    """Runs podman with a configuration that needs neither systemd nor the right to raise limits: a sandbox has none."""

    def __init__(self, folder: Path, compose: str = "podman-compose") -> None:
        missing = [program for program in ("podman", "runc", compose) if shutil.which(program) is None]
        if missing:
            raise SystemExit(f"not installed: {', '.join(missing)} (Debian: podman, runc; PyPI: podman-compose)")
        self._compose = compose
        hard = [resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)]
        files, processes = (2**15 if limit < 0 else min(limit, 2**15) for limit in hard)
        config = folder / "containers.conf"
        config.write_text(_CONTAINERS_CONF.format(files=files, processes=processes))
        self.environment = {**os.environ, "CONTAINERS_CONF": str(config)}

    def run(self, *arguments: object, stdin: IO[bytes] | None = None) -> str:
        """What a podman command prints; raises SystemExit with its errors if it fails."""
        return self._run(["podman", *map(str, arguments)], self.environment, stdin)

    def compose(self, project: str, files: Sequence[str], *arguments: str, **variables: str) -> str:
        """What a command of podman-compose prints, on these files of the repository."""
        chosen = [word for file in files for word in ("-f", str(ROOT / file))]
        return self._run([self._compose, "-p", project, *chosen, *arguments], {**self.environment, **variables}, None)

    def _run(self, command: Sequence[str], environment: Mapping[str, str], stdin: IO[bytes] | None) -> str:
        done = subprocess.run(command, env=environment, stdin=stdin, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return done.stdout

    def has_image(self, name: str) -> bool:
        """Whether an image of that name is here."""
        return subprocess.run(["podman", "image", "exists", name], env=self.environment, check=False).returncode == 0

    def execute(self, container: str, *command: str) -> tuple[int, str]:
        """Exit code and output of a command inside a container."""
        done = subprocess.run(
            ["podman", "exec", container, *command], env=self.environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def inspect(self, container: str) -> dict[str, Any]:
        """All that podman knows of a container."""
        [found] = json.loads(self.run("container", "inspect", container))
        assert isinstance(found, dict)
        return found

    def wait_healthy(self, container: str, timeout_s: float = 180.0) -> None:
        """Until the container's own health check passes. It is run from here: podman leaves it to systemd's timers."""
        deadline = time.monotonic() + timeout_s
        command = ["podman", "healthcheck", "run", container]
        while subprocess.run(command, env=self.environment, capture_output=True, check=False).returncode != 0:
            if time.monotonic() > deadline:
                raise SystemExit(f"{container} is not healthy:\n{self.run('logs', '--tail=20', container)}")
            time.sleep(0.5)
