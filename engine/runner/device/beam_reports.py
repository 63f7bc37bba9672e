"""What beams may go on with: computed from a step's logits after its own sampling, and downloaded with its tokens.

In plain torch on the device: it orders whole rows by log probabilities after biases and penalties, which no kernel
does. The host sends the tokens of a beam with penalties in every step, because it chooses them. R = beams of the step,
V = vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.batch import SampledToken
from engine.runner.device.changed_logits import ROWS_AT_ONCE, ChangedDraws, ChangedLogits
from engine.runner.device.draws import Draw
from engine.runner.device.transfer import Array, Upload
from engine.sampling.beam_candidates import NUM_CANDIDATES, beam_candidates, read_report, stop_ids_of

#: Download of a beam: ids and log probabilities.
BYTES_PER_BEAM = NUM_CANDIDATES * (8 + 4)


@dataclass(frozen=True, slots=True)
class BeamReports:
    """The beams of a step."""

    rows: torch.Tensor  #: [R] int64, on the device: row of the step's logits
    draws: Sequence[int]  #: index of each among the step's draws
    stop_ids: torch.Tensor  #: [R, N] int64, on the device; -1: padding
    changed: ChangedDraws | None  #: biases and penalties of all of them; None: there are none

    @classmethod
    def send(
        cls, upload: Upload, draws: Sequence[Draw], places: Sequence[int], changed_logits: ChangedLogits
    ) -> "BeamReports | None":
        """Put the inputs into the upload. draws: all of a step; places: the row of logits of each. None: there is no
        beam."""
        beams = [index for index, draw in enumerate(draws) if draw.sequence.params.beam is not None]
        if not beams:
            return None
        of_beams = [draws[index] for index in beams]
        eos_token_ids = changed_logits.eos_token_ids
        stops = [draw.sequence.params.stop_ids(eos_token_ids) for draw in of_beams]
        stop_ids = np.array(stop_ids_of(stops, changed_logits.vocab_size), np.int64)
        changed = None
        if any(draw.changes_logits for draw in of_beams):
            changed = changed_logits.prepare(upload, of_beams, range(len(beams)), range(len(beams)))
        return cls(
            rows=upload.put(np.array([places[index] for index in beams], np.int64)),
            draws=beams,
            stop_ids=upload.put(stop_ids.ravel()).view(stop_ids.shape),
            changed=changed,
        )

    def take(self, logits: torch.Tensor, changed_logits: ChangedLogits) -> tuple[torch.Tensor, torch.Tensor]:
        """Queue the work on logits [rows, V]. Returns token ids [R, C] int64 and log probabilities [R, C] float32."""
        if self.changed is not None:
            changed_logits.note_histories(self.changed)
        reports: list[tuple[torch.Tensor, torch.Tensor]] = []
        for first in range(0, len(self.rows), ROWS_AT_ONCE):
            part = slice(first, first + ROWS_AT_ONCE)
            logprobs = logits.index_select(0, self.rows[part]).float().log_softmax(dim=-1)
            if self.changed is not None:
                changed_logits.change(self.changed, logprobs, part)
            reports.append(beam_candidates(logprobs, self.stop_ids[part]))
        ids, values = zip(*reports, strict=True)
        return torch.cat(ids), torch.cat(values)

    def read(self, tokens: list[SampledToken], token_ids: Array, logprobs: Array) -> None:
        """Replace the tokens of beams by their reports, in place. The arrays are the downloaded results of `take`."""
        for draw, ids, values in zip(self.draws, token_ids.tolist(), logprobs.tolist(), strict=True):
            tokens[draw] = read_report(ids, values)
