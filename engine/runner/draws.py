"""Which tokens a step draws, from which rows of its logits, and by what: the sampling kernel, or engine/sampling.

The kernel does all that needs the logits alone: greedy choice, temperature, top-k, top-p, min-p. What must look at
numbers on the host (log probabilities, penalties, tokens that may not come yet) is sampled there, and the step waits
for it. A token is drawn by the one or the other because of its own request, never because of its neighbours.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.batch import ScheduledSequence
from engine.runner.transfer import Upload
from engine.sampling.sampler import SamplingRow

_MAX_INT32 = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Draw:
    row: int  #: which of the step's sequences
    slot: int  #: whose newest token this is; -1: one of several samples, whose slots the step does not know
    sampling: SamplingRow

    @property
    def is_simple(self) -> bool:
        """Whether the sampling kernel can do it."""
        return is_simple(self.sampling)


def draws_of(sequences: Sequence[ScheduledSequence]) -> list[Draw]:
    """In the order of the step's output."""
    return [
        Draw(row, sequence.slot if sequence.num_samples == 1 else -1, _sampling(sequence, seed))
        for row, sequence in enumerate(sequences)
        for seed in sequence.seeds
    ]


def is_simple(sampling: SamplingRow) -> bool:
    params = sampling.params
    has_own_logits = params.needs_history or params.logit_bias or sampling.output_index < params.min_tokens
    return params.logprobs is None and not has_own_logits


def is_simple_decode(sequence: ScheduledSequence) -> bool:
    """Whether a graph can do all of it: one token, and at most one draw."""
    if len(sequence.token_ids) != 1 or sequence.num_samples > 1:
        return False
    return sequence.num_samples == 0 or is_simple(_sampling(sequence, sequence.seeds[0]))


def decode_sampling(sequences: Sequence[ScheduledSequence], num_rows: int) -> list[SamplingRow | None]:
    """Of each row of a decode step with padding; None: nobody asks for its token."""
    asked = [_sampling(sequence, sequence.seeds[0]) if sequence.num_samples else None for sequence in sequences]
    return [*asked, *[None] * (num_rows - len(asked))]


def send_sampling(upload: Upload, rows: Sequence[SamplingRow | None]) -> None:
    """Fill the columns of the sampling kernel. A row that nobody asks for is greedy, which costs least."""
    count = len(rows)
    columns = {name: upload.column(name)[:count] for name in ("seeds", "counters", *_NEUTRAL)}
    columns["seeds"][:] = np.array([0 if row is None else row.seed for row in rows], np.uint64).view(np.int64)
    columns["counters"][:] = [0 if row is None else row.output_index for row in rows]
    for name, value in _NEUTRAL.items():
        columns[name][:] = value
    for index, row in enumerate(rows):
        if row is not None and not row.params.is_greedy:
            columns["temperatures"][index] = row.params.temperature
            columns["top_k"][index] = min(row.params.top_k, _MAX_INT32)
            columns["top_p"][index] = row.params.top_p
            columns["min_p"][index] = row.params.min_p


#: Greedy, nothing cut off.
_NEUTRAL = {"temperatures": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def _sampling(sequence: ScheduledSequence, seed: int) -> SamplingRow:
    return SamplingRow(sequence.params, seed, sequence.output_index, sequence.history)
