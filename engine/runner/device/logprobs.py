"""Log probabilities of a step's tokens, for draws whose requests ask for them. Computed on the device from the logits
of the model, before penalties and temperature, and downloaded with the tokens. R = draws that ask, V = vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.batch import NO_TOKEN, SampledToken
from engine.kernels.step_kernels import SamplingWorkspace, StepKernels
from engine.runner.device.changed_logits import ROWS_AT_ONCE
from engine.runner.device.draws import Draw
from engine.runner.device.transfer import Array, Upload
from engine.sampling_params import MAX_LOGPROBS

#: Download of a draw: the log probability of its token, and ids and log probabilities of the top tokens.
BYTES_PER_DRAW = 4 + MAX_LOGPROBS * (8 + 4)


NUM_ARRAYS = 3  #: what `AskedLogprobs.take` returns


@dataclass(frozen=True, slots=True)
class AskedLogprobs:
    """The draws of a step that ask for log probabilities."""

    rows: torch.Tensor  #: [R] int64, on the device: row of the step's logits and tokens
    draws: Sequence[int]  #: index of each among the step's draws
    counts: Sequence[int]  #: number of top tokens that each asks for

    @classmethod
    def send(cls, upload: Upload, draws: Sequence[Draw], places: Sequence[int]) -> "AskedLogprobs | None":
        """Put the rows into the upload. draws: all of a step; places: the row of logits and tokens of each. None: no
        draw asks."""
        params = [draw.sequence.params for draw in draws]
        counts = [each.num_top_logprobs if each.beam is None else None for each in params]
        asking = [index for index, count in enumerate(counts) if count is not None]
        if not asking:
            return None
        rows = upload.put(np.array([places[index] for index in asking], np.int64))
        return cls(rows, asking, [counts[index] or 0 for index in asking])

    def take(
        self, kernels: StepKernels, logits: torch.Tensor, tokens: torch.Tensor, workspace: SamplingWorkspace
    ) -> tuple[torch.Tensor, ...]:
        """Queue the kernels. logits [rows, V], tokens [rows] int64. Returns log probabilities [R] of the tokens, ids
        [R, k] of the top tokens and their log probabilities [R, k]; k: the largest number that any draw asks for."""
        num_asking, k = len(self.rows), min(max(self.counts), logits.shape[1])
        chosen = torch.empty(num_asking, dtype=torch.float32, device=logits.device)
        top_ids = torch.empty((num_asking, k), dtype=torch.int64, device=logits.device)
        top = torch.empty((num_asking, k), dtype=torch.float32, device=logits.device)
        for first in range(0, num_asking, ROWS_AT_ONCE):
            part = slice(first, first + ROWS_AT_ONCE)
            values = logits.index_select(0, self.rows[part]).float()
            drawn = tokens.index_select(0, self.rows[part])
            kernels.top_logprobs(values, drawn, chosen[part], top_ids[part], top[part], workspace)
        return chosen, top_ids, top

    def read(self, tokens: list[SampledToken], chosen: Array, top_ids: Array, top: Array) -> None:
        """Add log probabilities to the tokens of a step's draws, in place. The arrays are the downloaded results of
        `take`."""
        lists = (chosen.tolist(), top_ids.tolist(), top.tolist())
        for draw, count, logprob, ids, values in zip(self.draws, self.counts, *lists, strict=True):
            likeliest = tuple(zip(ids[:count], values[:count], strict=True))
            token_id = tokens[draw].token_id if logprob == logprob else NO_TOKEN  # NaN behind a mask
            tokens[draw] = SampledToken(token_id, logprob, likeliest)
