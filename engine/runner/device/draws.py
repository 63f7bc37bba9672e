"""Which tokens a step samples, from which rows of its logits, and with which parameters.

All sampling is done on the device. The step itself samples with temperature, top-k, top-p and min-p of each slot
(slot_sampling.py). Rows whose request changes logits are sampled again in post-sampling (changed_logits.py), which also
computes requested log probabilities (logprobs.py). A token depends on its own request only, never on other rows of the
step.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine.batch import ScheduledSequence
from engine.runner.device.transfer import Array

#: Larger values of top_k than this keep every token, too.
MAX_INT32 = 2**31 - 1


class Draw(NamedTuple):
    """One token to sample. A tuple, since every step makes one per sequence: a frozen dataclass takes four times as
    long."""

    row: int  #: index of its sequence in the step
    sequence: ScheduledSequence
    seed: int

    @property
    def changes_logits(self) -> bool:
        """Whether masks, penalties, biases or min_tokens change the logits before sampling."""
        params = self.sequence.params
        is_early = self.sequence.output_index < params.min_tokens
        return bool(params.needs_history or params.needs_masks or params.logit_bias or is_early)

    @property
    def is_newest_token(self) -> bool:
        """True if the token stays in the sequence's slot. Parallel samples get their slots only after the fork."""
        return self.sequence.num_samples == 1


def draws_of(sequences: Sequence[ScheduledSequence]) -> list[Draw]:
    """One draw per token to sample, in the order of the step's output."""
    return [Draw(row, sequence, seed) for row, sequence in enumerate(sequences) for seed in sequence.seeds]


def sampling_columns(draws: Sequence[Draw]) -> tuple[Array, ...]:
    """What the sampling kernel reads beside the logits, one element for each draw, in the order of its arguments."""
    params = [draw.sequence.params for draw in draws]
    return (
        np.array([p.temperature for p in params], np.float32),
        np.array([min(p.top_k, MAX_INT32) for p in params], np.int32),
        np.array([p.top_p for p in params], np.float32),
        np.array([p.min_p for p in params], np.float32),
        np.array([draw.seed for draw in draws], np.uint64).view(np.int64),
        np.array([draw.sequence.output_index for draw in draws], np.int64),
    )
