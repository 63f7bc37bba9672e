"""Everything that must hold before a change is merged: `python .ci/checks.py [pytest arguments]`.

Runs every check even when one fails, prints how long each took, and leaves pytest's summary last.
"""

import os
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = Path(sysconfig.get_path("scripts"))

CHECKS: tuple[tuple[str, list[str]], ...] = (
    ("ruff check", [str(SCRIPTS / "ruff"), "check", "."]),
    ("ruff format", [str(SCRIPTS / "ruff"), "format", "--check", "."]),
    ("mypy", [sys.executable, "-m", "mypy"]),
    ("lint-imports", [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]),
)
#: One more than there are cores, because tests of processes and pages wait much; few, because tests of the engine have
#: threads of their own. A file stays in one process, and the order of files, quick ones first, stays.
NUM_PROCESSES = min(4, os.cpu_count() or 1)
IN_PARALLEL = [f"--numprocesses={NUM_PROCESSES}", "--dist=loadfile", "--no-loadscope-reorder"]


def main() -> None:
    failed = [name for name, command in CHECKS if not passes(name, command)]
    if failed:
        print(f"\n*** failed before the tests: {', '.join(failed)}", flush=True)
    pytest = [sys.executable, "-m", "pytest", "--durations=15", *IN_PARALLEL, *sys.argv[1:]]
    tests = subprocess.run(pytest, cwd=ROOT, check=False)
    raise SystemExit(tests.returncode or bool(failed))


def passes(name: str, command: list[str]) -> bool:
    print(f"==> {name}", flush=True)
    started = time.monotonic()
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    print(f"    {name}: {'ok' if code == 0 else 'FAILED'} in {time.monotonic() - started:.1f} s\n", flush=True)
    return code == 0


if __name__ == "__main__":
    main()
