"""What one answer is made of while it comes: pieces of its samples, then its end. Both services and the OpenAI routes
pass these values on; GenerateDelta and GenerateFinished (wire/workers.py) are their form between processes.

Plain slotted classes: one is made for every token.
"""

from dataclasses import dataclass

from wire.chat import FinishReason, Usage

_CHARS_PER_TOKEN = 64  #: the longest tokens of blanks or dashes have more, but no answer consists of them
_SPARE_CHARS = 16_384


def most_chars(max_tokens: int) -> int:
    """How many characters an answer of so many tokens may have; one with more is not what was asked for."""
    return _CHARS_PER_TOKEN * max_tokens + _SPARE_CHARS


@dataclass(frozen=True, slots=True)
class TopLogprob:
    """One of the likeliest tokens at a position. `raw`: its bytes in hexadecimal, where they are no whole characters;
    then `text` has U+FFFD in their place."""

    token_id: int
    logprob: float
    text: str
    raw: str = ""

    @property
    def as_bytes(self) -> bytes:
        """The bytes of the token."""
        return bytes.fromhex(self.raw) if self.raw else self.text.encode()


@dataclass(frozen=True, slots=True)
class TokenLogprob(TopLogprob):
    """Log probability (natural logarithm, at least -9999) of one token and of the likeliest ones at its position."""

    top: tuple[TopLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of one tool call. `id` and `name` come in its first piece; the pieces of `arguments` joined are JSON."""

    index: int  #: which call of the sample, from 0
    id: str | None
    name: str | None
    arguments: str


@dataclass(frozen=True, slots=True)
class PromptEcho:
    """The prompt as the model gets it: its text, its tokens, and the first of them, which has no log probability."""

    text: str
    token_ids: tuple[int, ...]
    first_token: TopLogprob


@dataclass(slots=True)  # one is made for every token: frozen, that would take five times as long
class Delta:
    """What one sample gains: thoughts, then text, then tool calls; each may be empty. `queue_s`, in the first delta
    that a worker's engine gives, are the seconds until the request was scheduled."""

    text: str
    token_ids: tuple[int, ...]
    thoughts: str = ""
    queue_s: float | None = None
    index: int = 0  #: which sample of the request
    logprobs: tuple[TokenLogprob, ...] | None = None  #: one per token id, where the request asked for them
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None  #: in the first delta of sample 0; first entry None
    prompt: PromptEcho | None = None  #: in a delta of its own before all others, where the request asked for it
    tool_calls: tuple[ToolCallDelta, ...] = ()
    finish_reason: FinishReason | None = None  #: in the last delta of each sample, where the request has several
    #: Tokens of the prompt, and those of them that the prefix cache had: in the first delta, where the engine knows.
    prompt_counts: tuple[int, int] | None = None

    @property
    def num_chars(self) -> int:
        """Characters of thoughts, text and tool calls."""
        of_calls = sum(len(call.arguments) + len(call.name or "") + len(call.id or "") for call in self.tool_calls)
        return len(self.text) + len(self.thoughts) + of_calls


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is complete. `finish_reason` is that of sample 0; `usage` counts all samples. `queue_s`: how long the
    request waited in the worker's queue; None where that is not known."""

    finish_reason: FinishReason
    usage: Usage
    queue_s: float | None = None
