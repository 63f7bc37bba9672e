"""How to draw one token: everything beside the logits that it depends on."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.config import SamplingParams


@dataclass(frozen=True, slots=True)
class SamplingRow:
    params: SamplingParams
    seed: int  #: 64-bit unsigned
    output_index: int  #: how many output tokens came before
    history: Sequence[int] | None = None  #: prompt and output so far, where params.needs_history
