"""What a request asks of the form of its answer, beside how its tokens are drawn."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class AnswerShape:
    """Made from the request, read by the shaper. Choice `prompt * n + sample` is sample `sample` of prompt `prompt`."""

    kind: Literal["chat", "text"]
    num_prompts: int = 1
    n: int = 1  #: samples of each prompt
    logprobs: bool = False
    ids_as_tokens: bool = False  #: tokens in logprobs are written `token_id:7`
    token_ids: bool = False  #: choices carry the ids of their tokens
    echo: bool = False  #: texts begin with the prompt
    usage: bool = False  #: a stream ends with a usage chunk
    continuous_usage: bool = False  #: every chunk has usage


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """What every chunk of an answer repeats."""

    id: str
    model: str
    created: int  #: Unix time
