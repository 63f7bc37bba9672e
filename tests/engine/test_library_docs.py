"""The examples of docs/library.md run, in their order."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_examples_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "library.md").read_text(), re.DOTALL)
    assert len(blocks) == 6
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/library.md", "exec"), names)
    said = capsys.readouterr().out
    assert "[5, 6, 7]" in said
    assert "\n64\n" in said
