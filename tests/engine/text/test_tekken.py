"""Mistral's tekken.json against merging by ranks as tiktoken defines it."""

import base64
import json
import random
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine.errors import CheckpointError
from engine.text.tekken import read_tekken
from engine.text.tokenizer import Tokenizer

PATTERN = r" ?[a-z]+| ?[^a-z ]+| +"
TEXTS = ["hello there the other", "thetheth  ere\n\n caf\u00e9 \U0001f600 12", "", " x"]
NUM_SPECIAL = 24


def vocabulary() -> list[bytes]:
    """All bytes, then random joins of earlier tokens."""
    rng = random.Random(4)
    tokens = [bytes([byte]) for byte in range(256)]
    letters = [bytes([byte]) for byte in b" ehlorty"]
    while len(tokens) < 330:
        joined = rng.choice(letters) + rng.choice(letters)
        if joined not in tokens and len(joined) < 7:
            letters.append(joined)
            tokens.append(joined)
    return tokens


def content(**changes: Any) -> dict[str, Any]:
    tokens = vocabulary()
    entries = [{"rank": i, "token_bytes": base64.b64encode(token).decode()} for i, token in enumerate(tokens)]
    config = {
        "pattern": PATTERN,
        "default_vocab_size": NUM_SPECIAL + len(tokens) - 5,  # the last ones are cut off
        "default_num_special_tokens": NUM_SPECIAL,
    }
    return {"config": config, "vocab": entries, **changes}


def write(folder: Path, values: Mapping[str, Any]) -> Path:
    (folder / "tekken.json").write_text(json.dumps(values))
    return folder / "tekken.json"


def merged(piece: bytes, ranks: Mapping[bytes, int]) -> list[int]:
    """The pair whose join has the lowest rank is joined first."""
    parts = [piece] if piece in ranks else [bytes([byte]) for byte in piece]
    while True:
        joins = [(ranks[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in ranks]
        if not joins:
            return [NUM_SPECIAL + ranks[part] for part in parts]
        _, i = min(joins)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def test_texts_become_the_tokens_of_tiktoken(tmp_path: Path) -> None:
    write(tmp_path, content())
    tokenizer = Tokenizer.from_folder(tmp_path)
    ranks = {token: rank for rank, token in enumerate(vocabulary()[:-5])}
    rng = random.Random(5)
    texts = [*TEXTS, *("".join(rng.choices("ehlorty  \n", k=60)) for _ in range(30))]
    for text in texts:
        expected = [token for piece in re.findall(PATTERN, text) for token in merged(piece.encode(), ranks)]
        assert tokenizer.encode(text) == expected
        assert tokenizer.decode(expected) == text
    assert tokenizer.encode("x", add_special_tokens=True)[0] == 1 == tokenizer.bos_token_id
    assert tokenizer.eos_token_ids == {2}


def test_special_tokens_are_those_of_the_file_or_of_older_versions(tmp_path: Path) -> None:
    older = read_tekken(write(tmp_path, content()))
    assert older.token_to_id("[INST]") == 3
    assert older.token_to_id("<SPECIAL_23>") == 23
    named = [{"rank": 0, "token_str": "<unk>", "is_control": True}, {"rank": 5, "token_str": "[THINK]"}]
    newer = read_tekken(write(tmp_path, content(special_tokens=named)))
    assert newer.token_to_id("[THINK]") == 5
    assert newer.token_to_id("[INST]") is None


@pytest.mark.parametrize(
    "changes",
    [
        {"config": {}},
        {"vocab": []},
        {"vocab": [{"rank": 0, "token_bytes": "?"}] * 400},
        {"config": {"pattern": "x", "default_vocab_size": 3, "default_num_special_tokens": NUM_SPECIAL}},
        {"special_tokens": [{"rank": "x"}]},
    ],
)
def test_a_file_that_contradicts_itself_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"tekken\.json"):
        read_tekken(write(tmp_path, content(**changes)))
