"""benchmarks/gpu/first_minutes.sh on a CPU, in its smallest form and without what a GPU machine lacks; and with planted
failures, each of which has to end as the script says. `make gpu-dry` runs this file."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from benchmarks.gpu.smoke import compare

ROOT = Path(__file__).parents[3]
SCRIPT = Path("benchmarks") / "gpu" / "first_minutes.sh"
LIMIT_S = "1700"  #: all limits grow with it, because a machine that runs many tests is slow
STAGES = ("facts", "probes", "smoke", "tests", "qwen", "transformers", "kernels", "tune")
ON_CPU = pytest.mark.skipif(torch.cuda.is_available(), reason="the smallest form is for machines without a device")
pytestmark = pytest.mark.timeout(900)  # a minute on a quiet machine


def run(
    folder: Path, *arguments: str, root: Path = ROOT, seconds: str = LIMIT_S, start: str = ""
) -> subprocess.CompletedProcess[str]:
    """Results are in folder/results. start: what Python runs first in every process."""
    (folder / "start").mkdir(parents=True)
    bare = (root / "benchmarks" / "gpu" / "bare_machine" / "sitecustomize.py").read_text()
    (folder / "start" / "sitecustomize.py").write_text(bare + textwrap.dedent(start))
    # A sanitizer that finds nothing: it only runs the command.
    sanitizer = folder / "start" / "compute-sanitizer"
    sanitizer.write_text('#!/bin/bash\nwhile [[ $1 == --* ]]; do shift 2; done\n"$@"\n')
    sanitizer.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in ("OUT", "TRITON_INTERPRET")}
    environment |= {
        "PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join((str(folder / "start"), str(root))),
        "PATH": os.pathsep.join((str(folder / "start"), os.environ["PATH"])),
        # Plugins of this environment import what is missing.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "-p xdist -p pytest_timeout",
    }
    return subprocess.run(
        [root / SCRIPT, folder / "results", seconds, "--device", "cpu", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def lines_of(folder: Path, key: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (folder / "results" / "lines.jsonl").read_text().splitlines())
    return [line for line in lines if key in line]


def statuses(folder: Path) -> dict[str, int]:
    return {line["stage"]: line["status"] for line in lines_of(folder, "stage")}


def planted(folder: Path, changes: dict[str, tuple[str, str]]) -> Path:
    """A copy of the tree, with a text of some files replaced."""
    root = folder / "tree"
    ignored = shutil.ignore_patterns("__pycache__", "results", "models", ".environments")
    for name in ("benchmarks", "cli", "engine", "tests/engine"):
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    for name in ("pyproject.toml", "tests/conftest.py", "tests/lost_context.py"):
        shutil.copy(ROOT / name, root / name)
    for name, (before, after) in changes.items():
        text = (root / name).read_text()
        assert before in text, name
        (root / name).write_text(text.replace(before, after))
    return root


@ON_CPU
@pytest.mark.slow
def test_all_questions_are_asked_in_eight_files_without_what_a_gpu_machine_lacks(tmp_path: Path) -> None:
    done = run(tmp_path)
    print(*(f"{line['stage']}: {line['seconds']} s" for line in lines_of(tmp_path, "stage")), sep="\n")
    assert done.returncode == 0, done.stdout
    assert statuses(tmp_path) == dict.fromkeys(STAGES, 0)
    assert len(list((tmp_path / "results").iterdir())) <= 8
    answers = [line for line in lines_of(tmp_path, "probe") if "has_begun" not in line]
    assert len(answers) == 11
    assert [line for line in answers if not line.get("is_right", True)] == []
    assert lines_of(tmp_path, "smoke")[-1] == {"smoke": "verdict", "way": "graphs", "is_right": True}
    document = json.loads((tmp_path / "results" / "gpu.json").read_text())
    systems = {"agon", "transformers", "transformers, one at a time", "transformers, batches of 3"}
    assert {row["system"] for row in document["rows"]} == systems
    assert [row for row in document["rows"] if "failed" in row] == []
    report = (tmp_path / "results" / "report.md").read_text()
    decode = next(row for row in document["rows"] if row.get("batch") == 3)
    assert f"| tiny | 3 | {decode['tokens_per_s']:,.0f} | {decode['bound']:,.0f} |" in report
    assert "| split sums | right |" in report
    assert "2 tests, 0 failed, 0 skipped." in report
    assert "## Tiles, interpreter" in report
    assert all(row["us"] > 0 for row in json.loads((tmp_path / "results" / "kernels.json").read_text())["rows"])


@ON_CPU
@pytest.mark.slow
def test_where_attention_is_wrong_the_script_ends_early_with_what_the_sanitizer_says(tmp_path: Path) -> None:
    store = "accumulator.to(output_ptr.dtype.element_ty)"
    wrong = {"engine/kernels/gpu/attend_pages.py": (store, f"(3 + {store})")}
    done = run(tmp_path, "--only", "smoke,tests,qwen", root=planted(tmp_path, wrong))
    assert done.returncode == 3, done.stdout
    assert statuses(tmp_path) == {"smoke": 3, "sanitizer": 0}
    assert lines_of(tmp_path, "smoke")[-1]["way"] is None
    assert "2 requests were answered" in (tmp_path / "results" / "log.txt").read_text()


@ON_CPU
@pytest.mark.long
def test_where_an_activation_is_wrong_torch_computes_it_from_then_on_and_its_test_is_named(tmp_path: Path) -> None:
    wrong = {"engine/kernels/gpu/activation.py": ("x * tl.sigmoid(inner)", "1.5 * x * tl.sigmoid(inner)")}
    done = run(tmp_path, "--only", "smoke,tests,qwen", root=planted(tmp_path, wrong))
    assert done.returncode == 1, done.stdout
    assert statuses(tmp_path) == {"smoke": 1, "tests": 1, "qwen": 0}
    assert lines_of(tmp_path, "smoke")[-1] == {"smoke": "verdict", "way": "torch", "is_right": False}
    assert "--enforce-eager --operators torch" in done.stdout
    assert "test_activation::test_activations_are" in (tmp_path / "results" / "report.md").read_text()


@ON_CPU
@pytest.mark.long
def test_what_ends_a_process_costs_one_probe_and_one_row(tmp_path: Path) -> None:
    begins, ends = '"""One prompt until', 'import os\n        os.abort()\n        """One prompt until'
    split = "def _split_sums(self) -> Found:"
    wrong = {
        "benchmarks/gpu/ours.py": (begins, ends),
        "benchmarks/gpu/probe.py": (split, f"{split}\n        import os\n        os.abort()"),
    }
    done = run(tmp_path, "--only", "probes,qwen", root=planted(tmp_path, wrong))
    assert done.returncode == 1, done.stdout
    assert [line["status"] for line in lines_of(tmp_path, "stage")] == [134, 0, 1]
    answers = {line["probe"] for line in lines_of(tmp_path, "probe") if "has_begun" not in line}
    assert len(answers) == 10
    assert "split sums" not in answers
    rows = json.loads((tmp_path / "results" / "gpu.json").read_text())["rows"]
    assert [row["failed"] for row in rows if row["work"] == "prefill"] == 2 * ["its process ended with status -6"]
    assert [row["work"] for row in rows if "failed" not in row][:4] == ["decode", "decode", "load", "uniform"]
    assert "| split sums | ended its process |" in (tmp_path / "results" / "report.md").read_text()


@ON_CPU
@pytest.mark.slow
def test_an_import_that_takes_too_long_costs_its_stage_and_no_other(tmp_path: Path) -> None:
    start = """
        import time
        if "facts" in sys.orig_argv:
            time.sleep(600)
    """
    done = run(tmp_path, "--only", "facts,tune", seconds="90", start=start)
    assert done.returncode == 1, done.stdout
    assert statuses(tmp_path) == {"facts": 124, "tune": 0}


@pytest.mark.parametrize(
    "arguments", [[], ["results", "soon"], ["results", "--device", "tpu"], ["results", "--nonsense"]]
)
def test_a_wrong_command_line_runs_nothing(tmp_path: Path, arguments: list[str]) -> None:
    done = subprocess.run([str(ROOT / SCRIPT), *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "first_minutes.sh OUT" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_every_file_of_kernel_tests_has_one_for_the_first_minutes() -> None:
    files = (ROOT / "tests" / "engine" / "kernels" / "gpu").glob("test_*.py")
    without = {path.stem for path in files if "@pytest.mark.first_minutes" not in path.read_text()}
    # Of choices and of operators around kernels that have tests of their own.
    assert without <= {"test_dependent_launch", "test_operators", "test_products", "test_quantised_products"}


def test_logits_are_compared_up_to_the_first_other_token() -> None:
    truth = [[(1, {1: -1.0, 2: -1.01}), (2, {2: -2.0})]]
    assert compare(truth, truth, 512)["is_right"]
    tie = [[(2, {1: -1.01, 2: -1.0}), (3, {3: 5.0})]]
    assert compare(tie, truth, 512) == {
        "is_right": True,
        "positions": 1,
        "error": 0.00191,
        "ties": 1,
        "wrong_tokens": 0,
    }
    assert not compare([[(3, {1: -1.0, 3: -1.0}), (3, {3: 5.0})]], truth, 512)["is_right"]
    assert not compare([[(1, {1: -1.2, 2: -1.2}), (2, {2: -2.0})]], truth, 512)["is_right"]
    assert not compare([[(1, {1: float("nan")}), (2, {2: -2.0})]], truth, 512)["is_right"]
    assert not compare([[(1, {1: -1.0, 2: -1.01})]], truth, 512)["is_right"], "an answer that ended early"


def test_a_test_that_loses_the_context_ends_its_process_and_the_others_run_in_another(tmp_path: Path) -> None:
    (tmp_path / "test_three.py").write_text(
        textwrap.dedent("""
            import torch

            def test_first(): pass

            def test_lost():
                def synchronize(): raise RuntimeError("an illegal memory access was encountered")
                torch.cuda.is_initialized, torch.cuda.synchronize = (lambda: True), synchronize
                assert False, "wrong numbers"

            def test_last(): assert not torch.cuda.is_initialized()
        """)
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "xdist",
        "-n",
        "1",
        "-p",
        "tests.lost_context",
        "-p",
        "no:cacheprovider",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "test_lost has lost the context of the device" in done.stderr
