"""The machine code of shipped kernel configurations, without a GPU: no spills, wide loads, pipelined loops.

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

from benchmarks.kernels.report import RECORD, record_of
from engine.kernels.gpu.ahead_of_time import Outcome, to_compile
from engine.kernels.gpu.compilation import Compilation, Expectation

ROOT = Path(__file__).parents[3]


def outcomes(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit status and JSON lines of the command-line check."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "engine.kernels.gpu.ahead_of_time", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=environment | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, lines


@pytest.fixture(scope="module")
def flawed() -> dict[tuple[str, int], dict[str, Any]]:
    status, lines = outcomes("tests.engine.kernels.flawed_kernels")
    assert status == 1
    return {(line["name"], line["architecture"]): line for line in lines}


@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize("name", ["without a flaw", "pipelined product"])
def test_code_without_a_flaw_passes(flawed: dict[tuple[str, int], Any], name: str, architecture: int) -> None:
    assert flawed[name, architecture]["violations"] == []


@pytest.mark.parametrize(
    ("name", "architecture", "words"),
    [
        ("unknown alignment", 90, "global loads of 16 bits"),
        ("too many registers", 90, "registers, at most 8 expected"),
        ("spills", 80, "bytes of stack"),
        ("too much shared memory", 89, "bytes of shared memory"),
        ("not pipelined", 80, "no asynchronous copies"),
        ("too few rows for wgmma", 90, "no warp group products"),
        ("does not wait", 90, "does not wait for the kernel before it"),
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
    kernel, other = SimpleNamespace(cache_key="its source"), SimpleNamespace(cache_key="another")
    one = Compilation("one", kernel, {"x": "*bf16"}, {"TILE": 16}, frozenset({"x"}), num_warps=4, num_stages=3)
    changed = [
        replace(one, name=name, **{name: value})  # type: ignore[arg-type]
        for name, value in {
            "signature": {"x": "*fp32"},
            "constants": {"TILE": 32},
            "divisible_by_16": frozenset(),
            "num_warps": 8,
            "num_stages": 2,
            "has_fused_products": False,
            "expectation": Expectation(max_registers=64),
            "architectures": (89, 90),
        }.items()
    ]
    shipped = [one, *changed, replace(one, name="another kernel", kernel=other)]
    outcomes = [Outcome(each.name, 90, None, ()) for each in shipped]
    assert to_compile(shipped, ()) == list(range(len(shipped)))
    assert to_compile(shipped, record_of(shipped, outcomes)[90]) == [0, len(shipped) - 1]
    assert to_compile(shipped, record_of(shipped, outcomes[:4])[90]) == [0, *range(4, len(shipped))]
    outcomes[2] = replace(outcomes[2], violations=("spills",))
    assert to_compile(shipped, record_of(shipped, outcomes)[90]) == [0, 2, len(shipped) - 1]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("--architecture", "90"), id="everything on sm_90"),
        pytest.param(("--architecture", "89", "--name", "attend_pages"), id="attention on sm_89"),
    ],
)
def test_every_shipped_configuration_becomes_the_code_that_is_expected(arguments: tuple[str, ...]) -> None:
    """Those that were checked on that architecture (`make kernel-record`) are not compiled again, but for one of each
    kernel. sm_89 has the least shared memory."""
    status, lines = outcomes(*arguments, "--record", str(RECORD))
    assert lines
    wrong = [f"{line['name']}, sm_{line['architecture']}: {text}" for line in lines for text in line["violations"]]
    assert not wrong, "\n".join(wrong)
    assert status == 0
