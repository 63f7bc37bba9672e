"""What runs on a GPU machine imports nothing that such a machine lacks."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
#: Imported where a grammar is compiled, which such a machine refuses.
WITH_LLGUIDANCE = {f"engine.constraints.{name}" for name in ("byte_vocabulary", "closing", "grammars", "shortest")}
DEVICE_TESTS = ("tests/engine/kernels/gpu", "tests/engine/runner/device")

_IMPORT_ALL = """
import importlib, importlib.util, sys, sitecustomize
for name in sitecustomize.MISSING:
    assert importlib.util.find_spec(name) is None, name
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception as error:
        print(name, repr(error))
"""

_ASK_FOR_JSON = """
import sys
from engine.errors import InvalidRequest
from engine.llm import LLM
from engine.sampling_params import Constraint, SamplingParams
with LLM(sys.argv[1], kv_cache_bytes=8 << 20, num_threads=1) as llm:
    print(len(llm.generate(["Once"], SamplingParams(max_tokens=4, ignore_eos=True))[0].outputs[0].token_ids))
    try:
        llm.generate(["Once"], SamplingParams(max_tokens=4, constraint=Constraint("json_object")))
    except InvalidRequest as error:
        print(error)
"""


def _modules(*folders: str) -> list[str]:
    files = (file for folder in folders for file in sorted((ROOT / folder).rglob("*.py")))
    names = (".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files)
    return [name.removesuffix(".__init__") for name in names if not name.endswith("sitecustomize")]


def _run_bare(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(ROOT / "benchmarks/gpu/bare_machine"), str(ROOT)))
    environment = {**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton has no release for this platform")
def test_engine_benchmarks_and_device_tests_import_nothing_that_the_machine_lacks() -> None:
    modules = _modules("engine", "benchmarks/gpu", "benchmarks/kernels", *DEVICE_TESTS)
    done = _run_bare(_IMPORT_ALL, *(name for name in modules if name not in WITH_LLGUIDANCE))
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_without_llguidance_a_model_answers_and_a_constraint_is_refused_by_name() -> None:
    done = _run_bare(_ASK_FOR_JSON, str(ROOT / "demo_models/raven"))
    assert done.stdout.splitlines() == [
        "4",
        "constraint: the Python package 'llguidance' is not installed here: pip install llguidance",
    ], done.stderr
