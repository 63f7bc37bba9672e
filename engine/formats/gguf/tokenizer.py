"""The tokenizer.json and tokenizer_config.json of a GGUF file: byte-level BPE of the kinds that are named here, and
SentencePiece models with scores.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

from engine.errors import CheckpointError
from engine.formats.gguf.file import GgufFile
from engine.formats.gguf.pre_tokenizers import SPLITTINGS, Splitting
from engine.json_files import quoted
from engine.models.config_reader import ConfigReader

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
_SPACE = "\u2581"
_NAMES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}


def write_tokenizer(file: GgufFile, folder: Path) -> dict[str, Any]:
    """Write tokenizer.json; returns the values of tokenizer_config.json. Raises CheckpointError."""
    settings = ConfigReader(file.settings, file.path.name)
    check_tokenizer(file)
    tokens = _texts(settings, "tokenizer.ggml.tokens")
    types = settings.get("tokenizer.ggml.token_type", list, [])
    special = _special_tokens(settings, tokens)
    if settings.require("tokenizer.ggml.model", str) == "gpt2":
        splitting = _splitting(settings, file)
        backend, adds_bos = _byte_level(settings, tokens, splitting), splitting.adds_bos
    else:
        tokens = [
            text.replace(" ", _SPACE) if kind == _USER_DEFINED else text
            for text, kind in zip(tokens, types, strict=False)
        ]
        backend, adds_bos = _sentence_pieces(settings, tokens, types, special.get("unk_token")), True
    backend.add_tokens(
        [
            AddedToken(text, special=kind in (_CONTROL, _UNKNOWN), normalized=False)
            for text, kind in zip(tokens, types, strict=False)
            if kind in (_CONTROL, _USER_DEFINED, _UNKNOWN)
        ]
    )
    bos = special.get("bos_token")
    if bos is not None and settings.get("tokenizer.ggml.add_bos_token", bool, adds_bos):
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, tokens.index(bos))]
        )
    backend.save(str(folder / "tokenizer.json"))
    template = settings.optional("tokenizer.chat_template", str)
    return special if template is None else {**special, "chat_template": template}


def check_tokenizer(file: GgufFile) -> None:
    """Raises CheckpointError for a kind of tokenizer that is not served."""
    settings = ConfigReader(file.settings, file.path.name)
    kind = settings.require("tokenizer.ggml.model", str)
    if kind == "gpt2":
        _splitting(settings, file)
    elif kind != "llama":
        raise CheckpointError(f"{file.path.name}: tokenizers of kind {kind!r} are not served in GGUF files")


def _splitting(settings: ConfigReader, file: GgufFile) -> Splitting:
    kind = settings.get("tokenizer.ggml.pre", str, "default")
    if kind not in SPLITTINGS:
        raise CheckpointError(
            f"{file.path.name}: GGUF tokenizers that split texts as {quoted(kind)} are not served: "
            f"{', '.join(SPLITTINGS)} are"
        )
    return SPLITTINGS[kind]


def _byte_level(settings: ConfigReader, tokens: Sequence[str], splitting: Splitting) -> Tokenizer:
    merges = [(left, right) for left, _, right in (t.partition(" ") for t in _texts(settings, "tokenizer.ggml.merges"))]
    vocabulary = {text: index for index, text in enumerate(tokens)}
    if any(not {*pair, "".join(pair)} <= vocabulary.keys() for pair in merges):
        raise CheckpointError("tokenizer.ggml.merges of a GGUF file are not merges of its tokens")
    backend = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=splitting.ignores_merges))
    if splitting.normalizer is not None:
        backend.normalizer = splitting.normalizer
    backend.pre_tokenizer = splitting.pre_tokenizer
    backend.decoder = decoders.ByteLevel()
    return backend


def _sentence_pieces(
    settings: ConfigReader, tokens: Sequence[str], types: Sequence[object], unknown: str | None
) -> Tokenizer:
    """The likeliest pieces are merged first; of equal ones that of the longest parts. Pieces that the user defined come
    before all others, whatever their score: typed ones are tokens of their own, but runs of blanks are typed as blanks
    and stored with another character."""
    scores = settings.require("tokenizer.ggml.scores", list)
    if len(scores) != len(tokens) or len(types) != len(tokens):
        raise CheckpointError("tokenizer.ggml: tokens, scores and token_type of a GGUF file differ in length")
    vocabulary = {text: index for index, text in enumerate(tokens)}
    merges: list[tuple[float, int, int, int, int, int]] = []
    for piece, (text, score, kind) in enumerate(zip(tokens, scores, types, strict=True)):
        if kind not in (_NORMAL, _USER_DEFINED) or len(text) > _MOST_CHARS:
            continue
        rank = -score if kind == _NORMAL else -math.inf
        for cut in range(1, len(text)):
            left, right = vocabulary.get(text[:cut]), vocabulary.get(text[cut:])
            if left is not None and right is not None:
                merges.append((rank, -cut, cut - len(text), piece, left, right))
    merges.sort()
    pairs = [(tokens[left], tokens[right]) for *_, left, right in merges]
    backend = Tokenizer(models.BPE(vocabulary, pairs, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    prepend = [normalizers.Prepend(_SPACE)] if settings.get("tokenizer.ggml.add_space_prefix", bool, True) else []
    backend.normalizer = normalizers.Sequence([*prepend, normalizers.Replace(" ", _SPACE)])
    strip = [decoders.Strip(" ", 1, 0)] if prepend else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return backend


_MOST_CHARS = 256  #: of a piece that is merged from others


def _texts(settings: ConfigReader, key: str) -> list[str]:
    values = settings.require(key, list)
    if not all(isinstance(value, str) for value in values):
        raise CheckpointError(f"{key} of a GGUF file must be texts")
    return values


def _special_tokens(settings: ConfigReader, tokens: Sequence[str]) -> dict[str, str]:
    """Their texts by the names of tokenizer_config.json."""
    found = {}
    for key, name in _NAMES.items():
        token_id = settings.optional(f"tokenizer.ggml.{key}_token_id", int)
        if token_id is None:
            continue
        if not 0 <= token_id < len(tokens):
            raise CheckpointError(
                f"tokenizer.ggml.{key}_token_id of a GGUF file is {token_id}, of {len(tokens)} tokens"
            )
        found[name] = tokens[token_id]
    return found
