"""Turns token ids back into text, one step at a time: a stream of tokens gives the same text as decoding them together.

Works on bytes: each token stands for a fixed byte string, so text is emitted as soon as a character is complete and
never before. NUL becomes U+FFFD: servers refuse texts with it, and an answer is sent back with the next question.
Knows nothing of requests or stop strings. One instance belongs to one sequence and one thread.
"""

import codecs
from collections.abc import Container, Iterable, Sequence
from typing import Protocol

#: Tokens at the end of a prompt that are read to complete its last character, which has at most four bytes.
_PROMPT_TAIL = 8


class TokenBytes(Protocol):
    """The part of a tokenizer that the detokenizer uses."""

    @property
    def strips_first_space(self) -> bool:
        """Whether the text of a sequence drops the one space that the tokenizer put before its first word."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that the token adds to the text; empty for an id without text."""
        ...

    def is_special(self, token_id: int) -> bool:
        """Whether the token is a special one, such as the end of a turn."""
        ...


class IncrementalDetokenizer:
    """Turns a growing sequence of token ids into text pieces whose concatenation is the text of the whole sequence.

    With prompt_ids the text continues the prompt: a leading space is kept, and a character of which the prompt has only
    the first bytes is completed.
    """

    def __init__(
        self,
        tokenizer: TokenBytes,
        skip_special_tokens: bool = True,
        prompt_ids: Sequence[int] = (),
        shown_ids: Container[int] = (),
    ) -> None:
        """shown_ids: special tokens that are not skipped."""
        self._tokenizer = tokenizer
        self._shown_ids = shown_ids
        self._skip_special_tokens = skip_special_tokens
        self._unfinished = b""  # the first bytes of a character
        self._strip_next_space = tokenizer.strips_first_space and not prompt_ids
        self.push(prompt_ids[-_PROMPT_TAIL:])

    def push(self, token_ids: Iterable[int]) -> str:
        """Text that these tokens complete; bytes of an unfinished character wait for the next call."""
        tokenizer = self._tokenizer
        pieces = [
            tokenizer.token_bytes(token_id)
            for token_id in token_ids
            if not self._skip_special_tokens or not tokenizer.is_special(token_id) or token_id in self._shown_ids
        ]
        return self._decode(b"".join(pieces), is_final=False)

    def flush(self) -> str:
        """Text that is left at the end of the sequence: U+FFFD for bytes that are no whole character."""
        return self._decode(b"", is_final=True)

    def _decode(self, piece: bytes, *, is_final: bool) -> str:
        waiting = self._unfinished + piece
        text, num_decoded = codecs.utf_8_decode(waiting, "replace", is_final)
        self._unfinished = waiting[num_decoded:]
        text = text.replace("\0", "\ufffd")
        if self._strip_next_space and text:
            self._strip_next_space = False
            return text.removeprefix(" ")
        return text
