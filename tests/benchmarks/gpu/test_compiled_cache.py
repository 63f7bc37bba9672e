"""A cache of compiled kernels that is packed here and unpacked at another place."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from benchmarks.gpu.compiled_cache import unpack

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton has no release for this platform (it is for Linux on x86-64)", allow_module_level=True)

ROOT = Path(__file__).parents[3]
_SCRIPT = """
from pathlib import Path
from benchmarks.gpu.compile_into_cache import build, build_module, find_python, make_stub
from tests.benchmarks.kernels.flawed_kernels import cases
python, stub = find_python("{version}"), Path("{stub}")
make_stub(stub)
built = build(next(cases()).variant(90), None, stub)
print(built.was_there, build_module("module", "#include <Python.h>", python, stub)[1])
"""


def compiled(cache: Path, stub: Path) -> list[str]:
    """Compile a variant and a module in C into the cache; whether each was there."""
    stub.mkdir(exist_ok=True)
    environment = {"PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(cache), "TRITON_STORE_BINARY_ONLY": "1"}
    code = _SCRIPT.format(stub=stub, version=f"{sys.version_info.major}.{sys.version_info.minor}")
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment | {"TRITON_INTERPRET": "0"},
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.split()


def test_triton_finds_what_was_compiled_at_another_place(tmp_path: Path) -> None:
    made, moved, copied = tmp_path / "made", tmp_path / "moved", tmp_path / "copied"
    assert compiled(made, tmp_path / "stub") == ["False", "False"]
    archive = tmp_path / "cache.tar.xz"
    with tarfile.open(archive, "w:xz") as tar:
        tar.add(made, arcname=".")
    unpack(archive, moved)
    shutil.copytree(made, copied)
    shutil.rmtree(made)
    assert compiled(moved, tmp_path / "stub") == ["True", "True"]
    assert compiled(copied, tmp_path / "stub") == ["False", "True"], "a copy alone does not do: it holds the old paths"


def test_a_group_lists_its_files_where_they_are_now(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "KEY"
    folder.mkdir(parents=True)
    (folder / "kernel.cubin").write_bytes(b"code")
    (folder / "__grp__kernel.json").write_text(json.dumps({"child_paths": {"kernel.cubin": "/elsewhere/kernel.cubin"}}))
    with tarfile.open(tmp_path / "cache.tar.xz", "w:xz") as tar:
        tar.add(tmp_path / "made", arcname=".")
    unpack(tmp_path / "cache.tar.xz", tmp_path / "moved")
    group = json.loads((tmp_path / "moved/KEY/__grp__kernel.json").read_text())
    assert group == {"child_paths": {"kernel.cubin": str(tmp_path / "moved/KEY/kernel.cubin")}}
    assert Path(group["child_paths"]["kernel.cubin"]).read_bytes() == b"code"
