"""Reads rows of prompts on the device: log probabilities of the tokens after them, and sums of final hidden states.
Queued like the step; the results have a download of their own, since few steps have any. R = rows of one sequence,
H = hidden size, V = vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.batch import ScheduledSequence
from engine.kernels.step_kernels import SamplingWorkspace, StepKernels
from engine.prompt_reading import RowsRead, ScoredRows
from engine.runner.device.transfer import Array, Download, Upload
from engine.sampling.prompt_rows import ROWS_AT_ONCE, sum_of_rows, token_scores


@dataclass(frozen=True, slots=True)
class RowsOnTheirWay:
    """The results of a step that has been queued."""

    sequences: Sequence[ScheduledSequence]
    download: Download

    def wait(self) -> tuple[RowsRead | None, ...]:
        """Wait for the results, in the order of the step's sequences."""
        arrays = iter(self.download.wait())
        return tuple(self._read(sequence, arrays) for sequence in self.sequences)

    @staticmethod
    def _read(sequence: ScheduledSequence, arrays: Iterator[Array]) -> RowsRead | None:
        if sequence.scored is not None:
            chosen, top_ids, top = (next(arrays).tolist() for _ in range(3))
            return RowsRead(scores=tuple(token_scores(chosen, top_ids, top)))
        if sequence.pooled is not None:
            return RowsRead(total=tuple(next(arrays).tolist()))
        return None


class PromptRows:
    """Queues the reading of a step's rows, after its forward pass."""

    def __init__(
        self,
        kernels: StepKernels,
        logits_of: Callable[[torch.Tensor], torch.Tensor],
        vocab_size: int,
        workspace: SamplingWorkspace,
    ) -> None:
        """logits_of: [R, H] -> [R, V]. workspace: for as many rows as a step can sample."""
        self._kernels = kernels
        self._logits_of = logits_of
        self._vocab_size = vocab_size
        self._workspace = workspace
        self._rows_at_once = min(ROWS_AT_ONCE, len(workspace.maxima))

    @staticmethod
    def are_wanted(sequences: Sequence[ScheduledSequence]) -> bool:
        """Whether a step of these sequences has rows to be read."""
        return any([sequence.scored is not None or sequence.pooled is not None for sequence in sequences])

    def send(
        self, upload: Upload, sequences: Sequence[ScheduledSequence]
    ) -> Callable[[torch.Tensor], RowsOnTheirWay] | None:
        """Put the inputs into the upload; None: there are no rows to be read. The result queues the reading; it takes
        the final hidden states of the step's tokens, [T, H]."""
        if not self.are_wanted(sequences):
            return None
        token_ids = [
            None if s.scored is None else upload.put(np.array(s.scored.next_token_ids, np.int64)) for s in sequences
        ]

        def read(hidden: torch.Tensor) -> RowsOnTheirWay:
            tensors: list[torch.Tensor] = []
            start = 0
            for sequence, wanted in zip(sequences, token_ids, strict=True):
                scored, pooled = sequence.scored, sequence.pooled
                rows = hidden[start : start + len(sequence.token_ids)]
                if scored is not None and wanted is not None:
                    tensors += self._score(scored, rows[scored.first_row :], wanted)
                elif pooled is not None:
                    tensors.append(sum_of_rows(rows[pooled.first_row : pooled.first_row + pooled.num_rows]))
                start += len(sequence.token_ids)
            download = Download.for_tensors(tensors, hidden.device)
            download.start(*tensors)
            return RowsOnTheirWay(sequences, download)

        return read

    def _score(self, scored: ScoredRows, hidden: torch.Tensor, token_ids: torch.Tensor) -> list[torch.Tensor]:
        """Log probabilities [R] of the tokens, ids [R, k] of the likeliest and theirs [R, k]. token_ids [R]; hidden has
        R rows or more."""
        num_rows, k = len(token_ids), min(scored.num_top, self._vocab_size)
        chosen = torch.empty(num_rows, dtype=torch.float32, device=hidden.device)
        top_ids = torch.empty((num_rows, k), dtype=torch.int64, device=hidden.device)
        top = torch.empty((num_rows, k), dtype=torch.float32, device=hidden.device)
        for first in range(0, num_rows, self._rows_at_once):
            part = slice(first, min(num_rows, first + self._rows_at_once))
            logits = self._logits_of(hidden[part]).float()
            self._kernels.top_logprobs(logits, token_ids[part], chosen[part], top_ids[part], top[part], self._workspace)
        return [chosen, top_ids, top]
