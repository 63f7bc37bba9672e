"""Filters of rows that no kernel has: few allowed tokens, and typical-p. In plain torch on the device, after biases and
penalties, since few requests ask for them; nothing waits for the device. R = rows that share a call, V = vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.runner.device.transfer import Upload
from engine.sampling.allowed_tokens import allowed_tokens, forbid_others
from engine.sampling.typical import is_typical, truncate_typical, typical_columns
from engine.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class RowFilters:
    """The inputs, in the step's upload."""

    allowed: tuple[torch.Tensor, torch.Tensor] | None  #: rows [n] int64, and their allowed tokens [n, N] int64
    typical_rows: torch.Tensor | None  #: [m] int64
    typical_columns: tuple[torch.Tensor, ...]  #: as truncate_typical, each [m]

    @classmethod
    def send(cls, upload: Upload, params: Sequence[SamplingParams], vocab_size: int) -> "RowFilters":
        """Put the inputs of these rows into the upload."""
        allowed = allowed_tokens(params, vocab_size)
        typical = [index for index, each in enumerate(params) if is_typical(each)]
        temperatures, top_k, top_p, min_p, typical_p = typical_columns([params[index] for index in typical])
        columns = (
            np.array(temperatures, np.float32),
            np.array(top_k, np.int64),
            np.array(top_p, np.float32),
            np.array(min_p, np.float32),
            np.array(typical_p, np.float32),
        )
        return cls(
            None if allowed is None else (upload.put(allowed[0]), _put_table(upload, allowed[1])),
            upload.put(np.array(typical, np.int64)) if typical else None,
            tuple(upload.put(column) for column in columns) if typical else (),
        )

    def apply(self, scores: torch.Tensor) -> None:
        """Change scores [R, V] float32 in place; those of typical rows become scores to draw from as they are."""
        if self.allowed is not None:
            forbid_others(scores, *self.allowed)
        if self.typical_rows is not None:
            rows = scores.index_select(0, self.typical_rows)
            scores.index_copy_(0, self.typical_rows, truncate_typical(rows, *self.typical_columns))


def _put_table(upload: Upload, table: np.ndarray) -> torch.Tensor:
    return upload.put(table.ravel()).view(table.shape)
