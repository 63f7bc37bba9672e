"""What a sampled token depends on, beside its logits."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class SamplingRow:
    """One token to sample; made by EagerRunner."""

    params: SamplingParams
    seed: int  #: 64-bit unsigned
    output_index: int  #: number of output tokens before this one
    history: Sequence[int] | None = None  #: prompt and output so far, if params.needs_history
    banned_token_ids: tuple[int, ...] = ()  #: as in ScheduledSequence
