"""The files of a model folder that say how texts become tokens: the tokenizer itself, names of its special tokens, ids
that end a sequence, and the chat template. All of them come from downloaded checkpoints, so each is checked.

A folder without tokenizer.json has an older format. Mistral's tekken.json is read here; vocab.json with merges.txt and
SentencePiece models are converted by transformers, where that is installed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers

from engine.errors import CheckpointError
from engine.json_files import quoted, read_object
from engine.text.chat_template import MAX_SOURCE_CHARS
from engine.text.tekken import TEKKEN_NAMES, read_tekken

_TOKENIZER, _TEKKEN = "tokenizer.json", "tekken.json"
#: Files of older tokenizers that transformers converts.
_CONVERTIBLE = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "merges.txt")
_MAX_TOKENIZER_BYTES = 128 * 2**20  #: that of Gemma 3 has 33 MB
_MAX_TOKEN_ID = 2**31
_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


def read_backend(folder: Path) -> tokenizers.Tokenizer:
    """The tokenizer of a folder. Raises CheckpointError where there is none, or none that can be read."""
    file = folder / _TOKENIZER
    if file.is_file():
        return _read_tokenizer_json(file)
    if (folder / _TEKKEN).is_file():
        return read_tekken(folder / _TEKKEN)
    found = next((name for name in _CONVERTIBLE if (folder / name).is_file()), None)
    if found is None:
        raise CheckpointError(f"{folder} has no {_TOKENIZER}, and no older tokenizer that can be converted")
    return _converted(folder, found)


def read_special_tokens(folder: Path) -> dict[str, str]:
    """The texts of the special tokens by name (bos_token, ...): tokenizer_config.json decides, then
    special_tokens_map.json. Raises CheckpointError for values that are no texts."""
    found = {} if (folder / _TOKENIZER).is_file() or not (folder / _TEKKEN).is_file() else dict(TEKKEN_NAMES)
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        found |= _special_tokens(name, _read_json(folder / name))
    return found


def read_eos_token_ids(folder: Path) -> frozenset[int]:
    """The ids that end a sequence: generation_config.json decides, then config.json, then the text model inside it.
    Raises CheckpointError for values that are no ids."""
    config = _read_json(folder / "config.json")
    text_config = config.get("text_config")
    for name, values in (
        ("generation_config.json", _read_json(folder / "generation_config.json")),
        ("config.json", config),
        ("config.json: text_config", text_config if isinstance(text_config, dict) else {}),
    ):
        value = values.get("eos_token_id")
        if value is not None:
            ids = value if isinstance(value, list) else [value]
            if not all(type(entry) is int and 0 <= entry < _MAX_TOKEN_ID for entry in ids):
                raise CheckpointError(f"{name}: eos_token_id must be a token id or a list of them, got {quoted(value)}")
            return frozenset(ids)
    return frozenset()


def read_chat_template(folder: Path) -> str | None:
    """chat_template.jinja, else chat_template.json, else the entry in tokenizer_config.json: a text, or a list of named
    texts. None: the folder has none. Raises CheckpointError for one that is no text."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        try:
            with file.open(encoding="utf-8") as stream:
                return stream.read(MAX_SOURCE_CHARS + 1)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{file} is no readable text: {error}") from error
    for name in ("chat_template.json", "tokenizer_config.json"):
        source = _read_json(folder / name).get("chat_template")
        if isinstance(source, list) and all(isinstance(entry, dict) and "template" in entry for entry in source):
            source = next((entry["template"] for entry in source if entry.get("name") == "default"), None)
        if source is not None and not isinstance(source, str):
            raise CheckpointError(f"{name}: chat_template must be a text, got {quoted(source)}")
        if source is not None:
            return source
    return None


def _read_tokenizer_json(file: Path) -> tokenizers.Tokenizer:
    try:
        if (size := file.stat().st_size) > _MAX_TOKENIZER_BYTES:
            raise CheckpointError(f"{file} has {size} bytes, more than {_MAX_TOKENIZER_BYTES}")
        return tokenizers.Tokenizer.from_file(str(file))
    except (CheckpointError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # plain Exception, and a panic of its Rust code, which is no Exception
        raise CheckpointError(f"{file} is not a readable tokenizer: {error}") from error


def _converted(folder: Path, file: str) -> tokenizers.Tokenizer:
    """By transformers, without running code of the checkpoint."""
    reason = f"{folder} has no {_TOKENIZER}, and its {file} cannot be converted"
    try:
        from transformers import AutoTokenizer  # takes seconds to import, and only older checkpoints need it
    except ImportError as error:
        raise CheckpointError(f"{reason} without transformers: pip install transformers") from error
    try:
        converted = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        backend = converted.backend_tokenizer
    except Exception as error:  # whatever a damaged file makes it raise
        raise CheckpointError(f"{reason}: {str(error).splitlines()[0] if str(error) else error!r}") from error
    assert isinstance(backend, tokenizers.Tokenizer)
    return backend


def _special_tokens(file: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """Each is a string, or an object with a `content`."""
    found = {}
    for name in _SPECIAL_NAMES:
        value = settings.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            found[name] = text
        elif value is not None:
            raise CheckpointError(f"{file}: {name} must be a text, got {quoted(value)}")
    return found


def _read_json(file: Path) -> Mapping[str, Any]:
    return read_object(file) if file.is_file() else {}
