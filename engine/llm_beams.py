"""Beam search of the library, with vLLM's names: what is asked, and what is answered."""

from dataclasses import dataclass
from typing import Any

from engine.request import FinishReason
from engine.sampling_params import BeamSearch, EarlyStopping, SamplingParams


@dataclass(frozen=True, slots=True)
class BeamSearchParams:
    """How to search; the fields mean what they mean in BeamSearch and SamplingParams, which check them."""

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    stop_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    logprobs: int | None = None

    @property
    def sampling_params(self) -> SamplingParams:
        """The same for the engine. Raises InvalidRequest."""
        return SamplingParams(
            max_tokens=self.max_tokens,
            n=self.beam_width,
            temperature=0.0,
            beam=BeamSearch(self.beam_width, self.length_penalty, self.early_stopping),
            ignore_eos=self.ignore_eos,
            stop_token_ids=self.stop_token_ids,
            min_tokens=self.min_tokens,
            logprobs=self.logprobs,
        )


@dataclass(frozen=True, slots=True)
class BeamSearchSequence:
    """One hypothesis. tokens and text begin with the prompt; cum_logprob is of the output alone."""

    tokens: list[int]
    text: str
    cum_logprob: float
    finish_reason: FinishReason
    logprobs: list[dict[int, Any]] | None  #: of the output, as CompletionOutput.logprobs


@dataclass(frozen=True, slots=True)
class BeamSearchOutput:
    """The hypotheses of one prompt, best first: by cum_logprob divided by the output's length ** length_penalty."""

    sequences: list[BeamSearchSequence]
