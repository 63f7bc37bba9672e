"""The shortest text that completes what has been written under a grammar, in the fewest tokens.

A search over the bytes that a grammar allows, the shortest text first. It leaves out what JSON does not need: a string
or a container that may end ends, and no blank is written. Of states that allow the same bytes at the same depth only
the first few are followed. So it is fast, finds completions that the grammar allows and no others, and finds the
shortest one wherever the values of an answer do not depend on one another.
"""

import heapq
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import NamedTuple

from llguidance import LLMatcher

from engine.constraints.byte_vocabulary import ByteVocabulary, Symbols

#: States that one search looks at: before a request is accepted, and for the mask of a step.
STATES_OF_A_REQUEST, STATES_OF_A_STEP = 5_000, 500
_MOST_BYTES = 1 << 14  #: of a completion
_NUM_FOUND = 3  #: completions, of which the one of the fewest tokens is taken
_MORE_BYTES = 3  #: than the shortest of them, at most
_NUM_ALIKE = 2  #: states that allow the same bytes
_MANY = 64  #: more allowed bytes than these are free text
_SOME = 12  #: up to so many allowed bytes in a string are tried all

OUTSIDE, INSIDE, ESCAPED = range(3)  #: where a byte stands: not in a string of JSON, in one, behind its backslash


def _bits(characters: Iterable[int]) -> int:
    return sum(1 << character for character in characters)


_QUOTE, _BACKSLASH, _COLON, _COMMA = 0x22, 0x5C, 0x3A, 0x2C
_BLANKS, _SPACE, _NEWLINE, _CLOSING = map(_bits, (b" \t\n\r", b" ", b"\n", b"}]"))
_DIGITS = _bits(string.digits.encode())
_CLASSES = (_DIGITS, _bits(string.ascii_lowercase.encode()), _bits(string.ascii_uppercase.encode()))
_CONTINUING = _bits(range(0x80, 0xC0))  # bytes of a character behind its first one
_PRINTED = _bits(string.printable.encode()) & ~_BLANKS
_SEPARATORS = _bits(b"@.:/-_ ")  #: that formats need
_TAGS = _bits(b"\n</|`\"')")  #: with which ends of free text begin that is no JSON

#: Where a state is in a container: the index of the value in an array; in an object the name of the property, or of the
#: one before, with a comma.
_Marker = int | Symbols


class _State(NamedTuple):
    matcher: LLMatcher
    symbols: Symbols = ()
    place: int = OUTSIDE
    inside: tuple[_Marker, ...] = (0,)  #: a marker for each open container that was not open at the beginning, and one
    run: int = 0  #: bytes of content of a string or number since the last other byte
    text: Symbols = ()  #: the last string that has ended


def next_place(place: int, byte: int) -> int:
    """Where the byte after this one stands."""
    if place == ESCAPED:
        return INSIDE
    if byte == _QUOTE:
        return OUTSIDE if place == INSIDE else INSIDE
    return ESCAPED if place == INSIDE and byte == _BACKSLASH else place


def shortest(
    start: LLMatcher, words: ByteVocabulary, place: int, most_states: int = STATES_OF_A_REQUEST
) -> tuple[Symbols, ...] | None:
    """The tokens that complete the text at this state of a grammar of bytes, which stays as it is. place: where the
    text stands. None: nothing completes it, or the search has become too long."""
    found = _search(start, words, place, most_states, _some_of_text)
    return found if found is not None else _search(start, words, place, most_states, _all_of_text)


def _search(
    start: LLMatcher, words: ByteVocabulary, place: int, most_states: int, of_text: Callable[[int], int]
) -> tuple[Symbols, ...] | None:
    """of_text: chooses from the many bytes that a string may go on with where it must not end."""
    order = count()
    heap: list[tuple[int, int, _State]] = [(0, 0, _State(start.deep_copy(), place=place))]
    num_alike: Counter[tuple[object, ...]] = Counter()
    num_ended: Counter[tuple[_Marker, ...]] = Counter()  # values, by where they are
    best: tuple[Symbols, ...] | None = None
    num_found, most_bytes = 0, _MOST_BYTES
    for _ in range(most_states):
        if not heap or heap[0][0] > most_bytes or num_found == _NUM_FOUND:
            break
        _, _, state = heapq.heappop(heap)
        if state.matcher.is_accepting():
            num_found, most_bytes = num_found + 1, min(most_bytes, len(state.symbols) + _MORE_BYTES)
            spaced = _spaced(state.symbols, place)
            for text in (state.symbols, spaced):
                parts = words.split(text)
                if (best is None or len(parts) < len(best)) and (text is not spaced or completes(start, words, text)):
                    best = parts
            continue
        if state.run and num_ended[state.inside] >= _NUM_ALIKE:
            continue
        allowed, special = words.allowed(state.matcher)
        symbols = [*_needed(allowed, state.place, of_text), *special]
        if len(symbols) > 1 or state.symbols[-1:] == (_COMMA,):
            where: list[object] = [state.run]
            if _is_free(allowed):  # its tags begin with a line break or "<"
                where = [symbol in (0x0A, 0x3C) and symbol for symbol in state.symbols[-2:]]
            key = (allowed, state.place, state.inside, *where, *special)
            num_alike[key] += 1
            if num_alike[key] > _NUM_ALIKE:
                continue
        for symbol in symbols:
            matcher = state.matcher if symbol == symbols[-1] else state.matcher.deep_copy()
            if words.consume(matcher, (symbol,)):
                after = _after(state, matcher, symbol)
                num_ended[state.inside] += state.place == OUTSIDE and symbol in tuple(b",]}")
                heapq.heappush(heap, (len(after.symbols), next(order), after))
    return best


def completes(start: LLMatcher, words: ByteVocabulary, symbols: Symbols) -> bool:
    """Whether the text at this state is whole with these symbols."""
    matcher = start.deep_copy()
    return words.consume(matcher, symbols) and bool(matcher.is_accepting())


def _needed(allowed: int, place: int, of_text: Callable[[int], int]) -> Sequence[int]:
    """Those of the allowed bytes that a short completion may go on with."""
    if not allowed & (allowed - 1):
        return _listed(allowed)
    if _is_free(allowed):
        return [*_listed(allowed & _TAGS)[::-1], *_listed(_some_of(allowed & ~_TAGS, 1))]
    if place == INSIDE:
        if allowed >> _QUOTE & 1:
            return (_QUOTE,)
        if not allowed & ~_CONTINUING:
            return _listed(allowed & -allowed)  # the rest of a character: any will do
        if (size := allowed.bit_count()) > _MANY:
            return _listed(of_text(allowed) or allowed & -allowed)
        return _listed(allowed if size <= _SOME else _some_of(allowed, 2))
    if place == OUTSIDE:
        for ending in (_CLOSING, 1 << _COMMA):
            if allowed & ending:
                return _listed(allowed & ending)
        if allowed & _SPACE:  # blanks may stand anywhere here, and none must
            allowed = allowed & ~_BLANKS or allowed
    return _listed(allowed)


def _some_of_text(allowed: int) -> int:
    return _some_of(allowed, 1) | allowed & _SEPARATORS


def _all_of_text(allowed: int) -> int:
    return allowed & _PRINTED


def _some_of(allowed: int, most: int) -> int:
    """So many letters of each case and digits, and all other ASCII characters if there are few."""
    some = _bits([byte for each in _CLASSES for byte in _listed(allowed & each)[:most]])
    others = allowed & ((1 << 128) - 1) & ~sum(_CLASSES)
    return some | others if others.bit_count() <= _SOME else some or others & -others


def _is_free(allowed: int) -> bool:
    """Whether this is text that is no string of JSON."""
    return allowed.bit_count() > _MANY and bool(allowed & _NEWLINE)


def _listed(bits: int) -> list[int]:
    """The largest first: of numbers with as few digits as may be, those that begin with 9 are in more ranges."""
    listed = []
    while bits:
        listed.append(bits.bit_length() - 1)
        bits ^= 1 << listed[-1]
    return listed


def _after(state: _State, matcher: LLMatcher, symbol: int) -> _State:
    symbols = (*state.symbols, symbol)
    if symbol >= 256:
        return state._replace(matcher=matcher, symbols=symbols, place=OUTSIDE, run=0)
    place, inside, text = next_place(state.place, symbol), state.inside, state.text
    if OUTSIDE == place == state.place:
        if symbol in b"{[":
            inside = (*inside, () if symbol == 0x7B else 0)
        elif symbol in b"}]":
            inside = inside[:-1] if len(inside) > 1 else (-len(symbols),)
        elif symbol == _COMMA:
            inside = (*inside[:-1], inside[-1] + 1 if isinstance(inside[-1], int) else (*inside[-1], _COMMA))
        elif symbol == _COLON and not isinstance(inside[-1], int):
            inside = (*inside[:-1], text)
    elif place == OUTSIDE:
        text = symbols[-1 - state.run : -1]
    is_content = place != OUTSIDE != state.place or (place == state.place and chr(symbol).isalnum())
    return _State(matcher, symbols, place, inside, state.run + 1 if is_content else 0, text)


def _spaced(symbols: Symbols, place: int) -> Symbols:
    """The same JSON with a space behind its commas and colons: a token may begin with one."""
    written: list[int] = []
    for symbol in symbols:
        written.append(symbol)
        if symbol < 256:
            if place == OUTSIDE and symbol in b",:":
                written.append(0x20)
            place = next_place(place, symbol)
    return tuple(written)
