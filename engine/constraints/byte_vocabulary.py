"""A vocabulary of bytes and special tokens, in which llguidance follows a grammar in microseconds a byte; and the
tokens of a model as bytes."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from engine.constraints.vocabulary import Vocabulary, tokenizer_of

_MOST_TOKEN_BYTES = 32  #: of a token that `split` uses

_PIECE_S = 0.001  #: longest time for which the interpreter is held
_CHECKED = 64  #: tokens between two looks at the clock

T = TypeVar("T")

#: What comes next in a text: bytes, and special tokens as 256 + their ids.
Symbols = tuple[int, ...]


class ByteVocabulary:
    """Bytes, and special tokens under the ids that they have in the model."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._pause: Callable[[], None] | None = None
        self._special = vocabulary.special_ids
        self._pieces = vocabulary.pieces
        self._end_id = vocabulary.end_id
        self._base = -(-(vocabulary.size + 1) // 32) * 32  # id of byte 0
        pieces = [b""] * self._base + [bytes([byte]) for byte in range(256)]
        for token_id in self._special:
            if token_id < vocabulary.size:
                pieces[token_id] = self._pieces[token_id]
        pieces[self._end_id] = b"</end>"
        self.tokenizer = tokenizer_of(pieces, self._special, self._end_id, self._encode, slices=())

    def read(self, pause: Callable[[], None]) -> None:
        """Find out all that is computed from all tokens, half a second for 262,144, in pieces of a millisecond, after
        each of which `pause` is called. What is not read here is computed when it is first needed."""
        self._pause = pause
        try:
            for name in ("_known", "_longest", "kinds_in_text", "kinds", "num_digits", "_longest_first"):
                getattr(self, name)
        finally:
            self._pause = None

    def _in_pieces(self, tokens: Iterable[T]) -> Iterator[T]:
        began = time.perf_counter()
        for place, token in enumerate(tokens):
            yield token
            if self._pause is not None and place % _CHECKED == 0 and time.perf_counter() - began > _PIECE_S:
                self._pause()
                began = time.perf_counter()

    @cached_property
    def _known(self) -> frozenset[bytes]:
        return frozenset(
            piece
            for token_id, piece in enumerate(self._in_pieces(self._pieces))
            if 0 < len(piece) <= _MOST_TOKEN_BYTES and token_id not in self._special
        )

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._in_pieces(self._known)), default=1)

    def __len__(self) -> int:
        """Tokens of the model."""
        return len(self._pieces)

    def _encode(self, text: str) -> list[int]:
        return [self._base + byte for byte in text.encode()]

    def of_token(self, token_id: int) -> Symbols:
        """A token of the model."""
        return (256 + token_id,) if token_id in self._special else tuple(self._pieces[token_id])

    def consume(self, matcher: LLMatcher, symbols: Sequence[int]) -> bool:
        """Advance a grammar of this vocabulary; whether it allows all of them."""
        ids = [self._base + symbol if symbol < 256 else symbol - 256 for symbol in symbols]
        return bool(matcher.try_consume_tokens(ids) == len(ids))

    def allowed(self, matcher: LLMatcher) -> tuple[int, Sequence[int]]:
        """What may come next: the bytes as bits, and the special tokens."""
        mask = matcher.compute_bitmask()
        cut = self._base // 8
        special: Sequence[int] = ()
        if mask[:cut].strip(b"\0"):
            ids = np.flatnonzero(np.unpackbits(np.frombuffer(mask[:cut], np.uint8), bitorder="little"))
            special = [256 + token_id for token_id in ids.tolist() if token_id != self._end_id]
        return int.from_bytes(mask[cut : cut + 32], "little"), special

    def split(self, symbols: Symbols) -> tuple[Symbols, ...]:
        """The fewest tokens of the model that write it, each as its symbols."""
        parts: list[Symbols] = []
        text = bytearray()
        for symbol in (*symbols, None):
            if symbol is not None and symbol < 256:
                text.append(symbol)
                continue
            parts += self._split_text(bytes(text))
            text.clear()
            if symbol is not None:
                parts.append((symbol,))
        return tuple(parts)

    def _split_text(self, text: bytes) -> list[Symbols]:
        num_bytes = len(text)
        fewest, lengths = [0] * (num_bytes + 1), [1] * num_bytes
        for start in range(num_bytes - 1, -1, -1):
            best = fewest[start + 1]
            for length in range(2, min(self._longest, num_bytes - start) + 1):
                if fewest[start + length] < best and text[start : start + length] in self._known:
                    best, lengths[start] = fewest[start + length], length
            fewest[start] = best + 1
        parts, start = [], 0
        while start < num_bytes:
            parts.append(tuple(text[start : start + lengths[start]]))
            start += lengths[start]
        return parts

    @cached_property
    def kinds_in_text(self) -> NDArray[np.int32]:
        """[V]: a number that those tokens have in common which do the same inside a string, as far as one can see: of
        its characters before a quote or a backslash only the last one matters, whether it is a letter, a digit or
        which else, and how many of its bytes are missing."""
        return self._kinds(_as_text)

    @cached_property
    def kinds(self) -> NDArray[np.int32]:
        """[V]: likewise outside a string, where only digits at the beginning do not matter, but how many they are."""
        return self._kinds(lambda piece: b"0" * (len(piece) - len(rest := piece.lstrip(b"0123456789"))) + rest)

    @cached_property
    def num_digits(self) -> NDArray[np.int32]:
        """[V]: digits at the beginning of each token."""
        digits = (len(piece) - len(piece.lstrip(b"0123456789")) for piece in self._in_pieces(self._pieces))
        return np.fromiter(digits, np.int32, len(self._pieces))

    def one_of_each(self, is_allowed: NDArray[np.bool_], kinds: NDArray[np.int32]) -> list[tuple[int, int]]:
        """The shortest allowed token of each kind, with its kind. is_allowed, kinds: [V]."""
        ids = self._longest_first[is_allowed[self._longest_first]]
        shortest = np.full(len(kinds), -1, np.int32)
        shortest[kinds[ids]] = ids
        found = np.flatnonzero(shortest >= 0)
        return list(zip(shortest[found].tolist(), found.tolist(), strict=True))

    @cached_property
    def _longest_first(self) -> NDArray[np.int32]:
        lengths = np.fromiter((-len(piece) for piece in self._in_pieces(self._pieces)), np.int32, len(self._pieces))
        return np.argsort(lengths, kind="stable").astype(np.int32)

    def _kinds(self, kind_of: Callable[[bytes], bytes]) -> NDArray[np.int32]:
        numbers: dict[bytes | int, int] = {}
        kinds = (
            numbers.setdefault(token_id if token_id in self._special else kind_of(piece), len(numbers))
            for token_id, piece in enumerate(self._in_pieces(self._pieces))
        )
        return np.fromiter(kinds, np.int32, len(self._pieces))


def _ascii_kind(newest: bytes) -> bytes:
    return b"text" + (b"a" if newest.islower() else b"A" if newest.isupper() else b"0" if newest.isdigit() else newest)


#: The kind of a text by its last character.
_ASCII_KINDS = tuple(_ascii_kind(bytes([byte])) for byte in range(0x80))


def _as_text(piece: bytes) -> bytes:
    end = len(piece)
    if b'"' in piece or b"\\" in piece:
        end = next(place for place, byte in enumerate(piece) if byte in b'"\\')
    if end == 0:
        return piece
    text = piece[:end]
    if text[-1] < 0x80:
        return _ASCII_KINDS[text[-1]] + piece[end:]
    begins = next((index for index in range(1, min(4, len(text)) + 1) if text[-index] & 0xC0 != 0x80), 0)
    first = text[-begins]
    num_bytes = 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    missing = num_bytes - begins if begins else 0
    return b"text" + b"\xff" * max(0, missing) + piece[end:]
