"""What the library returns, in vLLM's shapes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.request import FinishReason, RequestDelta, TokenLogprob

if TYPE_CHECKING:
    from engine.text.tokenizer import Tokenizer

#: Gives the model's tokenizer; raises InvalidRequest where it has none.
TokenizerOf = Callable[[], "Tokenizer"]


@dataclass(frozen=True, slots=True)
class Logprob:
    """Log probability of one token at one position; rank 1 is the likeliest token, None: not among the top k."""

    logprob: float
    rank: int | None
    decoded_token: str


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One sample of a prompt. token_ids include a stop token or the tokens of a stop string; the text does not."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None
    logprobs: list[dict[int, Logprob]] | None  #: per token: the k likeliest tokens and the sampled one
    finish_reason: FinishReason
    thoughts: str = ""  #: apart from the text where SamplingParams.thoughts names their tags


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """One prompt and its n samples."""

    request_id: str
    prompt: str | None  #: the text, where the prompt was given as one
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    num_cached_tokens: int
    #: One for each token of the prompt: itself and the k likeliest tokens; None for the first token.
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    finished: bool = True  #: the library returns whole answers alone
    error: str = ""  #: why the engine has failed this prompt: outputs hold what came before, finished by "abort"


@dataclass(frozen=True, slots=True)
class EmbeddingOutput:
    """The vector of one prompt."""

    embedding: list[float]


@dataclass(frozen=True, slots=True)
class EmbeddingRequestOutput:
    """One prompt and its vector."""

    request_id: str
    prompt_token_ids: list[int]
    outputs: EmbeddingOutput
    num_cached_tokens: int
    finished: bool = True


@dataclass(frozen=True, slots=True)
class ScoringOutput:
    """The similarity of two texts, in [-1, 1]."""

    score: float


@dataclass(frozen=True, slots=True)
class ScoringRequestOutput:
    """Two texts and their similarity."""

    request_id: str
    prompt_token_ids: list[int]  #: of the first text, then those of the second
    outputs: ScoringOutput
    num_cached_tokens: int
    finished: bool = True


def completion(whole: RequestDelta, tokenizer_of: TokenizerOf) -> CompletionOutput:
    """One sample, of all its deltas merged."""
    assert whole.finish_reason is not None
    logprobs = whole.logprobs
    return CompletionOutput(
        index=whole.index,
        text=whole.text,
        token_ids=list(whole.token_ids),
        cumulative_logprob=whole.cumulative_logprob,
        logprobs=None if logprobs is None else [_at_position(entry, tokenizer_of()) for entry in logprobs],
        finish_reason=whole.finish_reason,
        thoughts=whole.thoughts,
    )


def prompt_logprobs(
    entries: Sequence[TokenLogprob | None] | None, tokenizer_of: TokenizerOf
) -> list[dict[int, Logprob] | None] | None:
    """Those of RequestDelta.prompt_logprobs."""
    if entries is None:
        return None
    return [None if entry is None else _at_position(entry, tokenizer_of()) for entry in entries]


def _at_position(entry: TokenLogprob, tokenizer: "Tokenizer") -> dict[int, Logprob]:
    def text(token_id: int) -> str:
        return tokenizer.decode([token_id], skip_special_tokens=False)

    by_id = {
        token_id: Logprob(logprob, rank, text(token_id)) for rank, (token_id, logprob) in enumerate(entry.top, start=1)
    }
    if entry.token_id not in by_id:
        by_id[entry.token_id] = Logprob(entry.logprob, None, text(entry.token_id))
    return by_id
