"""A request, its parallel sequences, what ends them, and the deltas its caller receives.

Made by the core, moved through its states by the scheduler. Knows nothing of pages, batches, tokenizers or threads.
"""

import hashlib
import math
from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal

from engine.config import ModelLimits
from engine.errors import EngineDead, EngineError, InvalidRequest, NotFinite
from engine.prompt_reading import PromptReading
from engine.sampling_params import Constraint, PoolingParams, SamplingParams

FinishReason = Literal["stop", "length", "abort", "tool_calls"]

_GOLDEN_64 = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: the increment of splitmix64
_MASK_64 = (1 << 64) - 1
#: Most unmerged deltas of a sample; merging each delta at once would copy a long unread output again and again.
_MAX_UNMERGED = 64


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Log probability of one output token and of the likeliest tokens at its position."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a tool call. The first one of a call has its id and its name, all of them parts of its arguments,
    which joined are the JSON text that the model wrote."""

    index: int  #: which of the sample's calls
    id: str | None
    name: str | None
    arguments: str


@dataclass(slots=True)  # every step makes one for each sequence: frozen, that would take five times as long
class RequestDelta:
    """What one sample of a request has gained since its previous delta.

    The texts of all deltas of an index joined are its whole text, and so are thoughts and token ids. Text may lag
    behind the token ids (half a character, or text that may yet become a tag or a stop string, is held back) and never
    contains a stop string or the token that ended the sample. Thoughts come before all text, also in one delta, except
    of models that think between parts of an answer (harmony). The last delta of an index, and only that one, has a
    finish_reason: "tool_calls" where a sample with tool calls would have "stop".
    """

    request_id: str
    index: int  #: which of the n samples
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] | None  #: one per token id; None when the request did not ask
    finish_reason: FinishReason | None
    num_prompt_tokens: int
    num_cached_tokens: int  #: prompt tokens whose pages were found in the prefix cache
    num_output_tokens: int  #: tokens of this sample so far, resumed ones included
    queue_s: float | None = None  #: time from submission to the first step; None while it still waits
    thoughts: str = ""  #: what the model thinks, where SamplingParams.thoughts tells it from the text
    num_thought_tokens: int = 0  #: those of num_output_tokens that were thoughts
    tool_calls: tuple[ToolCallDelta, ...] = ()  #: where SamplingParams.tool_calls tells them from the text
    #: One for each token of the prompt, None for the first; in the first delta of sample 0, where the request asked.
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None
    embedding: tuple[float, ...] | None = None  #: the result of a request for a vector, in its only delta
    #: Sum of the log probabilities of all output tokens so far; None where the request asks for none.
    cumulative_logprob: float | None = None
    #: Why the engine has failed the request: in the last delta of a sample, with finish_reason "abort".
    error: str = ""
    error_param: str | None = None  #: the field of the request that is at fault; None: the model's numbers are

    def failure(self) -> EngineError:
        """The error with which the request has failed, where `error` says that it has."""
        if self.error_param is None:
            return NotFinite(self.error)
        return InvalidRequest(self.error, param=self.error_param)


@dataclass(frozen=True, slots=True)
class Embedding:
    """The vector of one prompt."""

    vector: tuple[float, ...]
    num_prompt_tokens: int
    num_cached_tokens: int  #: prompt tokens whose pages were found in the prefix cache

    @classmethod
    def of_delta(cls, delta: RequestDelta, params: PoolingParams) -> "Embedding":
        """The result of a request for a vector. Raises InvalidRequest where the model's vectors are too short,
        EngineDead where the request was aborted, and NotFinite."""
        if delta.embedding is None:
            raise EngineDead("the request was aborted")
        size = len(delta.embedding)
        if params.dimensions is not None and params.dimensions > size:
            raise InvalidRequest(f"dimensions must not exceed {size}, the size of this model's", param="dimensions")
        if not all(map(math.isfinite, delta.embedding)):
            raise NotFinite("the model's hidden states are not finite")
        return cls(delta.embedding, delta.num_prompt_tokens, delta.num_cached_tokens)


def merge_deltas(deltas: ReadOnly[RequestDelta]) -> RequestDelta:
    """One delta with the content of these consecutive deltas of the same sample."""
    last = deltas[-1]
    if len(deltas) == 1:
        return last
    assert {(delta.request_id, delta.index) for delta in deltas} == {(last.request_id, last.index)}
    assert all(delta.finish_reason is None for delta in deltas[:-1])
    logprobs = [entry for delta in deltas for entry in delta.logprobs or ()]
    return replace(
        last,
        text="".join(delta.text for delta in deltas),
        thoughts="".join(delta.thoughts for delta in deltas),
        tool_calls=tuple(call for delta in deltas for call in delta.tool_calls),
        token_ids=tuple(token_id for delta in deltas for token_id in delta.token_ids),
        logprobs=tuple(logprobs) if any(delta.logprobs is not None for delta in deltas) else None,
        prompt_logprobs=deltas[0].prompt_logprobs,
    )


def gather_delta(waiting: list[RequestDelta], delta: RequestDelta) -> None:
    """Add a delta to the unread ones of its sample, which are merged when they become many."""
    waiting.append(delta)
    if len(waiting) == _MAX_UNMERGED:
        waiting[:] = [merge_deltas(waiting)]


def request_seed(params: SamplingParams, engine_seed: int, request_id: str) -> int:
    """The request's own seed, or one derived from the engine's seed and the request id. 64-bit unsigned.

    So a replica that continues the request under its id draws the same random numbers.
    """
    if params.seed is not None:
        return params.seed & _MASK_64
    digest = hashlib.blake2b(f"{engine_seed}/{request_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def sample_seed(seed: int, index: int) -> int:
    """Seed of sample `index` of a request: the request's own for sample 0, so that the sample of n = 1 equals the first
    one of n = 4."""
    if index == 0:
        return seed & _MASK_64
    mixed = (seed + index * _GOLDEN_64) & _MASK_64
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK_64
    return mixed ^ (mixed >> 31)


class RequestState(Enum):
    """Where a request is. Preempted requests are WAITING again, with the output they already have."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Sequence:
    """One sample or beam: prompt and output tokens, and how many of them have their keys and values in pages.

    num_computed lags one behind all tokens while decoding, the pending ones included: the newest token is the next
    step's input. Both counts run ahead of token_ids while a step is in flight.
    """

    sequence_id: int
    index: int
    seed: int
    token_ids: list[int]
    num_prompt_tokens: int
    num_computed: int = 0
    num_pending: int = 0  #: tokens that steps in flight sample for it; the host does not know them yet
    slot: int | None = None  #: the runner's row, held while running
    is_table_sent: bool = False  #: the runner has this slot's page table
    is_history_sent: bool = False  #: the runner knows all tokens of this slot, or samples them
    is_verifying: bool = False  #: a step in flight verifies proposed tokens: how many tokens it adds is not known yet
    finish_reason: FinishReason | None = None
    cumulative_logprob: float = 0.0  #: of the output, where the runner reports log probabilities

    @property
    def num_output_tokens(self) -> int:
        """Output tokens that the host knows; pending ones are not counted."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def is_finished(self) -> bool:
        """Whether the sequence gets no more tokens."""
        return self.finish_reason is not None


@dataclass(slots=True, eq=False)
class Request:
    """One prompt with its samples, or with the beams of its search.

    While `is_forked` is false only the first unfinished sequence (the leader) holds pages and computes the prompt; the
    others join by a fork when the prompt is complete. A request with one sequence needs no fork.
    """

    request_id: str
    arrival: int  #: ordinal; the order among requests of equal priority
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    sequences: list[Sequence]
    cache_salt: bytes = b""
    adapter: int = 0  #: slot of its adapter; 0: none
    reading: PromptReading | None = None  #: what it reads of its prompt beside the last row
    state: RequestState = RequestState.WAITING
    is_forked: bool = False
    num_cached_tokens: int = 0
    num_overtaken: int = 0  #: later requests admitted before this one since it last waited
    num_preemptions: int = 0
    stop_ids: frozenset[int] = field(default_factory=frozenset)
    max_length: int = 0  #: most tokens of a sequence, prompt included; 0: what max_tokens allows
    step_params: SamplingParams = field(init=False)  #: `params` without the text of a constraint, for plans
    needs_history: bool = field(init=False)  #: SamplingParams.needs_history, kept because every step reads it
    must_wait: bool = field(init=False)  #: its steps are planned when those before have been collected
    submitted_s: float = 0.0  #: by the core's clock
    queue_s: float | None = None  #: how long it waited for its first step

    def __post_init__(self) -> None:
        longest = self.num_prompt_tokens + self.params.max_tokens
        self.max_length = min(longest, self.max_length or longest)
        self.needs_history = self.params.needs_history
        self.must_wait = self.params.beam is not None or self.params.has_bad_sequences
        self.step_params = self.params
        if self.params.constraint is not None:
            self.step_params = replace(self.params, constraint=Constraint(self.params.constraint.kind))

    @property
    def unfinished(self) -> list[Sequence]:
        """The sequences that still get tokens; before the fork, the first one is the leader."""
        return [sequence for sequence in self.sequences if sequence.finish_reason is None]

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompt, without resumed output."""
        return len(self.prompt_token_ids)

    def can_continue_pending(self, sequence: Sequence) -> bool:
        """Whether the sequence may take its next step before the host knows its pending tokens.

        If these turn out to end the sequence, the output of that step is dropped. Beams and requests with bad words of
        several tokens wait: which tokens go on, or are forbidden next, depends on the pending ones. So does a sequence
        whose proposed tokens are being verified: it may have gained more than one.
        """
        has_room = len(sequence.token_ids) + sequence.num_pending < self.max_length
        return has_room and not self.must_wait and not sequence.is_verifying

    def banned_next(self, sequence: Sequence) -> tuple[int, ...]:
        """Tokens that would complete a bad word of which the output ends with all others. Bad words of one token are
        forbidden by the parameters alone."""
        output = sequence.token_ids[sequence.num_prompt_tokens :]
        return tuple(
            word[-1]
            for word in self.params.bad_words_ids
            if 1 < len(word) <= len(output) + 1 and tuple(output[len(output) - len(word) + 1 :]) == word[:-1]
        )

    def finish_reason_after(self, sequence: Sequence) -> FinishReason | None:
        """Whether the newest output token ends the sequence, by every rule that needs no text.

        `stop_ids` are the request's stop tokens and, unless it ignores them, the model's end-of-sequence tokens.
        """
        token_ids = sequence.token_ids
        if token_ids[-1] in self.stop_ids and sequence.num_output_tokens > self.params.min_tokens:
            return "stop"
        return "length" if len(token_ids) >= self.max_length else None


def check_prompt(prompt_token_ids: ReadOnly[int], limits: ModelLimits, *, param: str = "prompt") -> None:
    """Raise InvalidRequest for an empty prompt or ids outside the vocabulary: they would index past the embedding."""
    if not prompt_token_ids:
        raise InvalidRequest("a prompt needs at least one token", param=param)
    smallest, largest = min(prompt_token_ids), max(prompt_token_ids)
    if smallest < 0 or largest >= limits.vocab_size:
        raise InvalidRequest(f"token ids must lie in [0, {limits.vocab_size})", param=param)


class StopStrings:
    """Finds the first stop string in text that arrives in pieces, and holds back text that may become one.

    One Knuth-Morris-Pratt automaton per stop string, advanced character by character, so the result does not depend on
    where the pieces were cut. The match that ends first wins; among matches that end together, the longest.
    """

    def __init__(self, stops: tuple[str, ...], *, is_shown: bool = False) -> None:
        """is_shown: the text ends with the stop string, not before it."""
        self._stops = stops
        self._is_shown = is_shown
        self._failures = [_failure_table(stop) for stop in stops]
        self._states = [0] * len(stops)
        self._held = ""
        self.found: str | None = None

    def push(self, text: str) -> str:
        """Take more text; return what can be shown now. After a match (`found`) all further text is dropped."""
        if self.found is not None:
            return ""
        for position, character in enumerate(text):
            longest = self._advance(character)
            if longest is not None:
                self.found = longest
                self._held += text[: position + 1]
                shown = self._held if self._is_shown else self._held[: len(self._held) - len(longest)]
                self._held = ""
                return shown
        self._held += text
        num_shown = len(self._held) - max(self._states)
        shown, self._held = self._held[:num_shown], self._held[num_shown:]
        return shown

    def flush(self) -> str:
        """The text that was held back and has not become a stop string."""
        shown, self._held = self._held, ""
        self._states = [0] * len(self._stops)
        return shown

    def _advance(self, character: str) -> str | None:
        longest: str | None = None
        for which, stop in enumerate(self._stops):
            state, failure = self._states[which], self._failures[which]
            while state and stop[state] != character:
                state = failure[state - 1]
            if stop[state] == character:
                state += 1
            if state == len(stop):
                if longest is None or len(stop) > len(longest):
                    longest = stop
                state = failure[state - 1]
            self._states[which] = state
        return longest


def _failure_table(pattern: str) -> list[int]:
    """For each prefix of the pattern, the length of its longest proper suffix that is also its prefix."""
    table = [0] * len(pattern)
    length = 0
    for position in range(1, len(pattern)):
        while length and pattern[position] != pattern[length]:
            length = table[length - 1]
        if pattern[position] == pattern[length]:
            length += 1
        table[position] = length
    return table
