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
from engine.sampling.typical import draw_settings

#: Larger values of top_k than this keep every token, too.
MAX_INT32 = 2**31 - 1


class Draw(NamedTuple):
    """One token to sample. A tuple, since every step makes one per sequence: a frozen dataclass takes four times as
    long."""

    row: int  #: index of its sequence in the step
    sequence: ScheduledSequence
    seed: int
    place: int = 0  #: how many proposed tokens of the sequence come before it

    @property
    def changes_logits(self) -> bool:
        """Whether masks, penalties, biases, filters or min_tokens change the logits before sampling."""
        params = self.sequence.params
        return params.needs_masks or params.changes_logits_at(self.output_index)

    @property
    def is_drawn_again(self) -> bool:
        """Whether post-sampling draws the token again, from changed logits. For beams nothing is drawn."""
        return self.changes_logits and self.sequence.params.beam is None

    @property
    def output_index(self) -> int:
        """The counter of its random numbers."""
        return self.sequence.output_index + self.place

    @property
    def is_newest_token(self) -> bool:
        """True if the token stays in the sequence's slot."""
        return self.sequence.has_own_newest_token


def draws_of(sequences: Sequence[ScheduledSequence]) -> list[Draw]:
    """One draw per token to sample, in the order of the step's output."""
    return [
        Draw(row, sequence, seed, place if sequence.num_drafts else 0)
        for row, sequence in enumerate(sequences)
        for place, seed in enumerate(sequence.seeds)
    ]


def sampling_columns(draws: Sequence[Draw]) -> tuple[Array, ...]:
    """What the sampling kernel reads beside changed logits, one element for each draw, in the order of its
    arguments."""
    temperatures, top_k, top_p, min_p = zip(*[draw_settings(draw.sequence.params) for draw in draws], strict=True)
    return (
        np.array(temperatures, np.float32),
        np.array([min(k, MAX_INT32) for k in top_k], np.int32),
        np.array(top_p, np.float32),
        np.array(min_p, np.float32),
        np.array([draw.seed for draw in draws], np.uint64).view(np.int64),
        np.array([draw.output_index for draw in draws], np.int64),
    )
