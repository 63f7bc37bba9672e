"""Texts of the pages: complete, used, and escaped where an operator writes them; and how bad settings are told."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from webui import sentences, texts
from webui.__main__ import main
from webui.config import Settings
from webui.pages import about
from wire.battles import Outcome
from wire.errors import ErrorCode

SOURCES = Path(__file__).parents[2] / "webui"


def test_every_outcome_has_its_words() -> None:
    outcomes = set(get_args(Outcome))
    assert set(texts.VOTES) == set(texts.VOTED) == set(texts.THEIR_VOTE) == outcomes


def test_an_unknown_failure_still_gets_a_sentence() -> None:
    assert sentences.failure("something_new") == texts.FAILURE_OTHER
    assert sentences.failure(None) == texts.FAILURE_OTHER
    assert all(sentences.failure(code).endswith(".") for code in ErrorCode)


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


@pytest.mark.parametrize("module", ["texts", "sentences", "number_formats", "ranking/words"])
def test_every_text_is_used(module: str) -> None:
    own = ast.parse((SOURCES / f"{module}.py").read_text())
    defined = {
        node.target.id for node in own.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    defined |= {node.name for node in own.body if isinstance(node, ast.FunctionDef)}
    used = {node.id for node in ast.walk(own) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    for path in SOURCES.rglob("*.py"):
        used |= set(_read_from(module, ast.parse(path.read_text())))
    assert sorted(defined - used) == []


def _read_from(module: str, tree: ast.Module) -> Iterator[str]:
    """NAME of every `texts.NAME` in the tree, and of every `from webui.texts import NAME`, for the module `texts`."""
    dotted = f"webui.{module.replace('/', '.')}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == dotted.rpartition(".")[2]:
                yield node.attr
        elif isinstance(node, ast.ImportFrom) and node.module == dotted:
            yield from (alias.name for alias in node.names)
