"""Token counts after proposed tokens: a draw behind some of them has seen these, too. In plain torch on the device,
since few requests have penalties; nothing waits for the device. n = such draws of a part, S = slots, V = vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.runner.device.draws import Draw
from engine.runner.device.transfer import Upload


@dataclass(frozen=True, slots=True)
class DraftCounts:
    """The inputs, in the step's upload."""

    rows: torch.Tensor  #: [n] int64: index of each draw in the part
    slots: torch.Tensor  #: [n] int64
    places: torch.Tensor  #: [tokens] int64: draw * V + proposed token before it

    @classmethod
    def send(cls, upload: Upload, draws: Sequence[Draw], vocab_size: int) -> "DraftCounts | None":
        """Put the inputs of the draws of a part into the upload; None: none is penalised behind a proposed token."""
        rows = [row for row, draw in enumerate(draws) if draw.place and draw.sequence.params.needs_history]
        if not rows:
            return None
        tokens = [
            index * vocab_size + token_id
            for index, row in enumerate(rows)
            for token_id in draws[row].sequence.drafts[: draws[row].place]
        ]
        slots = [draws[row].sequence.slot for row in rows]
        return cls(*(upload.put(np.array(values, np.int64)) for values in (rows, slots, tokens)))

    def of(self, counts: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
        """The counts [n, V] of these draws. counts [S, V] int32: of the slots; two [1]: what an output token counts."""
        own = counts.index_select(0, self.slots)
        own.view(-1).index_add_(0, self.places, two.expand(len(self.places)))
        return own
