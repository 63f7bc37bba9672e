"""A peer in a process of its own: started once, asked for many runs, metered while it works."""

import contextlib
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from benchmarks.peers.environments import python_of
from benchmarks.peers.noise import Noise, NoiseMeter, resident_bytes
from benchmarks.peers.variants import ADAPTERS, Variant, process_environment
from cli.bench.workloads import Work

_STOP_TIMEOUT_S = 20.0


class PeerFailed(Exception):
    """The peer did not load or broke off; the message holds the end of what it printed."""


class PeerProcess:
    def __init__(self, variant: Variant, settings: dict[str, Any]) -> None:
        """Load the peer and wait until it can run. Raises PeerFailed."""
        self._log = tempfile.NamedTemporaryFile("w+", prefix="peer-", suffix=".log")  # noqa: SIM115  # as long as it
        started = time.perf_counter()
        self._process = subprocess.Popen(
            [str(python_of(variant.environment)), str(ADAPTERS / variant.adapter)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=process_environment(variant, settings["threads"], settings["cache_gib"]),
        )
        try:
            model = variant.model_folder(settings["model"])
            ready = self._ask({**settings, "model": model, "dtype": variant.dtype, "options": variant.options})
        except PeerFailed:
            self.close()
            raise
        self.version: str = ready["version"]
        self.load_s: float = ready["load_s"]
        self.start_s = round(time.perf_counter() - started, 2)  #: interpreter, imports and loading

    def run(self, work: Sequence[Work], *, is_single: bool) -> tuple[dict[str, Any], Noise]:
        prompts, lengths = [item.ids for item in work], [item.out for item in work]
        with NoiseMeter(self._process.pid) as meter:
            answer = self._ask({"is_single": is_single, "prompts": prompts, "lengths": lengths})
        return answer, meter.noise()

    @property
    def resident_bytes(self) -> int:
        return resident_bytes(self._process.pid)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._process.wait(_STOP_TIMEOUT_S)
            said = Path(self._log.name).read_text(errors="replace")[-3000:]
            raise PeerFailed(f"it ended with code {self._process.returncode}:\n{said}")
        answer: dict[str, Any] = json.loads(line)
        return answer
