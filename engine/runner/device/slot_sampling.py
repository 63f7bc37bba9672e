"""The sampling parameters of every slot, on the device. They are sent when a sequence gets a slot, not in every step.

A sequence's first step in a slot replaces the slot's page tables: that is how a new sequence is seen (engine/batch.py).
Its parameters are sent with the first token that it samples, because steps of an incomplete prompt carry no seed. S =
slots.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.batch import PageTableUpdate, ScheduledSequence
from engine.kernels.step_kernels import SAMPLING_WORDS
from engine.runner.device.draws import MAX_INT32
from engine.runner.device.transfer import Upload
from engine.sampling_params import SamplingParams

#: The words of a slot, in the order of SAMPLING_WORDS.
_PARAMETERS = np.dtype(
    [
        ("temperature", np.float32),
        ("top_k", np.int32),
        ("top_p", np.float32),
        ("min_p", np.float32),
        ("seed", np.uint64),
        ("counter_offset", np.int32),
        ("unused", np.int32),
    ]
)
assert _PARAMETERS.itemsize == SAMPLING_WORDS * np.dtype(np.int32).itemsize


@dataclass(frozen=True, slots=True)
class NewParameters:
    """Slots with a new sequence, and their parameters, in the step's upload."""

    slots: torch.Tensor  #: [n] int64
    words: torch.Tensor  #: [n, SAMPLING_WORDS] int32


class SlotSampling:
    """Owner of the sampling parameters on the device, and of what the host must know about them."""

    def __init__(self, num_slots: int, device: torch.device) -> None:
        #: [S, SAMPLING_WORDS] int32; zeros are greedy
        self.parameters = torch.zeros((num_slots, SAMPLING_WORDS), dtype=torch.int32, device=device)
        self._unsent = set(range(num_slots))  # slots whose sequence has not sampled yet
        self._special: set[int] = set()  # slots whose sequence takes part in post-sampling

    def note(self, updates: Iterable[PageTableUpdate]) -> None:
        """Take notice of sequences that are new in their slots; call it for every step, before `send`."""
        self._unsent.update([update.slot for update in updates if not update.start])

    def send(self, upload: Upload, sequences: Sequence[ScheduledSequence]) -> NewParameters | None:
        """Put the parameters of new sequences that sample in this step into the upload. None: there are none."""
        if not self._unsent:
            return None
        news = [s for s in sequences if s.num_samples and s.slot in self._unsent]
        if not news:
            return None
        for sequence in news:
            # The own seed of a slot is not known before parallel samples have their slots.
            if sequence.num_samples == 1 or sequence.num_drafts:
                self._unsent.discard(sequence.slot)
            change = self._special.add if _takes_part(sequence.params) else self._special.discard
            change(sequence.slot)
        words = np.array([_words(sequence) for sequence in news], _PARAMETERS).view(np.int32)
        slots = np.array([sequence.slot for sequence in news], np.int64)
        return NewParameters(upload.put(slots), upload.put(words).view(len(news), SAMPLING_WORDS))

    def write(self, news: NewParameters | None) -> None:
        """Queue the write of what `send` has put into the upload."""
        if news is not None:
            self.parameters.index_copy_(0, news.slots, news.words)

    def has_special(self, sequences: Iterable[ScheduledSequence]) -> bool:
        """Whether any of these sequences may take part in post-sampling; exact once `send` has seen the step."""
        return bool(self._special) and not self._special.isdisjoint([sequence.slot for sequence in sequences])


def _takes_part(params: SamplingParams) -> bool:
    return params.needs_masks or params.changes_logits_at(0) or params.num_top_logprobs is not None


def _words(sequence: ScheduledSequence) -> tuple[float, int, float, float, int, int, int]:
    params = sequence.params
    # Both grow by one with every token that the slot samples.
    offset = sequence.output_index - sequence.start - len(sequence.token_ids) + sequence.num_drafts
    sampling = (params.temperature, min(params.top_k, MAX_INT32), params.top_p, params.min_p)
    return (*sampling, sequence.seeds[0], offset, 0)
