"""Which tokens a step samples, from which rows of its logits, and with which parameters.

All sampling is done on the device. The step itself samples with temperature, top-k, top-p and min-p. Rows whose request
changes logits are sampled again in post-sampling (changed_logits.py), which also computes requested log probabilities
(logprobs.py). A token depends on its own request only, never on other rows of the step.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from engine.batch import ScheduledSequence
from engine.runner.device.transfer import Array, Upload

_MAX_INT32 = 2**31 - 1


class Draw(NamedTuple):
    """One token to sample. A tuple, since every step makes one per sequence: a frozen dataclass takes four times as
    long."""

    row: int  #: index of its sequence in the step
    sequence: ScheduledSequence
    seed: int

    @property
    def changes_logits(self) -> bool:
        """Whether penalties, biases or min_tokens change the logits before sampling."""
        params = self.sequence.params
        return bool(params.needs_history or params.logit_bias or self.sequence.output_index < params.min_tokens)

    @property
    def is_newest_token(self) -> bool:
        """True if the token stays in the sequence's slot. Parallel samples get their slots only after the fork."""
        return self.sequence.num_samples == 1


def draws_of(sequences: Sequence[ScheduledSequence]) -> list[Draw]:
    """One draw per token to sample, in the order of the step's output."""
    return [Draw(row, sequence, seed) for row, sequence in enumerate(sequences) for seed in sequence.seeds]


def send_sampling(upload: Upload, draws: Sequence[Draw], rows: Sequence[int], num_rows: int) -> None:
    """Fill the columns of the sampling kernel: draw i in rows[i] of num_rows. Other rows are greedy, which costs
    least."""
    fill_sampling({name: upload.column(name)[:num_rows] for name in SAMPLING_COLUMNS}, draws, rows)


def fill_sampling(columns: Mapping[str, Array], draws: Sequence[Draw], rows: Sequence[int]) -> None:
    """As send_sampling, into these columns, all rows of them."""
    for name, neutral in _NEUTRAL.items():
        columns[name][:] = neutral
    if not draws:
        return
    places, count = np.asarray(rows), len(draws)
    columns["seeds"][places] = np.fromiter((draw.seed for draw in draws), np.uint64, count).view(np.int64)
    columns["counters"][places] = np.fromiter((draw.sequence.output_index for draw in draws), np.int64, count)
    chosen = [(place, draw.sequence.params) for place, draw in zip(rows, draws, strict=True)]
    random = [(place, params) for place, params in chosen if not params.is_greedy]
    if random:
        places, count = np.array([place for place, _ in random]), len(random)
        columns["temperatures"][places] = np.fromiter((p.temperature for _, p in random), np.float32, count)
        columns["top_k"][places] = np.fromiter((min(p.top_k, _MAX_INT32) for _, p in random), np.int32, count)
        columns["top_p"][places] = np.fromiter((p.top_p for _, p in random), np.float32, count)
        columns["min_p"][places] = np.fromiter((p.min_p for _, p in random), np.float32, count)


#: Greedy, no truncation.
_NEUTRAL = {"temperatures": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
#: Columns in the order of the sampling kernel's arguments.
SAMPLING_COLUMNS = ("temperatures", "top_k", "top_p", "min_p", "seeds", "counters")
