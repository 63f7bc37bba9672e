"""From words that an answer must not contain to the token sequences that spell them (SamplingParams.bad_words_ids)."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from engine.sampling_params import SamplingParams


def with_bad_words(params: SamplingParams, encode: Callable[[str], list[int]]) -> SamplingParams:
    """The parameters with the ids of their bad words instead of the words."""
    if not params.bad_words:
        return params
    return replace(params, bad_words=(), bad_words_ids=(*params.bad_words_ids, *bad_word_ids(params.bad_words, encode)))


def bad_word_ids(words: Iterable[str], encode: Callable[[str], list[int]]) -> tuple[tuple[int, ...], ...]:
    """Each word as it is encoded at the beginning of a text and after a space, without special tokens.

    Other spellings of the same letters, as parts of longer tokens, are not found: vLLM has the same limit.
    """
    spellings = (tuple(encode(text)) for word in words for text in (word.lstrip(), " " + word.lstrip()))
    return tuple(dict.fromkeys(spelling for spelling in spellings if spelling))
