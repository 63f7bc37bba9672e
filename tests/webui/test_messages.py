"""The message files: every language has every text, with the same names in braces and nothing that markup escapes."""

import ast
import re
import string
import tomllib
from pathlib import Path
from typing import Any

import pytest

from webui import number_formats, texts
from webui.languages import DEFAULT, LANGUAGES, MARKS, MESSAGES, negotiated, speaking
from webui.message_files import flat, has_marks, texts_of, without_marks

WEBUI = Path(texts.__file__).parent
OTHERS = [language for language in LANGUAGES if language != DEFAULT]
SEPARATORS = {"SENTENCE_SEPARATOR", "NUMBERS.group"}
#: Texts that are the same in English and another language, apart from those without a word.
SAME_AS_ENGLISH = {
    "de": {"CSV", "LANGUAGE_BOARDS.hi", "POOL_PART"},
    "es": {"CSV", "LANGUAGE_BOARDS.hi"},
    "fr": {
        *("CSV", "LANGUAGE_BOARDS.hi", "QUESTION", "THREAD_LABEL", "STYLE_EFFECTS"),
        *("COLUMN_VOTES", "NUM_VOTES.one", "NUM_VOTES.other", "UNIT_VOTES.one", "UNIT_VOTES.other"),
        *("POINTS.one", "POINTS.other"),
    },
    "ja": {"CSV"},
    "zh": {"CSV"},
}


def all_texts(language: str) -> dict[str, str]:
    return {whole: text for name, value in texts_of(language).items() for whole, text in flat(name, value).items()}


def names_in(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def without_plurals(keys: list[str]) -> list[str]:
    return [key for key in keys if not key.endswith(".one")]


ENGLISH = all_texts(DEFAULT)


@pytest.mark.parametrize("language", OTHERS)
def test_a_language_has_every_text_in_the_same_order_and_no_other(language: str) -> None:
    assert without_plurals(list(all_texts(language))) == without_plurals(list(ENGLISH))
    extra = {key for key in all_texts(language) if key.endswith(".one")} - set(ENGLISH)
    assert extra == set()


@pytest.mark.parametrize("language", OTHERS)
def test_a_translation_has_the_names_of_the_english_text(language: str) -> None:
    found = all_texts(language)
    assert [key for key, text in found.items() if names_in(text) != names_in(ENGLISH[key])] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_texts_are_safe_in_markup_attributes_and_json(language: str) -> None:
    found = all_texts(language)
    unsafe = re.compile(r"[<>&\"'\\\x00-\x1f\ue000-\uf8ff]")
    assert {key: text for key, text in found.items() if unsafe.search(text)} == {}
    assert [key for key in found if re.fullmatch(r"[\w.-]+", key) is None] == []
    assert [key for key, text in found.items() if not text.strip() and key not in SEPARATORS] == []


@pytest.mark.parametrize("language", OTHERS)
def test_nothing_is_left_in_english(language: str) -> None:
    found = all_texts(language)
    left = {key for key, text in found.items() if text == ENGLISH[key] and re.search(r"[A-Za-z]{2}", no_names(text))}
    assert left == SAME_AS_ENGLISH[language]


def no_names(text: str) -> str:
    return re.sub(r"\{\w+\}", "", text)


@pytest.mark.parametrize("language", LANGUAGES)
def test_plural_forms_are_those_that_the_language_uses(language: str) -> None:
    has_singular = texts_of(language)["NUMBERS"]["singular"] != "-"
    forms = [value for value in texts_of(language).values() if isinstance(value, dict) and "other" in value]
    assert forms
    assert all(("one" in value) == has_singular for value in forms)


@pytest.mark.parametrize("language", LANGUAGES)
def test_there_is_a_month_for_each_month_and_three_words_for_each_reason(language: str) -> None:
    found = texts_of(language)
    assert len(found["MONTHS"]) == 12
    assert {len(words) for words in found["REASONS"].values()} == {3}
    assert {len(words) for words in found["UNRATED"].values()} == {2}


def test_a_name_that_is_declared_has_a_text_and_the_other_way_round() -> None:
    tree = ast.parse((WEBUI / "texts.py").read_text())
    declared = [
        node.target.id
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and node.value is None and isinstance(node.target, ast.Name)
    ]
    assert declared == list(texts_of(DEFAULT)), "in the same order, too"
    with pytest.raises(AttributeError, match="MISSPELT"):
        getattr(texts, "MISSPELT")  # noqa: B009 - mypy finds it in texts.MISSPELT


def test_texts_are_read_when_they_are_shown_and_not_when_a_module_is_imported() -> None:
    """A constant or a default argument made of a text would stay in the language of the moment of the import."""
    constants = {
        node.target.id
        for node in ast.parse((WEBUI / "texts.py").read_text()).body
        if isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name)
    }
    early = [
        f"{path.relative_to(WEBUI)}:{node.lineno} {node.attr}"
        for path in WEBUI.rglob("*.py")
        for node in read_at_import(ast.parse(path.read_text()))
        if node.attr not in constants
    ]
    assert early == []
    copied = [path for path in WEBUI.rglob("*.py") if "from webui.texts import" in path.read_text().replace("`", "")]
    assert [path.name for path in copied] == ["texts.py"], "only its own documentation says that it must not be"


def read_at_import(node: ast.AST) -> list[ast.Attribute]:
    """Every `texts.NAME` that is evaluated when the module is imported."""
    match node:
        case ast.Attribute(value=ast.Name(id="texts")):
            return [node]
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            parts: list[ast.AST] = [*node.args.defaults, *filter(None, node.args.kw_defaults), *node.decorator_list]
        case ast.Lambda():
            parts = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
        case ast.AnnAssign():
            parts = [node.value] if node.value is not None else []
        case _:
            parts = list(ast.iter_child_nodes(node))
    return [found for part in parts for found in read_at_import(part)]


@pytest.fixture
def six_languages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webui.languages.LANGUAGES", ("de", "en", "es", "fr", "ja", "zh"))


@pytest.mark.parametrize(
    ("chosen", "accepted", "language"),
    [
        (None, "fr-CA,fr;q=0.9,en;q=0.8", "fr"),
        (None, "en;q=0.5, de-AT;q=0.7, es;q=0.6", "de"),
        (None, "it, pt;q=0.9, es;q=0.1", "es"),
        (None, "zh-Hans-CN", "zh"),
        (None, "zh-CN,zh;q=0.9", "zh"),
        (None, "JA-jp", "ja"),
        (None, "fr;q=0, de;q=0.1", "de"),
        (None, "it, *;q=0.5", "en"),
        (None, "de;q=high, es;q=2, fr;q=0.1", "fr"),
        (None, "it", "en"),
        (None, "", "en"),
        (None, ";;,,q=1,=", "en"),
        ("ja", "fr", "ja"),
        ("xx", "fr", "fr"),
        ("../en", "", "en"),
        (MARKS, "", "en"),
    ],
)
def test_the_language_is_the_one_chosen_else_the_one_that_the_browser_likes_best(
    six_languages: None, chosen: str | None, accepted: str, language: str
) -> None:
    assert negotiated(chosen, accepted, DEFAULT) == language


def test_the_language_of_the_setting_is_for_those_whose_browser_asks_for_none_of_ours(six_languages: None) -> None:
    assert negotiated(None, "it", "es") == "es"
    assert negotiated(None, "it, de;q=0.3", "es") == "de"


def test_every_mark_of_a_page_becomes_its_text() -> None:
    with speaking(MARKS):
        page = f'<p title="{texts.VOTES["both_bad"]}">{texts.ABOUT[0]["paragraphs"][1]}</p>'.encode()
    assert has_marks(page)
    for language in LANGUAGES:
        served = without_marks(page, language)
        assert not has_marks(served)
        assert all_texts(language)["VOTES.both_bad"].encode() in served
    strange = "\ue000NO_SUCH.text\ue001".encode()
    assert without_marks(strange, DEFAULT) == strange, "a visitor wrote it"


def test_numbers_and_dates_are_written_as_in_the_language() -> None:
    def told(language: str) -> list[str]:
        with speaking(language):
            numbers = number_formats
            return [
                numbers.whole(1234),
                numbers.whole(1234567),
                numbers.decimal(-1234.5, 1),
                numbers.signed(0.25, 1),
                numbers.percent(0.5),
                numbers.rough_percent(0.0125),
                numbers.short_count(5_250_000),
                numbers.day("2026-11-03"),
                numbers.num_votes(1),
                numbers.num_votes(0),
            ]

    assert told("en") == (
        ["1,234", "1,234,567", "-1,234.5", "+0.2", "50%", "1.2%", "5.25 M", "3 Nov 2026", "1 vote", "0 votes"]
    )
    thin = "\u202f"
    assert told("de")[:6] == ["1.234", "1.234.567", "-1.234,5", "+0,2", f"50{thin}%", f"1,2{thin}%"]
    assert told("de")[6:] == ["5,25 M", "3. November 2026", "1 Stimme", "0 Stimmen"]
    assert told("fr")[:3] == [f"1{thin}234", f"1{thin}234{thin}567", f"-1{thin}234,5"]
    assert told("fr")[7:] == ["3 novembre 2026", "1 vote", "0 vote"]
    assert told("es")[:3] == ["1234", "1.234.567", "-1234,5"]
    assert told("es")[7:] == ["3 nov 2026", "1 voto", "0 votos"]
    assert told("zh")[7:] == ["2026年11月3日", "1 票", "0 票"]
    assert told("ja")[7:] == ["2026年11月3日", "1票", "0票"]


def test_files_are_plain_toml_of_texts() -> None:
    for path in sorted(MESSAGES.glob("*")):
        assert path.suffix == ".toml"
        assert re.fullmatch("[a-z]{2}", path.stem)
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        assert content["LANGUAGE_NAME"]
