"""What `agon doctor` says about the C++ operators."""

from pathlib import Path

import pytest

from cli.doctor import Verdict, _check_operators
from engine.kernels.cpu.build import best_instruction_set, build


def test_built_operators_are_named_with_their_instruction_set() -> None:
    path = build(best_instruction_set())
    (finding,) = _check_operators()
    assert finding.verdict is Verdict.OK
    assert finding.text == f"C++, {best_instruction_set()}: {path}"


def test_operators_that_are_not_built_yet_will_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGON_CACHE_DIR", str(tmp_path))
    (finding,) = _check_operators()
    assert finding.verdict is Verdict.OK
    assert "at the first start" in finding.text


def test_without_a_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    (finding,) = _check_operators()
    assert finding.verdict is Verdict.HINT
    assert "apt install g++" in finding.text
