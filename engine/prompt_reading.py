"""What a request reads of its prompt's final hidden states, one row for each token: log probabilities of the prompt's
own tokens, or one vector pooled over rows.

Each row is read in the first step that computes it, so the result does not depend on how the prompt is cut into chunks.
A preempted request computes rows again without reading them again. Made by the core, advanced by the scheduler. No
torch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.sampling_params import PoolingParams, SamplingParams


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """Consecutive rows of a chunk, each of which gives the log probability of the token after it. The last row of a
    chunk belongs to the first token of the next chunk."""

    first_row: int  #: index among the chunk's tokens
    next_token_ids: tuple[int, ...]  #: one for each row
    num_top: int  #: how many of the likeliest tokens are wanted, too


@dataclass(frozen=True, slots=True)
class PooledRows:
    """Consecutive rows of a chunk whose sum is wanted."""

    first_row: int  #: index among the chunk's tokens
    num_rows: int


@dataclass(slots=True)
class TokenScore:
    """Log probability of a prompt's token, and the likeliest tokens at its position with theirs."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class RowsRead:
    """What a step has read for one sequence."""

    scores: tuple[TokenScore, ...] = ()  #: for each of ScoredRows
    total: tuple[float, ...] = ()  #: sum of PooledRows, [hidden]

    @property
    def has_nan(self) -> bool:
        """Whether a log probability is none: the logits of its row were not finite."""
        return any(math.isnan(score.logprob) for score in self.scores)


class PromptReading(Protocol):
    """What one request reads."""

    @property
    def next_row(self) -> int:
        """The first row that no step has been planned to read; rows before it need not be computed for this."""
        ...

    def plan_rows(self, start: int, end: int) -> tuple[ScoredRows | None, PooledRows | None]:
        """What a step reads that computes rows [start, end); a planned step is always launched."""
        ...

    def take(self, read: RowsRead) -> None:
        """Take over what a step has read; in the order of the steps."""
        ...


class PromptScores:
    """Reads the log probability of every token of a prompt after its first."""

    def __init__(self, prompt_token_ids: Sequence[int], num_top: int) -> None:
        self._prompt = prompt_token_ids
        self._num_top = num_top
        self.next_row = 0
        self.scores: list[TokenScore] = []  #: of the prompt's tokens from the second on

    def plan_rows(self, start: int, end: int) -> tuple[ScoredRows | None, PooledRows | None]:
        """See PromptReading."""
        first, last = max(start, self.next_row), min(end, len(self._prompt) - 1)
        if first >= last:
            return None, None
        self.next_row = last
        return ScoredRows(first - start, tuple(self._prompt[first + 1 : last + 1]), self._num_top), None

    def take(self, read: RowsRead) -> None:
        """See PromptReading."""
        self.scores += read.scores


class PromptPooling:
    """Reads the rows that a PoolingParams names, and makes a vector of their sum."""

    def __init__(self, num_tokens: int, params: PoolingParams) -> None:
        """num_tokens: of the prompt."""
        self._params = params
        self._end = 1 if params.pooling == "cls" else num_tokens  #: first row behind those that are read
        self.next_row = num_tokens - 1 if params.pooling == "last" else 0
        self._num_rows = self._end - self.next_row
        self._total: list[float] = []

    def plan_rows(self, start: int, end: int) -> tuple[ScoredRows | None, PooledRows | None]:
        """See PromptReading."""
        first, last = max(start, self.next_row), min(end, self._end)
        if first >= last:
            return None, None
        self.next_row = last
        return None, PooledRows(first - start, last - first)

    def take(self, read: RowsRead) -> None:
        """See PromptReading."""
        if not self._total:
            self._total = list(read.total)
        else:
            self._total = [one + other for one, other in zip(self._total, read.total, strict=True)]

    def vector(self) -> tuple[float, ...]:
        """The pooled vector, once all rows have been read."""
        values = [value / self._num_rows for value in self._total[: self._params.dimensions]]
        if self._params.normalize:
            length = math.sqrt(math.fsum(value * value for value in values))
            values = [value / length for value in values] if length else values
        return tuple(values)


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine of the angle between two vectors; 0 where one of them is zero."""
    product, length = (math.fsum(a * b for a, b in zip(one, by, strict=True)) for by in (other, one))
    lengths = math.sqrt(length * math.fsum(b * b for b in other))
    return max(-1.0, min(1.0, product / lengths)) if lengths else 0.0


def reading_of(
    prompt_token_ids: Sequence[int], params: SamplingParams, pooling: PoolingParams | None, *, is_resumed: bool
) -> PromptReading | None:
    """What a request reads of its prompt; None: nothing. is_resumed: it has output from another replica already, and
    the prompt's log probabilities with it, since they come with the first token."""
    if pooling is not None:
        return PromptPooling(len(prompt_token_ids), pooling)
    if params.prompt_logprobs is None or is_resumed:
        return None
    return PromptScores(prompt_token_ids, params.prompt_logprobs)
