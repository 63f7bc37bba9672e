"""Scattered writes that skip items with place -1, with fixed shapes and without waiting for the device.

A skipped item is redirected to the place of the first real item and gets its value, so no place is written with two
different values. If all items are skipped, the value at place 0 is written there again.
"""

import torch

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Places:
    """Places in pages for the tokens of a step; made by store_heads, used for keys, values and their scales."""

    def __init__(self, page_places: torch.Tensor, page_tokens: int) -> None:
        """page_places [T] int64: page * page_tokens + offset, all distinct, or -1: not written."""
        self._is_real = page_places >= 0
        self._first = self._is_real.to(torch.int8).argmax(dim=0, keepdim=True)  # [1]
        self._has_any = self._is_real.index_select(0, self._first)
        first_place = torch.where(self._has_any, page_places.index_select(0, self._first), 0)
        places = torch.where(self._is_real, page_places, first_place)
        self._page_ids, self._offsets = places // page_tokens, places % page_tokens

    def write(self, target: torch.Tensor, values: torch.Tensor) -> None:
        """Writes values [T, K] or [T, K, D] at the tokens' places of target [N, K, P] or [N, K, P, D] (same dtype)."""
        bits = _BITS[target.itemsize]  # index_put_ does not take every dtype
        target, values = target.view(bits), values.contiguous().view(bits)
        shape = (-1,) + (1,) * (values.dim() - 1)
        stored = target[self._page_ids[:1], :, self._offsets[:1]]
        filler = torch.where(self._has_any.view(shape), values.index_select(0, self._first), stored)
        target[self._page_ids, :, self._offsets] = torch.where(self._is_real.view(shape), values, filler)
