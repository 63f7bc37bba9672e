"""The tokens of a model as llguidance reads them: their bytes, and which of them control the model."""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from llguidance import LLTokenizer


#: What strings in JSON consist of: llguidance decides the whole set of such tokens at once. Of its own four sets this
#: one gives masks as soon, for two thirds of the time and half of the memory that all of them take.
_SLICES = (r'[^"\\\x00-\x1F\x7F]{1,30}',)


class Tokens(Protocol):
    """The part of a tokenizer that constraints use. Any thread may call it."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a text."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that the token adds to the text; empty for an id without text."""
        ...

    def is_special(self, token_id: int) -> bool:
        """Whether the token controls the model and is not shown."""
        ...


class Vocabulary:
    """A model's tokens. `end_id` stands for the end of a text and is no token: its bit in a mask says whether a text
    may end there. Masks here have num_words words, those of a step one fewer where end_id has a word of its own."""

    def __init__(self, tokens: Tokens, vocab_size: int, eos_token_ids: frozenset[int]) -> None:
        """vocab_size: number of logits."""
        self.size = vocab_size
        self.end_id = vocab_size
        self.num_words = -(-(vocab_size + 1) // 32)  #: of 32 bits
        self._end_bit = np.uint32(1 << self.end_id % 32).view(np.int32)  # in the last word
        self.encode: Callable[[str], list[int]] = tokens.encode
        self._tokens = tokens
        self._eos_token_ids = eos_token_ids
        self._lock = threading.Lock()
        self._read: _Read | None = None

    @property
    def tokenizer(self) -> "LLTokenizer":
        """All tokens, read by the first caller. For 262,144 tokens that takes over a second, and llguidance holds the
        interpreter all the time: servers do it while they load the model (GrammarCompiler.prepare)."""
        return self._of_all_tokens().tokenizer

    @property
    def special_ids(self) -> frozenset[int]:
        """Tokens that are no text. Read like `tokenizer`."""
        return self._of_all_tokens().special_ids

    @property
    def pieces(self) -> Sequence[bytes]:
        """The bytes of each token. Read like `tokenizer`."""
        return self._of_all_tokens().pieces

    def set_bits(self, row: NDArray[np.int32], token_ids: Sequence[int] | frozenset[int], *, to: bool) -> None:
        """Allow or forbid tokens in a mask [num_words]; ids outside the vocabulary are skipped."""
        for token_id in token_ids:
            if token_id < self.size:
                bit = np.uint32(1 << token_id % 32).view(np.int32)
                row[token_id // 32] = row[token_id // 32] | bit if to else row[token_id // 32] & ~bit

    def allow_ends(
        self, rows: NDArray[np.int32], indices: Sequence[int], stop_ids: Sequence[int] | frozenset[int]
    ) -> None:
        """In those of the grammars' masks [N, num_words], allow tokens that end a sequence where the text may end, or
        where the grammar itself names them."""
        may_end = rows[indices, -1] & self._end_bit != 0
        for token_id in stop_ids:
            if token_id < self.size:
                word, bit = divmod(token_id, 32)
                column = rows[indices, word]
                mask = np.uint32(1 << bit).view(np.int32)
                otherwise = column if token_id in self.special_ids else column & ~mask
                rows[indices, word] = np.where(may_end, column | mask, otherwise)

    def of_step(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Masks [N, num_words] as a step reads them: [N, ceil(V / 32)], without the bit of end_id."""
        rows[:, -1] &= ~self._end_bit
        return np.ascontiguousarray(rows[:, : -(-self.size // 32)])

    def _of_all_tokens(self) -> "_Read":
        with self._lock:
            if self._read is None:
                ids = range(self.size)
                special = frozenset(filter(self._tokens.is_special, ids)) | self._eos_token_ids
                pieces = [*map(self._tokens.token_bytes, ids)]
                tokenizer = tokenizer_of([*pieces, b"</end>"], special, self.end_id, self.encode)
                self._read = _Read(tokenizer, special, pieces)
            return self._read


class _Read(NamedTuple):
    """What is read of all tokens."""

    tokenizer: "LLTokenizer"
    special_ids: frozenset[int]
    pieces: Sequence[bytes]


def tokenizer_of(
    pieces: Sequence[bytes],
    special_ids: frozenset[int],
    end_id: int,
    encode: Callable[[str], list[int]],
    slices: Sequence[str] = _SLICES,
) -> "LLTokenizer":
    """A vocabulary for llguidance. pieces: the bytes of each token; end_id stands for the end of a text. slices:
    regular expressions: llguidance decides at once about all tokens that one of them matches."""
    from llguidance import LLTokenizer, TokenizerWrapper

    source = _Source(pieces, [*sorted(special_ids), end_id], end_id, encode)
    return LLTokenizer(TokenizerWrapper(source), n_vocab=len(pieces), slices=list(slices))


class _Source:
    """What TokenizerWrapper reads."""

    bos_token_id = None

    def __init__(
        self, pieces: Sequence[bytes], special: Sequence[int], end_id: int, encode: Callable[[str], list[int]]
    ) -> None:
        self.tokens = pieces
        self.special_token_ids = special
        self.eos_token_id = end_id
        self._encode = encode

    def __call__(self, text: str) -> list[int]:
        return self._encode(text)
