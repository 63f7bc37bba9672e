"""Post-sampling of draws whose requests change logits: masks, penalties, biases, forbidden tokens, and filters that
the sampling kernel does not have (row_filters.py). Their rows are copied, changed and sampled again after the step's
own sampling; the host does not wait.

The device counts how often every slot has seen every token, since it has the newest tokens. The host sends all tokens
of a sequence once, when it first samples in its slot. So sequences with penalties can continue from pending tokens too,
and a decode step's graph is the same with and without them.

R = draws with changed logits, S = slots, V = vocabulary, N = biases of the draw with most of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.kernels.step_kernels import SamplingWorkspace, StepKernels
from engine.runner.device.draft_counts import DraftCounts
from engine.runner.device.draws import Draw, sampling_columns
from engine.runner.device.mask_upload import SentMasks
from engine.runner.device.row_filters import RowFilters
from engine.runner.device.step_inputs import DrawInputs
from engine.runner.device.transfer import Upload
from engine.sampling.penalties import biases_of

#: Number of rows whose logits are copied at once: 32 MiB of float32 at 128k tokens.
ROWS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class _NewSlots:
    """Slots whose sequence samples for the first time, and the tokens that it has already."""

    slots: torch.Tensor  #: [n] int64
    prompt_places: torch.Tensor  #: [tokens] int64: slot * V + token
    output_places: torch.Tensor  #: [tokens] int64, likewise


@dataclass(frozen=True, slots=True)
class ChangedDraws:
    """The inputs of a step for its draws with changed logits, in the step's upload."""

    inputs: DrawInputs  #: rows of the step's logits and tokens, and slots
    draws: np.ndarray  #: [R], on the host: index of each among all draws of the step
    new_slots: _NewSlots
    counted_slots: torch.Tensor  #: [R] int64: row of counts, -1: no penalties
    penalties: tuple[torch.Tensor, ...]  #: repetition, presence, frequency, each [R] float32
    bias_tokens: torch.Tensor  #: [R, N] int32, -1: padding
    biases: torch.Tensor  #: [R, N] float32
    sampling: tuple[torch.Tensor, ...]  #: as sampling_columns, each [R]
    drawing: torch.Tensor  #: [n] int64: indices of draws whose token is counted in their slot
    drawing_slots: torch.Tensor  #: [n] int64
    filters: tuple[RowFilters, ...]  #: one for each ROWS_AT_ONCE rows
    drafted: tuple[DraftCounts | None, ...]  #: likewise: penalties behind proposed tokens


class ChangedLogits:
    """Samples draws with changed logits. Owns the token counts of all slots."""

    def __init__(
        self,
        kernels: StepKernels,
        num_slots: int,
        vocab_size: int,
        eos_token_ids: frozenset[int],
        workspace: SamplingWorkspace,
        device: torch.device,
    ) -> None:
        self._kernels = kernels
        self._num_slots = num_slots
        self.vocab_size = vocab_size
        self.eos_token_ids = eos_token_ids
        self._workspace = workspace
        #: [S, V]: twice the occurrences in the output, plus one if the token occurs in the prompt.
        self._counts = torch.zeros((num_slots, vocab_size), dtype=torch.int32, device=device)
        self._two = torch.full((1,), 2, dtype=torch.int32, device=device)

    def send(self, upload: Upload, draws: Sequence[Draw], places: Sequence[int]) -> ChangedDraws | None:
        """Put the inputs into the upload. draws: all of a step; places: the row of logits and tokens of each. None: no
        draw changes logits."""
        indices = [index for index, draw in enumerate(draws) if draw.is_drawn_again]
        return self.prepare(upload, draws, places, indices) if indices else None

    def prepare(
        self, upload: Upload, draws: Sequence[Draw], places: Sequence[int], indices: Sequence[int]
    ) -> ChangedDraws:
        """As `send`, for the draws of these indices, beams or not."""
        changing = [draws[index] for index in indices]
        params = [draw.sequence.params for draw in changing]
        penalties = np.array([(p.repetition_penalty, p.presence_penalty, p.frequency_penalty) for p in params])
        needs = np.array([p.needs_history for p in params])
        slots = np.array([draw.sequence.slot for draw in changing])
        drawing = np.flatnonzero(needs & [draw.is_newest_token for draw in changing])
        bias_tokens, biases = self._biases(changing)
        return ChangedDraws(
            inputs=DrawInputs.send(upload, [places[index] for index in indices], changing, self._num_slots),
            draws=np.array(indices, np.int64),
            new_slots=self._new_slots(upload, changing),
            counted_slots=upload.put(np.where(needs & [not draw.place for draw in changing], slots, -1)),
            penalties=tuple(upload.put(column) for column in penalties.T.astype(np.float32)),
            bias_tokens=upload.put(bias_tokens.ravel()).view(bias_tokens.shape),
            biases=upload.put(biases.ravel()).view(biases.shape),
            sampling=tuple(upload.put(column) for column in sampling_columns(changing)),
            drawing=upload.put(drawing),
            drawing_slots=upload.put(slots[drawing]),
            filters=tuple(
                RowFilters.send(upload, params[first : first + ROWS_AT_ONCE], self.vocab_size)
                for first in range(0, len(params), ROWS_AT_ONCE)
            ),
            drafted=tuple(
                DraftCounts.send(upload, changing[first : first + ROWS_AT_ONCE], self.vocab_size)
                for first in range(0, len(params), ROWS_AT_ONCE)
            ),
        )

    def note_histories(self, changed: ChangedDraws) -> None:
        """Count the tokens that the host has sent with the step."""
        counts, news = self._counts.view(-1), changed.new_slots
        if len(news.slots):
            self._counts.index_fill_(0, news.slots, 0)
            counts.index_fill_(0, news.prompt_places, 1)
            counts.index_add_(0, news.output_places, self._two.expand(len(news.output_places)))

    def change(self, changed: ChangedDraws, scores: torch.Tensor, part: slice) -> None:
        """Biases, penalties and filters of one part of ROWS_AT_ONCE draws, on their scores [R, V] float32, in place."""
        if changed.biases.shape[1]:
            self._kernels.add_biases(scores, changed.bias_tokens[part], changed.biases[part])
        penalties = [column[part] for column in changed.penalties]
        self._kernels.penalise(scores, changed.counted_slots[part], self._counts, *penalties)
        drafted = changed.drafted[part.start // ROWS_AT_ONCE]
        if drafted is not None:
            rows, counts = scores.index_select(0, drafted.rows), drafted.of(self._counts, self._two)
            places = torch.arange(len(rows), device=rows.device)
            self._kernels.penalise(
                rows, places, counts, *(column.index_select(0, drafted.rows) for column in penalties)
            )
            scores.index_copy_(0, drafted.rows, rows)
        changed.filters[part.start // ROWS_AT_ONCE].apply(scores)

    def draw(
        self,
        changed: ChangedDraws,
        masks: SentMasks | None,
        logits: torch.Tensor,
        tokens: torch.Tensor,
        last_tokens: torch.Tensor,
    ) -> None:
        """Sample these draws again, and count their tokens. masks: what some of them may sample; None: all are free.

        logits [rows, V] are those of the model and are not changed; the new tokens are written to tokens [rows] int64
        and last_tokens [S + 1] int64.
        """
        self.note_histories(changed)
        rows = changed.inputs.rows
        drawn = torch.empty_like(rows)
        for first in range(0, len(rows), ROWS_AT_ONCE):
            part = slice(first, first + ROWS_AT_ONCE)
            scores = logits.index_select(0, rows[part]).float()
            if masks is not None:
                self._kernels.mask_tokens(scores, masks.rows[part], masks.words)
            self.change(changed, scores, part)
            temperatures, top_k, top_p, min_p, seeds, counters = (column[part] for column in changed.sampling)
            self._kernels.sample(
                scores, temperatures, top_k, top_p, min_p, seeds, counters, drawn[part], self._workspace
            )
        tokens.index_copy_(0, rows, drawn)
        drawn = drawn.clamp(min=0)  # NO_TOKEN: any
        last_tokens.index_copy_(0, changed.inputs.slots, drawn)
        if len(changed.drawing):
            places = changed.drawing_slots * self.vocab_size + drawn.index_select(0, changed.drawing)
            self._counts.view(-1).index_add_(0, places, self._two.expand(len(places)))

    def _new_slots(self, upload: Upload, draws: Sequence[Draw]) -> _NewSlots:
        told = {draw.sequence.slot: draw.sequence for draw in draws if draw.sequence.history is not None}
        prompts, outputs = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for slot, sequence in told.items():
            assert sequence.history is not None
            places = np.array(sequence.history, np.int64) + slot * self.vocab_size
            first_output = len(places) - sequence.output_index
            prompts.append(places[:first_output])
            outputs.append(places[first_output:])
        slots = np.array(list(told), np.int64)
        return _NewSlots(upload.put(slots), upload.put(np.concatenate(prompts)), upload.put(np.concatenate(outputs)))

    def _biases(self, draws: Sequence[Draw]) -> tuple[np.ndarray, np.ndarray]:
        """Token ids and biases, [R, N]."""
        of_each = [
            biases_of(
                draw.sequence.params,
                draw.output_index,
                self.eos_token_ids,
                self.vocab_size,
                draw.sequence.banned_token_ids,
            )
            for draw in draws
        ]
        shape = (len(draws), max(map(len, of_each)))
        token_ids, biases = np.full(shape, -1, np.int32), np.zeros(shape, np.float32)
        for row, of_one in enumerate(of_each):
            token_ids[row, : len(of_one)] = list(of_one.keys())
            biases[row, : len(of_one)] = list(of_one.values())
        return token_ids, biases
