"""Writing to places some of which are "nowhere" (-1), in fixed shapes and without waiting for the device.

What goes nowhere is written where the first real item goes, and is made equal to it: so nothing is written twice with
different values. Without any real item, what lies at place 0 is written there again.
"""

import torch

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Places:
    def __init__(self, page_places: torch.Tensor, page_tokens: int) -> None:
        """page_places [T] int64: page * page_tokens + offset, all distinct, or -1."""
        self._is_real = page_places >= 0
        self._first = self._is_real.to(torch.int8).argmax(dim=0, keepdim=True)  # [1]
        self._has_any = self._is_real.index_select(0, self._first)
        first_slot = torch.where(self._has_any, page_places.index_select(0, self._first), 0)
        slots = torch.where(self._is_real, page_places, first_slot)
        self._page_ids, self._offsets = slots // page_tokens, slots % page_tokens

    def write(self, target: torch.Tensor, values: torch.Tensor) -> None:
        """target [N, K, P] or [N, K, P, D], strided; values [T, K] or [T, K, D] of the same dtype."""
        bits = _BITS[target.itemsize]  # index_put_ does not take every dtype
        target, values = target.view(bits), values.contiguous().view(bits)
        shape = (-1,) + (1,) * (values.dim() - 1)
        stored = target[self._page_ids[:1], :, self._offsets[:1]]
        filler = torch.where(self._has_any.view(shape), values.index_select(0, self._first), stored)
        target[self._page_ids, :, self._offsets] = torch.where(self._is_real.view(shape), values, filler)
