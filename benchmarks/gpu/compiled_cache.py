"""A cache of compiled kernels for a GPU whose minutes are counted: made without one, moved there, and used by Triton.

    python -m benchmarks.gpu.compiled_cache make [FOLDER]         FOLDER/triton.tar.xz; default .gpu
    python -m benchmarks.gpu.compiled_cache unpack FILE FOLDER    FOLDER is then TRITON_CACHE_DIR

`make` records what the first minutes launch (first_minutes.sh), compiles it for sm_90 with the machine's release of
Triton, unpacks the archive at another place, and counts the variants that are found there. Triton's keys hold a digest
of its own files, libtriton included, which differs between versions of Python: the release for the machine's Python is
downloaded, too. `unpack` needs the standard library only.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".gpu"
ARCHIVE = "triton.tar.xz"
#: Of the machine: docs/gpu.md.
TRITON, PYTHON = "3.6.0", "3.12"
#: Not on the machine, and needed for grammars.
_WHEEL = ("llguidance", "manylinux_2_31_x86_64")
_GROUP = "__grp__*.json"


def make(folder: Path) -> int:
    """Write the archive, and a wheel of llguidance beside it. Returns 1 if a variant is not found after the move."""
    folder.mkdir(exist_ok=True)
    # Two releases: one that runs here, and the files of the machine's, for their digest.
    _install(folder / "triton-here", f"triton=={TRITON}")
    _install(folder / f"triton-{PYTHON}", f"triton=={TRITON}", "--python-version", PYTHON, "--only-binary=:all:")
    name, platform = _WHEEL
    if not any(folder.glob(f"{name}-*.whl")):
        _pip("download", "--no-deps", "--dest", str(folder), name, "--platform", platform, "--python-version", PYTHON)
    with tempfile.TemporaryDirectory(prefix="agon-triton-") as made:
        compiled = _run(folder, Path(made))
        archive = folder / ARCHIVE
        with tarfile.open(archive, "w:xz") as tar:
            tar.add(made, arcname=".")
    print(f"{archive}: {archive.stat().st_size / 2**20:.1f} MiB", flush=True)
    with tempfile.TemporaryDirectory(prefix="agon-moved-") as moved:
        unpack(archive, Path(moved))
        found = _run(folder, Path(moved))
    print(
        f"after the move {found['hits']} of {found['variants']} variants and {found['launcher_hits']} of "
        f"{found['launchers']} launchers are found: "
        f"{found['cpu_s']:.0f} CPU seconds in place of {compiled['cpu_s']:.0f}"
    )
    return int(found["hits"] < found["variants"] or found["launcher_hits"] < found["launchers"])


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a cache, and write its new place into it: Triton keeps absolute paths of the files of a variant."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    for group in folder.glob(f"*/{_GROUP}"):
        content = json.loads(group.read_text())
        content["child_paths"] = {name: str(group.resolve().parent / name) for name in content["child_paths"]}
        group.write_text(json.dumps(content))


def _run(folder: Path, cache: Path) -> dict[str, float]:
    """Compile in a process that has the machine's release of Triton, into that cache or from it."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(folder / "triton-here"), str(ROOT))),
        "TRITON_CACHE_DIR": str(cache),
        "TRITON_STORE_BINARY_ONLY": "1",
        "TRITON_INTERPRET": "0",
    }
    command = [sys.executable, "-m", "benchmarks.gpu.compile_into_cache", str(folder / f"triton-{PYTHON}"), PYTHON]
    done = subprocess.run(command, env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def _install(folder: Path, *arguments: str) -> None:
    if not folder.is_dir():
        _pip("install", "--no-deps", "--target", str(folder), *arguments)


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", arguments[0], "--quiet", *arguments[1:]], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks = parser.add_subparsers(dest="task", required=True)
    tasks.add_parser("make").add_argument("folder", type=Path, nargs="?", default=FOLDER)
    unpacking = tasks.add_parser("unpack")
    unpacking.add_argument("file", type=Path)
    unpacking.add_argument("folder", type=Path)
    chosen = parser.parse_args()
    if chosen.task == "make":
        sys.exit(make(chosen.folder.resolve()))
    unpack(chosen.file, chosen.folder)


if __name__ == "__main__":
    main()
