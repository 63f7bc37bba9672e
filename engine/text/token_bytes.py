"""How the name that a tokenizer.json gives a token becomes the bytes that the token adds to a text.

Two families cover the served models: byte-level BPE (GPT-2), whose alphabet has one printable character per byte, and
SentencePiece, which writes a space as U+2581 and rare bytes as <0xNN>.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from engine.errors import CheckpointError


def byte_decoder(decoder: Mapping[str, Any] | None) -> tuple[Callable[[str], bytes], bool]:
    """The function from a token's name to its bytes, and whether a text loses its first space. decoder: that of
    tokenizer.json. Raises CheckpointError for one of another family."""
    steps = [decoder] if decoder and decoder["type"] != "Sequence" else (decoder or {}).get("decoders", [])
    kinds = [step["type"] for step in steps]
    if "ByteLevel" in kinds:
        return _from_byte_level, False
    if kinds and set(kinds) <= {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}:
        strips = any(
            step["type"] == "Strip" or (step["type"] == "Metaspace" and step.get("prepend_scheme") != "never")
            for step in steps
        )
        return _from_sentence_piece, strips
    raise CheckpointError(f"tokenizer.json has a decoder of an unknown kind: {kinds or None}")


@lru_cache(maxsize=1)
def byte_alphabet() -> Mapping[str, int]:
    """Byte-level BPE's character for each byte: itself where printable in Latin-1, else the next one from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _from_byte_level(token: str) -> bytes:
    alphabet = byte_alphabet()
    try:
        return bytes([alphabet[character] for character in token])
    except KeyError:  # an added token, written as it is
        return token.encode("utf-8")


def _from_sentence_piece(token: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    return token.replace("\u2581", " ").encode("utf-8")
