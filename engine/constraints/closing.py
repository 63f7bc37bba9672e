"""Closes an answer in time: when the tokens that are left are just enough to complete it, only those that do may come.

While there is room for more, nothing is forbidden: a token is allowed if the shortest completion behind it fits into
what is left then. That is looked at only where it could fail: `growth` bounds by how many tokens one token can make the
shortest completion longer.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits
from numpy.typing import NDArray

from engine.constraints.byte_vocabulary import ByteVocabulary, Symbols
from engine.constraints.shortest import OUTSIDE, STATES_OF_A_REQUEST, STATES_OF_A_STEP, completes, next_place, shortest

_LEAST_GROWTH = 8  #: tokens for the rest of a character, of an escape, of a number
_MOST_SUBSCHEMAS = 64  #: whose shortest values are looked for
_FEW = 48  #: allowed tokens that are looked at one by one
_MOST_KNOWN = 4_096  #: completions that are kept
_MOST_SEARCHES = 24  #: in one mask; what is not looked at then is forbidden
#: Keywords with which a value may have to be long.
_LONG = frozenset({"required", "minItems", "minLength", "pattern", "format", "allOf", "$ref", "const", "enum"})
#: The end of a number: the part of it that its last digits belong to, and these.
_NUMBER = re.compile(rb"([eE][-+]?|\.|(?<![0-9.]))([0-9]*)$")
#: By the beginning of the part: as many as an integer of 64 bits and a number of double precision need.
_MOST_DIGITS = {b"e": 2, b".": 17, b"": 19}
_TAIL_BYTES = 24
_IS_JSON = "start: %json"  #: in a grammar of nothing but JSON
_SCHEMA = re.compile(r"%json\s*(?=\{)")


@dataclass(frozen=True, eq=False)
class Closing:
    """How answers under one constraint are closed."""

    words: ByteVocabulary
    start: LLMatcher  #: at the beginning of an answer; not to be advanced
    shortest: tuple[Symbols, ...]  #: the shortest answer, as tokens
    growth: int  #: by so many tokens at most a token makes the shortest completion longer
    #: Completions that were searched for, by the one before, what has been written since, and where that stands.
    known: dict[tuple[Symbols, Symbols, int], tuple[Symbols, ...]] = field(default_factory=dict)

    def completion(
        self, matcher: LLMatcher, before: Symbols, newest: Symbols, place: int, most_states: int = STATES_OF_A_STEP
    ) -> tuple[Symbols, ...] | None:
        """The shortest completion of this state. What followed the same text before is tried first: a search takes
        milliseconds."""
        key = before, newest, place
        way = self.known.get(key)
        if way is not None and completes(matcher, self.words, joined(way)):
            return way
        way = shortest(matcher, self.words, place, most_states)
        if way is not None:
            if len(self.known) == _MOST_KNOWN:
                self.known.clear()
            self.known[key] = way
        return way


def closing_of(grammar: str, words: ByteVocabulary, limits: LLParserLimits) -> Closing | None:
    """How answers of this grammar are closed; None: no short answer was found, so they cannot be."""
    start = LLMatcher(words.tokenizer, grammar, log_level=0, limits=limits)
    if start.is_error() or (least := shortest(start, words, OUTSIDE)) is None:
        return None
    growth = max(_LEAST_GROWTH, *_lengths(grammar, words, limits))
    if _IS_JSON not in grammar:  # calls of tools: a token may begin another call
        growth += len(least)
    return Closing(words, start, least, growth)


def _lengths(grammar: str, words: ByteVocabulary, limits: LLParserLimits) -> Iterator[int]:
    """Tokens of the shortest values of those parts of the grammar's JSON schemas that may have to be long."""
    yield 0
    seen: set[str] = set()
    for found in _SCHEMA.finditer(grammar):
        root, _ = json.JSONDecoder().raw_decode(grammar, found.end())
        shared = {key: root[key] for key in ("$defs", "definitions", "x-guidance") if key in root}
        is_used_again = '"#"' in grammar or _IS_JSON not in grammar
        for part in _parts(root if is_used_again else list(root.values())):
            spelled = json.dumps({**part, **shared})
            if spelled in seen or len(seen) == _MOST_SUBSCHEMAS:
                continue
            seen.add(spelled)
            compiled = LLMatcher.grammar_from_lark(f'%llguidance {{"no_forcing": true}}\nstart: %json {spelled}')
            matcher = LLMatcher(words.tokenizer, compiled, log_level=0, limits=limits)
            if not matcher.is_error() and (value := shortest(matcher, words, OUTSIDE)) is not None:
                yield len(value) + _LEAST_GROWTH


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """The schemas in a schema whose values may have to be long."""
    if isinstance(schema, Mapping):
        if not _LONG.isdisjoint(schema):
            yield schema
        for key, value in schema.items():
            if key not in ("const", "enum", "default", "examples"):
                yield from _parts(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _parts(value)


class Closer:
    """Closes one answer."""

    def __init__(self, closing: Closing) -> None:
        self._closing = closing
        self._words = closing.words
        self._matcher = closing.start.deep_copy()
        self._place = OUTSIDE
        self._tail = b""  # the newest bytes of the answer
        self._completion: tuple[Symbols, ...] = closing.shortest  # of the text before `_newest`
        self._newest: list[int] = []  # what has been written since
        self._num_safe = 0  # tokens that may come whatever they are

    def advance(self, token_id: int) -> None:
        """Take a token of the answer."""
        self.write(self._words.of_token(token_id))

    def write(self, symbols: Symbols) -> None:
        """Take what one token adds to the answer."""
        self._newest += symbols
        self._num_safe -= 1
        self._place, self._tail = self._behind(symbols)

    def _behind(self, symbols: Sequence[int]) -> tuple[int, bytes]:
        """Where the text stands behind these symbols, and its newest bytes."""
        return _place_behind(self._place, symbols), (self._tail + bytes(s for s in symbols if s < 256))[-_TAIL_BYTES:]

    def num_safe(self, num_left: int) -> int:
        """How many tokens may come whatever they are, so that the answer can be completed behind them; num_left: how
        many may come in all."""
        if self._num_safe <= 0:
            self._complete()
            spare = num_left - 1 - len(self._completion)
            self._num_safe = 0 if spare < self._closing.growth else spare // (self._closing.growth + 1) + 1
        return self._num_safe

    def close(self, row: NDArray[np.int32], num_left: int, keep: frozenset[int]) -> None:
        """Forbid in a mask [num_words] the tokens behind which the answer could not be completed any more. num_left:
        tokens that may still come, this one included. keep: tokens that end it."""
        if self.num_safe(num_left):
            self.bound_digits(row)
            return
        words = self._words
        bits = np.unpackbits(row.view(np.uint8), bitorder="little")
        is_allowed = bits[: len(words)].astype(bool)
        is_allowed[[token_id for token_id in keep if token_id < len(words)]] = False
        kinds = words.kinds if self._place == OUTSIDE else words.kinds_in_text
        if np.count_nonzero(is_allowed) <= _FEW:
            kinds = np.arange(len(words), dtype=np.int32)
        fits = np.zeros(len(kinds), bool)  # by kind
        fits[self._fitting(words.one_of_each(is_allowed, kinds), num_left - 1)] = True
        is_forbidden = is_allowed & ~fits[kinds]
        if is_forbidden.sum() < is_allowed.sum() or self._matcher.is_accepting():
            bits[: len(words)][is_forbidden] = 0
            row[:] = np.packbits(bits, bitorder="little").view(np.int32)

    def bound_digits(self, row: NDArray[np.int32], drafts: Sequence[int] = ()) -> None:
        """Forbid in a mask [num_words] digits of a number that has enough of them, unless it needs more. drafts: tokens
        that come before the mask's."""
        place, tail = self._place, self._tail
        if drafts:
            place, tail = self._behind([symbol for token_id in drafts for symbol in self._words.of_token(token_id)])
        if place != OUTSIDE or (number := _NUMBER.search(tail)) is None:
            return
        most = _MOST_DIGITS[number[1][:1].lower()] - len(number[2])
        bits = np.unpackbits(row.view(np.uint8), bitorder="little")
        bits[: len(self._words)][self._words.num_digits > max(0, most)] = 0
        if bits.any():
            row[:] = np.packbits(bits, bitorder="little").view(np.int32)

    def _complete(self) -> None:
        """Find how the answer is completed from here."""
        self._words.consume(self._matcher, self._newest)
        known, newest = joined(self._completion), tuple(self._newest)
        self._newest = []
        if self._matcher.is_accepting():
            self._completion = ()
            return
        ways = []
        if known[: len(newest)] == newest:
            ways.append(self._words.split(known[len(newest) :]))
        elif completes(self._matcher, self._words, known):
            ways.append(self._completion)
        most_states = STATES_OF_A_STEP if ways else STATES_OF_A_REQUEST
        found = self._closing.completion(self._matcher, known, newest, self._place, most_states)
        self._completion = min((way for way in (*ways, found) if way is not None), key=len, default=self._completion)

    def _fitting(self, tokens: Sequence[tuple[int, int]], most: int) -> list[int]:
        """The kinds among these (token, kind) behind which at most `most` tokens complete the answer."""
        words, known = self._words, joined(self._completion)
        fitting: list[int] = []
        unknown: list[tuple[int, Symbols, LLMatcher]] = []
        for token_id, kind in tokens:
            symbols, after = words.of_token(token_id), self._matcher.deep_copy()
            if not words.consume(after, symbols):
                continue
            if after.is_accepting() or (len(self._completion) <= most and completes(after, words, known)):
                fitting.append(kind)
            elif known[: len(symbols)] != symbols:
                unknown.append((kind, symbols, after))
            elif len(words.split(known[len(symbols) :])) <= most:
                fitting.append(kind)
        for kind, symbols, after in unknown[:_MOST_SEARCHES]:
            way = self._closing.completion(after, known, symbols, _place_behind(self._place, symbols))
            if way is not None and len(way) <= most:
                fitting.append(kind)
        return fitting


def joined(parts: tuple[Symbols, ...]) -> Symbols:
    """These tokens as one."""
    return tuple(symbol for part in parts for symbol in part)


def _place_behind(place: int, symbols: Sequence[int]) -> int:
    for symbol in symbols:
        place = next_place(place, symbol) if symbol < 256 else OUTSIDE
    return place
