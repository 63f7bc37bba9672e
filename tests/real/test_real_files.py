"""A part of `make real`, on what the cache has: small vocabularies with their templates, and llama.cpp's test texts."""

from pathlib import Path

import pytest

from tests.real import packages
from tests.real.checks import gguf_vocabulary, ids_of_tokenizer, rendering, streams_of_tokenizer

#: Whose files are read in a moment.
_QUICK = ("deepseek_v3", "llama2")
_FOLDERS = {name: folder for name, folder in packages.model_folders().items() if name in _QUICK}
_VOCABULARIES = [file for file in packages.vocabularies() if file.stat().st_size < 3 * 2**20]
_TEMPLATES = {
    name: source for name, source in sorted(packages.templates().items())[::5] if name not in ("tencent-Hy3",)
}


@pytest.mark.parametrize("name", _FOLDERS)
def test_a_published_tokenizer_gives_the_ids_of_tokenizers_and_streams_whole_characters(name: str) -> None:
    for outcome in (
        ids_of_tokenizer(name, _FOLDERS[name]),
        rendering(name, _FOLDERS[name]),
        streams_of_tokenizer(name, _FOLDERS[name], 200),
    ):
        assert outcome.is_good, outcome


def test_published_templates_render_as_in_transformers() -> None:
    outcomes = [
        rendering(name, _FOLDERS["llama2"], source) for name, source in _TEMPLATES.items() if "llama2" in _FOLDERS
    ]
    assert [outcome for outcome in outcomes if not outcome.is_good] == []


@pytest.mark.parametrize("file", _VOCABULARIES, ids=lambda file: file.stem)
def test_a_gguf_vocabulary_gives_the_ids_that_llama_cpp_expects(file: Path, tmp_path: Path) -> None:
    outcome = gguf_vocabulary(file, tmp_path)
    assert outcome.is_good, outcome
