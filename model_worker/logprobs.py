"""Log probabilities of the engine in wire types: each token with its text, or its bytes where these are no whole
characters."""

from collections.abc import Callable, Iterable, Sequence

import engine.request
from wire.answers import TokenLogprob, TopLogprob

FLOOR = -9999.0  #: JSON has no infinity: the log probability of a token that was forbidden

TokenBytes = Callable[[int], bytes]


def token_logprobs(entries: Iterable[engine.request.TokenLogprob], token_bytes: TokenBytes) -> tuple[TokenLogprob, ...]:
    """The entries in wire types."""
    return tuple(_entry(entry, token_bytes) for entry in entries)


def prompt_logprobs(
    entries: Sequence[engine.request.TokenLogprob | None], token_bytes: TokenBytes
) -> tuple[TokenLogprob | None, ...]:
    """Those of a prompt, whose first token has none."""
    return tuple(None if entry is None else _entry(entry, token_bytes) for entry in entries)


def named_token(token_id: int, logprob: float, token_bytes: TokenBytes) -> TopLogprob:
    """A token with its text."""
    return TopLogprob(token_id, max(logprob, FLOOR), *_text(token_bytes(token_id)))


def _entry(entry: engine.request.TokenLogprob, token_bytes: TokenBytes) -> TokenLogprob:
    text, raw = _text(token_bytes(entry.token_id))
    top = tuple(named_token(token_id, logprob, token_bytes) for token_id, logprob in entry.top)
    return TokenLogprob(entry.token_id, max(entry.logprob, FLOOR), text, raw, top)


def _text(piece: bytes) -> tuple[str, str]:
    """Text and, where the bytes are no whole characters, their hexadecimal digits."""
    try:
        return piece.decode(), ""
    except UnicodeDecodeError:
        return piece.decode(errors="replace"), piece.hex()
