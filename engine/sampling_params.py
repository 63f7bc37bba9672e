"""What one request asks of the engine. Frozen values, checked once when they are made; no I/O.

The worker's API and the library make them; scheduler and runners read them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from engine.errors import InvalidRequest
from engine.settings import check_plain_types

#: Forms in which models write tool calls (engine/text/tool_calls).
ToolFormat = Literal[
    "deepseek_v3",
    "deepseek_v31",
    "gemma",
    "glm",
    "granite",
    "harmony",
    "hermes",
    "kimi",
    "llama3_json",
    "mistral",
    "mistral_list",
    "phi",
    "pythonic",
    "qwen3_xml",
]

#: More output tokens than any context has room for.
UNBOUNDED = 2**31 - 1

EarlyStopping = Literal[True, False, "never"]

#: Most sequences of one request: its samples, or the beams of its search.
MAX_SAMPLES = 16
#: A lower temperature is greedy: divided by it, differences of logits would leave the range of float32.
SMALLEST_TEMPERATURE = 1e-5
MAX_ALLOWED_TOKENS = 1024
MAX_LOGPROBS = 20  #: most likeliest tokens that a request can ask for

ConstraintKind = Literal["json_schema", "json_object", "regex", "choice", "grammar"]


@dataclass(frozen=True, slots=True)
class Constraint:
    """What the text of an output must match as a whole (docs/structured-output.md)."""

    kind: ConstraintKind
    #: A JSON schema; for json_object nothing; a regular expression; a JSON list of strings; or a grammar, in the Lark
    #: dialect of llguidance or as GBNF.
    value: str = ""
    #: Whether an answer is closed when the tokens that are left are just enough for it; None: one of JSON is.
    closes: bool | None = None

    @property
    def is_closed(self) -> bool:
        """Whether an answer ends before max_tokens cut it."""
        return self.kind in ("json_schema", "json_object") if self.closes is None else self.closes


def _in_our_spelling(name: str, value: object) -> object:
    """The value of a sampling parameter as vLLM's and OpenAI's clients may write it."""
    match name, value:
        case "max_tokens", None:
            return UNBOUNDED
        case "top_k", -1:
            return 0
        case "logit_bias", None:
            return {}
        case "stop" | "stop_token_ids", None:
            return ()
        case "stop", str():
            return (value,)
        case "stop" | "stop_token_ids", list():
            return tuple(value)
        case _:
            return value


def _is_bias(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(token_id, int) and isinstance(bias, int | float) for token_id, bias in value.items()
    )


@dataclass(frozen=True)
class BeamSearch:
    """Search for the likeliest continuations, as transformers' `num_beams` does: hypotheses that end are scored by
    their log probability divided by length ** length_penalty, where the length is in output tokens.

    Raises InvalidRequest for a value that is not allowed.
    """

    width: int  #: hypotheses that are continued in every step; 1: greedy
    length_penalty: float = 1.0  #: above 0 favours long answers, below 0 short ones
    #: True: end when `width` hypotheses have ended. False: also when no beam of its present length can become better
    #: than the worst of them. "never": only when none can at any length.
    early_stopping: EarlyStopping = False

    def __post_init__(self) -> None:
        checks = {
            "beam.width must be between 1 and 16": 1 <= self.width <= MAX_SAMPLES,
            "beam.length_penalty must be between -10 and 10": -10.0 <= self.length_penalty <= 10.0,
            'beam.early_stopping must be true, false or "never"': self.early_stopping in (True, False, "never"),
        }
        for message, holds in checks.items():
            if not holds:
                raise InvalidRequest(message, param=message.split(" ", 1)[0])


@dataclass(frozen=True)
class SamplingParams:
    """How to continue one prompt. temperature 0 is greedy. Raises InvalidRequest for a value that is not allowed.

    As in vLLM, max_tokens None means until the context is full, top_k -1 off, and stop may be one string.

    Random numbers come from a counter-based generator keyed by (seed, output index), so that a sampled continuation
    does not depend on batch neighbours, on preemption, or on the replica that continues it.
    """

    max_tokens: int = 256  #: 0: the prompt is computed, for prompt_logprobs or the prefix cache, and nothing is sampled
    n: int = 1  #: answers to one prompt, which share its pages: samples, or the best hypotheses of a beam search
    best_of: int | None = None  #: answer with the n likeliest of so many samples, when all have ended; None: n
    beam: BeamSearch | None = None  #: search for the likeliest answers instead of sampling
    priority: int = 0  #: requests of lower values start sooner and are preempted later; equal ones: first come
    temperature: float = 1.0  #: below 1e-5: greedy
    top_k: int = 0  #: 0: off
    top_p: float = 1.0
    min_p: float = 0.0
    #: Locally typical sampling (Meister et al. 2022), after the other truncations: keep the tokens of this mass whose
    #: surprise is nearest to the entropy. 1: off.
    typical_p: float = 1.0
    repetition_penalty: float = 1.0  #: divides positive logits of tokens in prompt or output, multiplies negative ones
    presence_penalty: float = 0.0  #: subtracted from the logits of tokens that occur in the output
    frequency_penalty: float = 0.0  #: subtracted once for every occurrence in the output
    #: token id -> value added to its logit, before penalties
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    allowed_token_ids: tuple[int, ...] | None = None  #: all other tokens are forbidden; None: all are allowed
    bad_words_ids: tuple[tuple[int, ...], ...] = ()  #: token sequences that the output must not contain
    bad_words: tuple[str, ...] = ()  #: likewise, as words: LLM and the worker encode them (engine/text/bad_words.py)
    seed: int | None = None
    stop: tuple[str, ...] = ()  #: generation ends before the first of these in the text, which does not contain it
    include_stop_str_in_output: bool = False  #: the text ends with the stop string instead
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0  #: end-of-sequence and stop tokens are forbidden before so many tokens
    logprobs: int | None = None  #: None: off; k: the sampled token's log probability and those of the k likeliest
    prompt_logprobs: int | None = None  #: likewise, of every token of the prompt given those before it
    skip_special_tokens: bool = True
    thoughts: "ThoughtTags | None" = None  #: None: what a model thinks is a part of its text
    constraint: Constraint | None = None  #: what the output must match; thoughts come before it and are free
    thinking_budget: int | None = None  #: most tokens between the tags of `thoughts`, then the end tag is forced
    tool_calls: "ToolCallSyntax | None" = None  #: None: a tool call is a part of the text

    def __post_init__(self) -> None:
        for name in ("max_tokens", "top_k", "logit_bias", "stop", "stop_token_ids"):
            object.__setattr__(self, name, _in_our_spelling(name, getattr(self, name)))
        check_plain_types(self)
        if 0.0 < self.temperature < SMALLEST_TEMPERATURE:
            object.__setattr__(self, "temperature", 0.0)
        checks: Mapping[str, bool] = {
            "max_tokens must not be negative": self.max_tokens >= 0,
            "max_tokens must be at least 1 in a beam search and for best_of": self.max_tokens > 0 or not self.is_ranked,
            "constraint and thinking_budget do not steer beams": self.beam is None or not self.needs_masks,
            "n must be between 1 and 16": 1 <= self.n <= MAX_SAMPLES,
            "best_of must be between n and 16": self.best_of is None or self.n <= self.best_of <= MAX_SAMPLES,
            "best_of has no meaning in a beam search": self.best_of is None or self.beam is None,
            "n must not exceed the width of the beam search": self.beam is None or self.n <= self.beam.width,
            "stop strings do not end beams: use stop_token_ids": self.beam is None or not self.stop,
            "temperature must be 0 in a beam search, and top_k, top_p, min_p and typical_p off": self.beam is None
            or (self.is_greedy and not self.is_truncated),
            "priority must fit into 32 bits": -(2**31) <= self.priority < 2**31,
            "temperature must be between 0 and 10": 0.0 <= self.temperature <= 10.0,
            "top_k must not be negative": self.top_k >= 0,
            "top_p must be above 0 and at most 1": 0.0 < self.top_p <= 1.0,
            "min_p must be between 0 and 1": 0.0 <= self.min_p <= 1.0,
            "typical_p must be above 0 and at most 1": 0.0 < self.typical_p <= 1.0,
            "allowed_token_ids must hold 1 to 1024 token ids": self.allowed_token_ids is None
            or (0 < len(self.allowed_token_ids) <= MAX_ALLOWED_TOKENS and min(self.allowed_token_ids) >= 0),
            "bad_words_ids must hold at most 300 sequences of 1 to 64 token ids": len(self.bad_words_ids) <= 300
            and all(0 < len(word) <= 64 and min(word) >= 0 for word in self.bad_words_ids),
            "repetition_penalty must be between 0.01 and 100": 0.01 <= self.repetition_penalty <= 100.0,
            "presence_penalty must be between -2 and 2": -2.0 <= self.presence_penalty <= 2.0,
            "frequency_penalty must be between -2 and 2": -2.0 <= self.frequency_penalty <= 2.0,
            "logit_bias must hold at most 300 values between -100 and 100": not _is_bias(self.logit_bias)
            or (
                len(self.logit_bias) <= 300
                and all(token_id >= 0 and -100.0 <= bias <= 100.0 for token_id, bias in self.logit_bias.items())
            ),
            "min_tokens must be between 0 and max_tokens": 0 <= self.min_tokens <= self.max_tokens,
            "stop must hold at most 16 non-empty strings": isinstance(self.stop, tuple)
            and len(self.stop) <= 16
            and all(isinstance(text, str) and text for text in self.stop),
            "stop_token_ids must hold token ids": isinstance(self.stop_token_ids, tuple)
            and all(isinstance(token_id, int) for token_id in self.stop_token_ids),
            "logit_bias must map token ids to numbers": _is_bias(self.logit_bias),
            "logprobs must be between 0 and 20": self.logprobs is None or 0 <= self.logprobs <= MAX_LOGPROBS,
            "thinking_budget must be at least 0": self.thinking_budget is None or self.thinking_budget >= 0,
            "thinking_budget needs the tags between which the model thinks": self.thinking_budget is None
            or self.thoughts is not None,
            "prompt_logprobs must be between 0 and 20": self.prompt_logprobs is None
            or 0 <= self.prompt_logprobs <= MAX_LOGPROBS,
            "seed must fit into 64 bits": self.seed is None or -(2**63) <= self.seed < 2**64,
        }
        for message, holds in checks.items():
            if not holds:
                raise InvalidRequest(message, param=message.split(" ", 1)[0])

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken, without random numbers."""
        return self.temperature == 0.0

    def changes_logits_at(self, output_index: int) -> bool:
        """Whether logits are changed, other than by masks, before the output token of that index is drawn from them."""
        return bool(
            self.needs_history
            or self.logit_bias
            or output_index < self.min_tokens
            or self.allowed_token_ids is not None
            or self.bad_words_ids
            or self.typical_p < 1.0
        )

    @property
    def needs_history(self) -> bool:
        """Whether the next token depends on the ids of all earlier tokens, not on the logits alone."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    @property
    def is_truncated(self) -> bool:
        """Whether tokens are cut off the distribution before one is drawn."""
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0 or self.typical_p < 1.0

    @property
    def num_sequences(self) -> int:
        """Sequences that run for the request: its samples, or the beams of its search."""
        return self.beam.width if self.beam is not None else self.best_of or self.n

    @property
    def is_ranked(self) -> bool:
        """Whether the answers are the likeliest of several, which are known when all have ended."""
        return self.beam is not None or self.num_sequences > self.n

    @property
    def num_top_logprobs(self) -> int | None:
        """How many likeliest tokens the sampler reports beside the sampled one; None: no log probability at all."""
        return 0 if self.logprobs is None and self.is_ranked else self.logprobs

    def stop_ids(self, eos_token_ids: frozenset[int]) -> frozenset[int]:
        """The tokens that end the output. eos_token_ids: the model's."""
        return frozenset(self.stop_token_ids) | (frozenset() if self.ignore_eos else eos_token_ids)

    @property
    def has_bad_sequences(self) -> bool:
        """Whether what is forbidden depends on the newest tokens of the output."""
        return any(len(word) > 1 for word in self.bad_words_ids)

    @property
    def needs_masks(self) -> bool:
        """Whether the tokens that may be sampled next depend on those before."""
        return self.constraint is not None or self.thinking_budget is not None


Pooling = Literal["mean", "last", "cls"]  #: over the rows of a prompt; cls: the first row


@dataclass(frozen=True)
class PoolingParams:
    """How to make one vector of a prompt's hidden states after the final norm. Raises InvalidRequest."""

    pooling: Pooling = "last"
    normalize: bool = True  #: to length 1
    dimensions: int | None = None  #: keep so many of the first numbers, before the vector is normalised; None: all

    def __post_init__(self) -> None:
        if self.pooling not in get_args(Pooling):
            raise InvalidRequest("pooling must be mean, last or cls", param="pooling")
        if self.dimensions is not None and self.dimensions < 1:
            raise InvalidRequest("dimensions must be at least 1", param="dimensions")


@dataclass(frozen=True)
class ThoughtTags:
    """The texts between which a model thinks before it answers."""

    begin: str
    end: str
    is_open: bool = False  #: the prompt ends with `begin`, or with the word behind it
    is_closed: bool = False  #: the prompt ends with `end`: a constraint holds from the first token on
    word: str = ""  #: follows `begin`, and is no thought


@dataclass(frozen=True)
class ToolFunction:
    """A function that the model may call."""

    name: str
    parameters: str  #: its JSON schema, as JSON
    is_strict: bool = False  #: arguments follow the schema also where no call is forced


@dataclass(frozen=True)
class ToolCallSyntax:
    """How an output is read that may hold tool calls."""

    format: ToolFormat
    functions: tuple[ToolFunction, ...] = ()
    id_seed: str = ""  #: ids of calls follow from it, the sample's index and the call's
    is_single: bool = False  #: the output ends after its first call
    #: special tokens of the format: the parser gets their texts although others are skipped, and never gives them out
    marks: tuple[str, ...] = ()
    begun: str = ""  #: the part of the output's form that the prompt holds already


#: Sampling parameters of a request for a vector, which samples nothing.
NO_OUTPUT = SamplingParams(max_tokens=0)
