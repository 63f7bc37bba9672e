"""The masks of a step on their way to the device: sent after the step's own upload, while its forward pass computes.

N = masks, V = vocabulary, W = words of a mask.
"""

from dataclasses import dataclass

import numpy as np
import torch

from engine.batch import TokenMasks
from engine.runner.device.transfer import Upload


@dataclass(frozen=True, slots=True)
class SentMasks:
    """The masks of a step's draws with changed logits, on the device."""

    rows: torch.Tensor  #: [R] int64: mask of each of these draws, -1: none
    words: torch.Tensor  #: [N, W] int32


class MaskUpload:
    """Owner of the memory through which masks are sent."""

    def __init__(self, num_slots: int, vocab_size: int, device: torch.device) -> None:
        num_bytes = num_slots * (-(-vocab_size // 32) * 4 + 8) + 64
        self._upload = Upload({}, 0, num_bytes, device)

    def send(self, masks: TokenMasks, changing: np.ndarray) -> SentMasks:
        """Queue the copy. changing [R]: the draws whose logits change, ascending; those with a mask are among them."""
        places = np.searchsorted(changing, masks.draws)
        rows = np.full(len(changing), -1, np.int64)
        rows[places] = np.arange(len(places))
        self._upload.begin()
        sent = SentMasks(self._upload.put(rows), self._upload.put(masks.words.ravel()).view(masks.words.shape))
        self._upload.send()
        return sent
