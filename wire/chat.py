"""Messages, sampling options and usage, which every kind of chat request shares."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from wire.constraints import OutputConstraint
from wire.tools import CallId, ToolCalls

Role = Literal["system", "user", "assistant", "tool"]
FinishReason = Literal["stop", "length", "abort", "tool_calls"]

MAX_TOKENS = 1_000_000  #: of an answer; no context holds more
MAX_SAMPLES = 16
MAX_LOGPROBS = 20

MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 256


def _as_tuple(value: object) -> object:
    return (value,) if isinstance(value, str) else value


StopString = Annotated[str, StringConstraints(min_length=1, max_length=MAX_STOP_CHARS)]
StopStrings = Annotated[
    tuple[StopString, ...], Field(max_length=MAX_STOP_STRINGS, fail_fast=True), BeforeValidator(_as_tuple)
]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
CacheSalt = Annotated[str, StringConstraints(max_length=1024)]
BadWord = Annotated[str, StringConstraints(min_length=1, max_length=64)]


#: Values for the variables of a chat template, such as {"enable_thinking": false}.
TemplateKwargs = Annotated[
    dict[
        Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")],
        bool | int | float | Annotated[str, StringConstraints(max_length=256)] | None,
    ],
    Field(max_length=16),
]


class ChatMessage(BaseModel):
    """One message as the engine sees it: plain text, which is empty where an answer only calls tools."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Role
    content: str
    reasoning_content: str | None = Field(
        default=None,
        exclude_if=lambda thoughts: thoughts is None,
        description="what the model thought before this answer; it enters the prompt only of a model whose chat "
        "template reads it",
    )
    tool_calls: ToolCalls = Field(
        default=(), exclude_if=lambda calls: not calls, description="tools that this answer called"
    )
    tool_call_id: CallId | None = Field(
        default=None, exclude_if=lambda call: call is None, description="which call this tool message answers"
    )
    name: str | None = Field(
        default=None, max_length=256, exclude_if=lambda name: name is None, description="name of the speaker or tool"
    )


class DrawingFields(BaseModel):
    """How tokens are drawn, in every kind of request."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: float | None = Field(default=None, ge=0, le=2, description="0: greedy")
    top_p: float | None = Field(default=None, gt=0, le=1, description="draw from the likeliest tokens of this mass")
    top_k: int | None = Field(default=None, ge=-1, le=1_000_000, description="0 or -1: all tokens")
    min_p: float | None = Field(default=None, ge=0, le=1, description="drop tokens below this share of the likeliest")
    typical_p: float | None = Field(default=None, gt=0, le=1, description="locally typical sampling; 1: off")
    repetition_penalty: float | None = Field(
        default=None, ge=0.01, le=100, description="divides positive logits of tokens that occurred; 1: none"
    )
    presence_penalty: float | None = Field(default=None, ge=-2, le=2, description="for each token of the answer")
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2, description="for each time that it occurred")
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**64, description="equal seeds draw equal tokens")
    ignore_eos: bool | None = Field(default=None, description="go on after an end-of-sequence token")
    min_tokens: int | None = Field(default=None, ge=0, le=1_000_000, description="no end before so many tokens")
    skip_special_tokens: bool | None = Field(
        default=None, description="leave special tokens out of the text; null: true"
    )
    logit_bias: dict[TokenId, Annotated[float, Field(ge=-100, le=100)]] | None = Field(
        default=None, max_length=300, description="token id to a number that is added to its logit"
    )
    stop_token_ids: tuple[TokenId, ...] | None = Field(
        default=None, max_length=64, fail_fast=True, description="tokens at which the answer ends"
    )
    allowed_token_ids: tuple[TokenId, ...] | None = Field(
        default=None, min_length=1, max_length=1024, fail_fast=True, description="all other tokens are forbidden"
    )
    bad_words: tuple[BadWord, ...] | None = Field(
        default=None, max_length=64, fail_fast=True, description="words that the answer must not contain"
    )
    priority: int | None = Field(
        default=None,
        ge=-(2**31),
        lt=2**31,
        description="requests of higher values wait for those of lower ones; null: 0",
    )


class SamplingFields(DrawingFields):
    """Sampling parameters whose types are the same inside the arena and in the OpenAI API."""

    max_tokens: int | None = Field(default=None, ge=0, le=MAX_TOKENS, description="bound of the answer; 0: none")
    n: int | None = Field(default=None, ge=1, le=MAX_SAMPLES, description="number of answers")
    thinking_budget: int | None = Field(
        default=None, ge=0, le=1_000_000, description="most tokens of thoughts, then the answer begins"
    )
    include_stop_str_in_output: bool | None = Field(default=None, description="keep the stop string in the text")
    stop: StopStrings | None = Field(default=None, description="a string or several, at which the answer ends")
    best_of: int | None = Field(
        default=None, ge=1, le=MAX_SAMPLES, description="answer with the n likeliest of so many samples, at their end"
    )
    use_beam_search: bool | None = Field(
        default=None, description="search for the n likeliest answers, which come when the search ends"
    )
    beam_width: int | None = Field(
        default=None, ge=1, le=MAX_SAMPLES, description="the same with so many beams; null: n of them"
    )
    length_penalty: float | None = Field(
        default=None, ge=-10, le=10, description="of a beam search: above 0 favours long answers; null: 1"
    )
    early_stopping: bool | Literal["never"] | None = Field(
        default=None, description="of a beam search: end with the last of as many answers as beams; null: false"
    )

    @property
    def is_beam_search(self) -> bool:
        """Whether the answers are searched for and not sampled."""
        return bool(self.use_beam_search) or self.beam_width is not None

    @property
    def is_ranked(self) -> bool:
        """Whether the answers are the likeliest of several: they come when all have ended, and cannot be resumed."""
        return self.is_beam_search or (self.best_of or 1) > (self.n or 1)


class SamplingOptions(SamplingFields):
    """How tokens are drawn. A field that is absent or null means the model's own default (generation_config.json), or
    the server's default where the model has none."""

    logprobs: int | None = Field(
        default=None, ge=0, le=MAX_LOGPROBS, description="log probabilities of so many of the likeliest tokens, too"
    )
    constraint: OutputConstraint | None = Field(default=None, description="what the text of the answer must match")
    prompt_logprobs: int | None = Field(
        default=None, ge=0, le=MAX_LOGPROBS, description="likewise, of every token of the prompt given those before it"
    )


class PromptTokensDetails(BaseModel):
    """The part of Usage that counts prompt tokens found in the prefix cache."""

    model_config = ConfigDict(frozen=True)

    cached_tokens: int = Field(default=0, description="read from the prefix cache")


class CompletionTokensDetails(BaseModel):
    """The part of Usage that counts tokens of thoughts, which are completion tokens, too."""

    model_config = ConfigDict(frozen=True)

    reasoning_tokens: int = Field(default=0, description="spent on thoughts")


class Usage(BaseModel):
    """Token counts of one answer, in the OpenAI shape. Engines make it with `counted`."""

    model_config = ConfigDict(frozen=True)

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails = PromptTokensDetails()
    completion_tokens_details: CompletionTokensDetails = CompletionTokensDetails()
    estimated: bool = Field(
        default=False,
        exclude_if=lambda is_estimated: not is_estimated,
        description="the tokens are Agon's estimate: the server of a hosted model gave no counts",
    )

    @classmethod
    def counted(
        cls,
        num_prompt: int,
        num_completion: int,
        num_cached: int = 0,
        num_thoughts: int = 0,
        *,
        is_estimated: bool = False,
    ) -> "Usage":
        """Usage of an answer; `num_cached` of the prompt's tokens came from the prefix cache, and `num_thoughts` of the
        completion's were thoughts."""
        return cls(
            prompt_tokens=num_prompt,
            completion_tokens=num_completion,
            total_tokens=num_prompt + num_completion,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=num_cached),
            completion_tokens_details=CompletionTokensDetails(reasoning_tokens=num_thoughts),
            estimated=is_estimated,
        )
