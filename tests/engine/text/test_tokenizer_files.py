"""Which files of a model folder make its tokenizer."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import CheckpointError
from engine.text.tokenizer import Tokenizer
from tests.engine.text.test_tokenizer import byte_level, user


def write_folder(folder: Path, **settings: Any) -> Path:
    byte_level().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def test_a_folder_gives_template_names_and_end_tokens(tmp_path: Path) -> None:
    write_folder(tmp_path, eos_token={"content": "<|end|>"}, bos_token="<|user|>", chat_template="{{ bos_token }}old")
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}new")
    (tmp_path / "config.json").write_text('{"eos_token_id": 77}')
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.eos_token_ids == {0, 5, 6}
    assert tokenizer.bos_token_id == 1
    assert tokenizer.decode(tokenizer.render_chat(user("x")), skip_special_tokens=False) == "<|user|>new"
    assert tokenizer.vocab_size == byte_level().get_vocab_size()


def test_of_several_named_templates_the_default_counts(tmp_path: Path) -> None:
    templates = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    tokenizer = Tokenizer.from_folder(write_folder(tmp_path, chat_template=templates))
    assert tokenizer.decode(tokenizer.render_chat(user("x"))) == "plain"


def test_names_that_stand_only_in_the_map_of_special_tokens_count(tmp_path: Path) -> None:
    write_folder(tmp_path, bos_token="<|user|>")
    names = {"bos_token": "<|assistant|>", "eos_token": {"content": "<|end|>"}}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(names))
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids) == (1, frozenset({0}))


def test_a_wrapper_may_name_the_end_inside_its_text_model(tmp_path: Path) -> None:
    write_folder(tmp_path)
    (tmp_path / "config.json").write_text('{"text_config": {"eos_token_id": [7]}}')
    assert Tokenizer.from_folder(tmp_path).eos_token_ids == {7}


def test_an_older_file_of_the_template_counts_where_there_is_no_other(tmp_path: Path) -> None:
    write_folder(tmp_path)
    (tmp_path / "chat_template.json").write_text('{"chat_template": "old"}')
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.decode(tokenizer.render_chat(user("x"))) == "old"


def test_a_vocabulary_with_merges_is_converted(tmp_path: Path) -> None:
    backend = byte_level()
    backend.model.save(str(tmp_path))  # vocab.json and merges.txt
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    tokenizer = Tokenizer.from_folder(tmp_path)
    text = "hello world, caf\u00e9"
    assert tokenizer.encode(text) == Tokenizer(backend).encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_an_older_tokenizer_that_is_damaged_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"\x00\x01")
    with pytest.raises(CheckpointError, match=r"its tokenizer\.model cannot be converted") as refused:
        Tokenizer.from_folder(tmp_path)
    assert "\n" not in str(refused.value)


def test_a_folder_without_tokenizer_says_so(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no tokenizer\.json"):
        Tokenizer.from_folder(tmp_path)


def test_a_damaged_tokenizer_says_so(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError, match="not a readable tokenizer"):
        Tokenizer.from_folder(tmp_path)
