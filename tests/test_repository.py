"""What must hold for all files of the repository."""

import ast
import re
import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("wire", "ratings", "service_kit", "engine", "controller", "model_worker", "webui", "cli")
#: texts in other languages, and tokenizer tests that need them
NOT_ASCII = (
    "webui/",
    "tests/webui/",
    "tests/engine/",
    "demo_models/",
    "docs/",
    "controller/votes/categories.py",  # words of many languages
    "controller/votes/languages.py",
    "tests/controller/votes/test_categories.py",
)
MAX_TOTAL_BYTES = 48 * 2**20


def tracked(*patterns: str) -> list[Path]:
    try:
        answer = subprocess.run(
            ["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no git checkout")
    return [path for name in answer.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def texts(*patterns: str) -> dict[str, str]:
    found = {}
    for path in tracked(*patterns):
        try:
            found[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture or weights
    return found


def test_no_file_names_a_place_on_a_developers_machine() -> None:
    place = re.compile(r"(?<![\w.])/(?:home|root|Users|work|farm)/\w|(?<![\w.])/tmp/[A-Za-z]")
    found = {name: hit.group() for name, text in texts().items() if (hit := place.search(text))}
    assert found == {}


def test_nothing_unpickles_or_runs_what_it_has_read() -> None:
    """Weights come from safetensors; configuration is parsed; a template runs in a sandbox."""
    forbidden = re.compile(
        r"^\s*(?:import|from) (?:pickle|dill|shelve|marshal)\b|torch\.load\(|trust_remote_code=True"
        r"|(?<![.\w])(?:eval|exec)\(|shell=True|yaml\.load\(",
        re.MULTILINE,
    )
    sources = texts(*(f"{package}/*.py" for package in PACKAGES))
    assert sources
    assert {name: hit.group() for name, text in sources.items() if (hit := forbidden.search(text))} == {}


def test_source_is_ascii() -> None:
    sources = texts("*.py", "*.toml", "*.yml", "Makefile", "docker/*")
    named = [name for name, text in sources.items() if not text.isascii() and not name.startswith(NOT_ASCII)]
    assert named == []


def test_tests_are_no_packages() -> None:
    assert [path.name for path in tracked("tests/*__init__.py")] == []


def test_every_package_is_typed_and_shipped() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["tool"]["mypy"]["packages"]) == {*PACKAGES, "tests"}
    assert set(project["tool"]["importlinter"]["root_packages"]) == set(PACKAGES)
    shipped = {name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert shipped == {*PACKAGES, "demo_models"}
    assert [package for package in PACKAGES if not (ROOT / package / "py.typed").is_file()] == []


def test_every_todo_has_an_issue() -> None:
    marker = re.compile(r"\b(?:TODO|FIXME|XXX)\b(?!\(#\d+\))")
    sources = {name: text for name, text in texts("*.py").items() if name != "tests/test_repository.py"}
    assert [name for name, text in sources.items() if marker.search(text)] == []


def test_the_repository_stays_small() -> None:
    assert sum(path.stat().st_size for path in tracked()) < MAX_TOTAL_BYTES


def product() -> dict[str, ast.Module]:
    return {name: ast.parse(text) for name, text in texts(*(f"{package}/*.py" for package in PACKAGES)).items()}


def test_every_public_name_has_a_docstring() -> None:
    """Counted as in `.ci/structure.py`: functions, classes and their methods without a leading underscore."""
    public = runpy.run_path(str(ROOT / ".ci" / "structure.py"))["public_in"]
    bare = [
        f"{file}:{node.lineno} {node.name}"
        for file, tree in product().items()
        for node in public(tree)
        if ast.get_docstring(node) is None
    ]
    assert bare == []


def test_sentences_name_the_thing_and_not_a_person() -> None:
    sources = texts(*(f"{package}/*" for package in PACKAGES), "docs/*.md", "*.md")
    riddles = re.compile(r"(?i:\b(?:somebody|nobody|whoever|whom)\b)|(?:\"\"\"|#:?|//) ?Of ")
    assert {name: hit.group() for name, text in sources.items() if (hit := riddles.search(text))} == {}
