"""Which tokens a step draws, from which rows of its logits, and by what parameters.

All are drawn on the device. Most need their logits alone (greedy choice, temperature, top-k, top-p, min-p): these are
part of the step itself. Those whose request changes logits first are drawn again behind it (changed_logits.py), and log
probabilities are taken where they are asked for (logprobs.py). How a token is drawn depends on its own request only,
never on its neighbours.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from engine.batch import ScheduledSequence
from engine.runner.device.transfer import Array, Upload

_MAX_INT32 = 2**31 - 1


class Draw(NamedTuple):
    """A tuple, since a step makes one for each of its sequences: a frozen dataclass takes four times as long."""

    row: int  #: which of the step's sequences
    sequence: ScheduledSequence
    seed: int

    @property
    def changes_logits(self) -> bool:
        """Whether they are changed before the token is drawn."""
        params = self.sequence.params
        return bool(params.needs_history or params.logit_bias or self.sequence.output_index < params.min_tokens)

    @property
    def is_newest_token(self) -> bool:
        """Of its slot. One of several samples is not: which slots they are for the step does not know."""
        return self.sequence.num_samples == 1


def draws_of(sequences: Sequence[ScheduledSequence]) -> list[Draw]:
    """In the order of the step's output."""
    return [Draw(row, sequence, seed) for row, sequence in enumerate(sequences) for seed in sequence.seeds]


def send_sampling(upload: Upload, draws: Sequence[Draw], rows: Sequence[int], num_rows: int) -> None:
    """Fill the columns of the sampling kernel: draw i in rows[i] of num_rows. Rows that nobody asks for are greedy,
    which costs least."""
    fill_sampling({name: upload.column(name)[:num_rows] for name in SAMPLING_COLUMNS}, draws, rows)


def fill_sampling(columns: Mapping[str, Array], draws: Sequence[Draw], rows: Sequence[int]) -> None:
    """As send_sampling, for columns of that many rows."""
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


#: Greedy, nothing cut off.
_NEUTRAL = {"temperatures": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
#: In the order in which the sampling kernel takes them.
SAMPLING_COLUMNS = ("temperatures", "top_k", "top_p", "min_p", "seeds", "counters")
