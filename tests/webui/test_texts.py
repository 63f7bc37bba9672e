import ast
from pathlib import Path
from typing import get_args

import pytest

from webui import texts
from webui.__main__ import main
from webui.config import Settings
from webui.pages import about
from wire.battles import Outcome
from wire.errors import ErrorCode

SOURCES = Path(__file__).parents[2] / "webui"


def test_every_outcome_has_its_words() -> None:
    outcomes = set(get_args(Outcome))
    assert set(texts.VOTES) == set(texts.VOTED) == set(texts.VOTE_KEY_NAMES) == outcomes


def test_an_unknown_failure_still_gets_a_sentence() -> None:
    assert texts.failure("something_new") == texts.FAILURE_OTHER
    assert texts.failure(None) == texts.FAILURE_OTHER
    assert all(texts.failure(code).endswith(".") for code in ErrorCode)


def test_the_operators_terms_stand_under_about_as_text(tmp_path: Path) -> None:
    path = tmp_path / "terms.txt"
    path.write_text("Be kind.\n\nNo <b>secrets</b>.\n")
    page = about.render(Settings(webui_terms_file=path).terms())
    assert texts.TERMS_TITLE in page
    assert "<p>Be kind.</p><p>No &lt;b&gt;secrets&lt;/b&gt;.</p>" in page
    assert texts.TERMS_TITLE not in about.render(Settings().terms())


def test_a_setting_that_cannot_be_used_is_named_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGON_WEBUI_TERMS_FILE", "/no/such/file")
    monkeypatch.setenv("AGON_WEBUI_MAX_EVENTS", "0")
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2
    assert [line.split(":")[1].strip() for line in capsys.readouterr().err.splitlines()] == [
        "AGON_WEBUI_MAX_EVENTS",
        "AGON_WEBUI_TERMS_FILE",
    ]


def test_every_text_is_used() -> None:
    tree = ast.parse((SOURCES / "texts.py").read_text())
    names = {
        node.target.id for node in tree.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    } | {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    sources = "".join(path.read_text() for path in SOURCES.rglob("*.py"))
    unused = sorted(name for name in names if f"texts.{name}" not in sources and sources.count(name) < 2)
    assert unused == []
