"""Everything that must hold before a change is merged: `python .ci/checks.py [pytest arguments]`.

Runs every check even when one fails, prints how long each took, and leaves pytest's summary last unless mypy failed.
"""

import os
import signal
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = Path(sysconfig.get_path("scripts"))

CHECKS: tuple[tuple[str, list[str]], ...] = (
    ("ruff check", [str(SCRIPTS / "ruff"), "check", "."]),
    ("ruff format", [str(SCRIPTS / "ruff"), "format", "--check", "."]),
    ("lint-imports", [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]),
)
MYPY = [sys.executable, "-m", "mypy"]  #: takes minutes without its cache, on one core: it runs beside the tests
#: Few, because engines, arenas and browsers have threads and processes of their own; two more than cores, because tests
#: of these wait for them: three processes left two cores idle for a quarter of the time. A file stays in one process;
#: files are begun in the order of tests/conftest.py.
NUM_PROCESSES = min(4, (os.cpu_count() or 1) + 2)
IN_PARALLEL = [f"--numprocesses={NUM_PROCESSES}", "--dist=loadfile", "--no-loadscope-reorder"]
WITHOUT_LONG_TESTS = ["-m", "not long"]  #: unless pytest arguments choose others: the last -m counts


def main() -> None:
    # Tests start hundreds of processes: each would compile every module that it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    failed = [name for name, command in CHECKS if not passes(name, command)]
    if failed:
        print(f"\n*** failed before the tests: {', '.join(failed)}", flush=True)
    with ThreadPoolExecutor(1) as beside:
        types = beside.submit(passes, "mypy", MYPY)
        arguments = ["--durations=15", "-p", "tests.progress", *IN_PARALLEL, *WITHOUT_LONG_TESTS, *sys.argv[1:]]
        with subprocess.Popen([sys.executable, "-m", "pytest", *arguments], cwd=ROOT) as tests:
            signal.signal(signal.SIGTERM, lambda *_: tests.terminate())  # it says what was running
        has_right_types = types.result()
    if not has_right_types:
        print("\n*** mypy failed, see above", flush=True)
    raise SystemExit(tests.returncode or bool(failed) or not has_right_types)


def passes(name: str, command: list[str]) -> bool:
    """Run one check, and print its output once it is whole."""
    started = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    result = f"{'ok' if done.returncode == 0 else 'FAILED'} in {time.monotonic() - started:.1f} s"
    print(f"\n==> {name}\n{done.stdout}    {name}: {result}\n", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    main()
