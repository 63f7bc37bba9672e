"""The examples run, and stay short."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.arena import UpProcess

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NEED_AN_ARENA = {"battle_by_http", "openai_client"}


def run(example: Path, *arguments: str) -> str:
    command = [sys.executable, str(example), *arguments]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_says_how_to_run_it(example: Path) -> None:
    text = example.read_text()
    assert len(text.splitlines()) < 40
    assert f"`python examples/{example.name}" in text


@pytest.mark.parametrize("example", [path for path in EXAMPLES if path.stem not in NEED_AN_ARENA], ids=lambda p: p.stem)
def test_an_example_of_a_library_runs(example: Path) -> None:
    assert run(example).strip()


@pytest.mark.parametrize("example", [path for path in EXAMPLES if path.stem in NEED_AN_ARENA], ids=lambda p: p.stem)
def test_an_example_of_a_client_runs(example: Path, demo_arena: UpProcess) -> None:
    assert run(example, demo_arena.controller_url).strip()
