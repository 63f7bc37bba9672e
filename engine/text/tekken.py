"""Mistral's own tokenizer file, tekken.json, as a tokenizer of the tokenizers library: byte-level BPE whose merges
follow from the ranks of its tokens, as in tiktoken. Special tokens come first, then the vocabulary by rank.

The file has no chat template; Mistral's checkpoints bring one beside it.
"""

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, processors

from engine.errors import CheckpointError
from engine.json_files import read_object
from engine.text.token_bytes import byte_alphabet

_MAX_BYTES = 64 * 2**20  #: that of Mistral Small 3 has 19 MB
_MAX_TOKENS = 2**20
_BOS = "<s>"
#: The special tokens of files that list none (before version 7), in the order of their ids.
_SPECIAL_TOKENS = tuple(
    [
        "<unk>",
        "<s>",
        "</s>",
        "[INST]",
        "[/INST]",
        "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]",
        "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]",
        "[TOOL_CALLS]",
        "[IMG]",
        "<pad>",
        "[IMG_BREAK]",
        "[IMG_END]",
        "[PREFIX]",
        "[MIDDLE]",
        "[SUFFIX]",
        "[SYSTEM_PROMPT]",
        "[/SYSTEM_PROMPT]",
        "[TOOL_CONTENT]",
    ]
)
#: Texts of the special tokens by the names that chat templates use.
TEKKEN_NAMES: Mapping[str, str] = {"bos_token": _BOS, "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def read_tekken(file: Path) -> tokenizers.Tokenizer:
    """The tokenizer in the file. Raises CheckpointError for one that is incomplete or contradicts itself."""
    content = read_object(file, max_bytes=_MAX_BYTES)
    try:
        settings, entries = content["config"], content["vocab"]
        num_special, size = int(settings["default_num_special_tokens"]), int(settings["default_vocab_size"])
        if not len(_SPECIAL_TOKENS) <= num_special < size <= _MAX_TOKENS:
            raise CheckpointError(f"{file}: {num_special} special tokens of {size} cannot be")
        ranked = [base64.b64decode(entry["token_bytes"], validate=True) for entry in entries[: size - num_special]]
        if [int(entry["rank"]) for entry in entries[: len(ranked)]] != list(range(size - num_special)):
            raise CheckpointError(f"{file}: the ranks of its tokens are not 0 to {size - num_special - 1}")
        special = _special_texts(content.get("special_tokens"), num_special)
        return _backend(ranked, special, str(settings["pattern"]))
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise CheckpointError(f"{file} is no readable tokenizer: {error!r}") from error


def _special_texts(entries: list[Mapping[str, Any]] | None, count: int) -> list[str]:
    """By id; ids that the file does not name get fillers."""
    named = dict(enumerate(_SPECIAL_TOKENS))
    if entries is not None:
        named = {int(entry["rank"]): str(entry["token_str"]) for entry in entries}
    return [named.get(i, f"<SPECIAL_{i}>") for i in range(count)]


def _backend(ranked: list[bytes], special: list[str], pattern: str) -> tokenizers.Tokenizer:
    letters = {byte: letter for letter, byte in byte_alphabet().items()}
    rank_of = {token: rank for rank, token in enumerate(ranked)}

    def name(token: bytes) -> str:
        return "".join(map(letters.__getitem__, token))

    merges = []
    for token in ranked:
        cuts = [(token[:i], token[i:]) for i in range(1, len(token))]
        known = [(rank_of[a], rank_of[b], a, b) for a, b in cuts if a in rank_of and b in rank_of]
        merges += [(name(a), name(b)) for _, _, a, b in sorted(known)]
    vocabulary = {text: i for i, text in enumerate(special)}
    vocabulary |= {name(token): len(special) + rank for rank, token in enumerate(ranked)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=True))
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_of])
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    if _BOS in special:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{_BOS} $A", pair=f"{_BOS} $A $B", special_tokens=[(_BOS, special.index(_BOS))]
        )
    return backend
