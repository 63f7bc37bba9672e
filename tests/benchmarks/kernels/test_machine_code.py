"""The machine code of the kernels that served models launch, without a GPU: no spills, wide loads, pipelined loops, and
fences of kernels that are launched early.

The check runs in another process, because Triton's interpreter, which tests/engine/kernels/gpu uses, replaces the
compiler when a kernel is defined.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("triton")

from benchmarks.kernels.expectations import EXPECTATIONS
from benchmarks.kernels.machine_code import Outcome, to_compile
from benchmarks.kernels.report import RECORD, record_of
from benchmarks.kernels.served_models import SERVED

ROOT = Path(__file__).parents[3]


def run(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit status and JSON lines of a module without the interpreter."""
    environment = os.environ | {"TRITON_INTERPRET": "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout, done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def flawed() -> dict[tuple[str, int], dict[str, Any]]:
    _, lines = run("tests.benchmarks.kernels.flawed_kernels")
    return {(line["name"], line["architecture"]): line for line in lines}


@pytest.mark.parametrize("name", ["without a flaw", "pipelined product", "waits first"])
def test_code_without_a_flaw_passes(flawed: dict[tuple[str, int], Any], name: str) -> None:
    assert [line["violations"] for (other, _), line in flawed.items() if other == name] in ([[]], [[], []])


@pytest.mark.parametrize(
    ("name", "architecture", "words"),
    [
        ("unknown alignment", 90, "global loads of 16 bits"),
        ("too many registers", 90, "registers, at most 8 expected"),
        ("spills", 80, "bytes of stack"),
        ("too much shared memory", 89, "bytes of shared memory"),
        ("not pipelined", 80, "no asynchronous copies"),
        ("too few rows for wgmma", 90, "no warp group products"),
        ("does not wait", 90, "waits 0 times for the kernel before it"),
        ("does not wait", 90, "does not let the next kernel in"),
        ("waits too late", 90, "before the wait for the kernel before it"),
        ("waits twice", 90, "waits 2 times for the kernel before it"),
        ("waits for nothing", 90, "which it is not launched beside"),
        ("does not compile", 90, "Error"),
    ],
)
def test_each_flaw_is_found(flawed: dict[tuple[str, int], Any], name: str, architecture: int, words: str) -> None:
    assert words in " ".join(flawed[name, architecture]["violations"])


def test_an_instruction_count_is_read_from_the_machine_code(flawed: dict[tuple[str, int], Any]) -> None:
    on_80, on_90 = (flawed["pipelined product", architecture]["report"] for architecture in (80, 90))
    assert on_80["products"]["HMMA"] > 0
    assert "HGMMA" not in on_80["products"]
    assert on_90["products"]["HGMMA"] > 0
    assert on_80["copies"]["128"] > 0


def test_only_what_has_changed_since_it_was_recorded_is_compiled_and_one_of_each_kernel() -> None:
    launched: Any = [
        SimpleNamespace(kernel=kernel, digest=lambda digest=digest: digest)
        for kernel, digest in (("one", "a"), ("one", "b"), ("one", "c"), ("other", "d"))
    ]
    one, _, changed, other = launched
    outcomes = [Outcome("", digest, 90, None, ()) for digest in "abcd"]
    assert to_compile(launched, ()) == launched
    assert to_compile(launched, record_of(outcomes)[90]) == [one, other]
    outcomes[2] = replace(outcomes[2], violations=("spills",))
    assert to_compile(launched, record_of(outcomes)[90]) == [one, changed, other]


#: Together they launch every kernel.
FEW = (
    "Qwen3-0.6B",
    "Qwen3-0.6B with adapters",
    "Qwen3-0.6B in AWQ",
    "Qwen3-30B-A3B in FP8",
    "Kimi-Linear-48B",
    "Mamba-2.8B",
    "Mamba-2 2.7B",
)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("models", [FEW, pytest.param(tuple(SERVED), marks=pytest.mark.long)], ids=["few", "all"])
def test_all_that_served_models_launch_on_an_h100_becomes_the_code_that_is_expected(models: tuple[str, ...]) -> None:
    """What was checked before (`make kernel-record`) is not compiled again, but for one variant of each kernel."""
    compiled = checked("--architecture", "90", *(f"--model={name}" for name in models))
    launched = {line["name"].partition(" of ")[0].replace(".", ":") for line in compiled}
    assert launched == EXPECTATIONS.keys(), "every kernel is launched by a served model"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_attention_becomes_the_code_that_is_expected_where_there_is_least_shared_memory() -> None:
    models = ("--model", "Qwen3-0.6B", "--model", "Gemma-2-9B", "--model", "Qwen3-0.6B, pages in fp8")
    assert checked("--architecture", "89", "--kernel", "attend_pages", *models)


def checked(*arguments: str) -> list[dict[str, Any]]:
    _, lines = run("benchmarks.kernels.machine_code", "--record", str(RECORD), *arguments)
    wrong = [f"{line['name']}, sm_{line['architecture']}: {text}" for line in lines for text in line["violations"]]
    assert not wrong, "\n".join(wrong)
    return lines
