"""Runs each test that failed beside others once more, in a process of its own, several at the same time.

`python -m benchmarks.gpu.first_hour.again CACHE FILE PROCESSES SECONDS`: CACHE is the cache folder of the pytest run;
FILE gets the outcomes, written after each test. A test that would begin too late counts as failed. Where
compute-sanitizer is installed, the first test that fails alone on a device runs under it in the remaining time. The
exit status says whether all tests pass alone.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

Outcome = dict[str, Any]

_PYTEST = (sys.executable, "-m", "pytest", "-W", "default", "-q", "-p", "no:cacheprovider")
_NUM_LINES = 8  #: of a failed test's output that are kept


def main(cache: Path, result: Path, num_processes: int, budget_s: float) -> int:
    deadline = time.monotonic() + budget_s
    names = _failed(cache)
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(num_processes) as pool:
        for future in as_completed([pool.submit(_alone, name, deadline) for name in names]):
            outcomes.append(future.result())
            result.write_text(json.dumps(outcomes, indent=2) + "\n", encoding="utf-8")
    if not names:
        print("No test is known to have failed.")
    wrong = sorted((outcome for outcome in outcomes if not outcome["passes_alone"]), key=lambda o: str(o["test"]))
    for outcome in wrong:
        print(f"FAILED alone too: {outcome['test']}", *outcome["lines"], sep="\n    ")
    for outcome in outcomes:
        if outcome["passes_alone"]:
            print(f"passes alone: {outcome['test']}")
    if wrong and os.environ.get("TRITON_INTERPRET") == "0" and (checker := shutil.which("compute-sanitizer")):
        wrong[0]["memcheck"] = _run([checker, "--tool", "memcheck", *_PYTEST, wrong[0]["test"]], deadline)[1]
        result.write_text(json.dumps(outcomes, indent=2) + "\n", encoding="utf-8")
    return int(bool(wrong))


def _failed(cache: Path) -> list[str]:
    """Names of the tests that pytest has noted as failed."""
    path = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else []


def _alone(name: str, deadline: float) -> Outcome:
    if time.monotonic() > deadline:
        return {"test": name, "passes_alone": False, "lines": ["not tried again: the time was over"]}
    status, lines = _run([*_PYTEST, name], deadline)
    return {"test": name, "passes_alone": status == 0, "lines": [] if status == 0 else lines}


def _run(command: Sequence[str], deadline: float) -> tuple[int, list[str]]:
    """Exit status and the last lines of the output; a command that is not done at the deadline has failed."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=max(deadline - time.monotonic(), 1.0),
        )
    except subprocess.TimeoutExpired:
        return 124, ["not done in time"]
    return done.returncode, done.stdout.splitlines()[-_NUM_LINES:]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
