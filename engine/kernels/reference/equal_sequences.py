"""The sequences of a step in groups of equal length, so that kernels of recurrent states compute a group at once: all
decodes together, and each prompt with the prompts of its length.

B = sequences of a group, L = tokens of each of them.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from engine.kernels.state_kernels import StatesInPlace


@dataclass(frozen=True, slots=True)
class EqualSequences:
    """Sequences with equally many tokens."""

    rows: torch.Tensor  #: [B, L]: rows of their tokens in the step
    page_ids: torch.Tensor  #: [B]
    before: torch.Tensor  #: [B, *shape]: copies of their states before the step; zeros for sequences that begin


def equal_sequences(states: StatesInPlace) -> Iterator[EqualSequences]:
    """All sequences but padding rows. Reads numbers on the host."""
    bounds, pages, starts = (part.tolist() for part in (states.query_starts, states.page_ids, states.starts))
    by_length = defaultdict(list)
    for sequence, page_id in enumerate(pages):
        if page_id >= 0:
            by_length[bounds[sequence + 1] - bounds[sequence]].append(sequence)
    device = states.pages.device
    for length, sequences in by_length.items():
        first_rows = torch.tensor([bounds[sequence] for sequence in sequences], device=device)
        page_ids = torch.tensor([pages[sequence] for sequence in sequences], device=device)
        before = states.pages.index_select(0, page_ids)
        # The page of a new sequence may hold what another layer type has left in it, even NaN.
        before[[index for index, sequence in enumerate(sequences) if starts[sequence] == 0]] = 0
        yield EqualSequences(first_rows[:, None] + torch.arange(length, device=device), page_ids, before)
