"""Keys and values of one layer type in the byte pool, written and gathered by torch operators: unchanged, or in 8 bits
with a scale for every token and head. layout.py says where they lie.

T = tokens, B = sequences, E = pages of each, K = key/value heads, P = tokens in a page, D = head dimension,
L = E * P, N = 2 for keys and values, 1 for keys that values are a part of.
"""

from typing import Protocol

import numpy as np
import torch

from engine.attention.backend import AttentionShape, IntArray
from engine.attention.layout import TypeLayout
from engine.kernels.reference.store_heads import LARGEST, quantised


class Workspace:
    """Memory for gathered keys and values, reused by all layers."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        """dtype: of activations."""
        self._memory = torch.empty(0, dtype=dtype, device=device)

    @property
    def num_bytes(self) -> int:
        """The largest amount that was taken so far."""
        return self._memory.numel() * self._memory.itemsize

    def take(self, num_elements: int) -> torch.Tensor:
        """[num_elements], of undefined content; overwritten by the next call."""
        if self._memory.numel() < num_elements:
            self._memory = self._memory.new_empty(num_elements)
        return self._memory[:num_elements]


class StoredPages(Protocol):
    """How keys and values of one layer type are stored. Places are computed once for all layers of a step."""

    def store_places(self, page_ids: IntArray, offsets: IntArray) -> torch.Tensor:
        """Where tokens are stored. page_ids, offsets [T]."""
        ...

    def read_places(self, page_ids: IntArray) -> torch.Tensor:
        """Where contexts are read. page_ids [B, E]."""
        ...

    def store(self, layer_id: int, key_value: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Store key_value [T, N, K, D]; returns it as later steps will read it, rounded if pages are quantised."""
        ...

    def gather(self, layer_id: int, places: torch.Tensor, num_sequences: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys [B, K, L, D] contiguous and values [B, K, L, output_dim], in a workspace that the next call
        overwrites."""
        ...


def keys_and_values(parts: torch.Tensor, shape: AttentionShape) -> tuple[torch.Tensor, torch.Tensor]:
    """parts [N, ..., D] -> keys [..., D] and values [..., output_dim], as views."""
    return parts[0], parts[-1, ..., shape.head_dim - shape.output_dim :]


def stored_pages(layout: TypeLayout, pool: torch.Tensor, workspace: Workspace) -> StoredPages:
    """QuantisedPages or PlainPages, by the dtype of the layer type."""
    return (QuantisedPages if layout.is_quantised else PlainPages)(layout, pool, workspace)


class PlainPages:
    """Keys and values in the dtype of activations. The pool is a matrix of equal rows, and one index serves all
    layers."""

    def __init__(self, layout: TypeLayout, pool: torch.Tensor, workspace: Workspace) -> None:
        self._layout = layout
        self._workspace = workspace
        self._device = pool.device
        ids = layout.layer_type.layer_ids
        self._gather_rows = {i: layout.layer_rows(pool, i, layout.gather_elements) for i in ids}
        self._store_rows = {i: layout.layer_rows(pool, i, layout.store_elements) for i in ids}

    def store_places(self, page_ids: IntArray, offsets: IntArray) -> torch.Tensor:
        """Indices of rows of store_elements, relative to a layer's first: [T * N * K * rows]."""
        layout = self._layout
        row = layout.store_elements
        parts = np.arange(layout.parts_per_layer) * (layout.part_elements // row)
        head_rows = layout.shape.head_dim // row
        first_rows = page_ids[:, None] * (layout.page_elements // row) + parts + offsets[:, None] * head_rows
        return torch.from_numpy((first_rows[..., None] + np.arange(head_rows)).reshape(-1)).to(self._device)

    def read_places(self, page_ids: IntArray) -> torch.Tensor:
        """Indices of rows of gather_elements, in the order (key or value, sequence, head, page)."""
        layout = self._layout
        row = layout.gather_elements
        part_rows = layout.part_elements // row
        parts = np.arange(layout.parts_per_layer).reshape(-1, 1, layout.shape.num_kv_heads, 1) * part_rows
        first_rows = page_ids[:, None, :] * (layout.page_elements // row) + parts
        return torch.from_numpy((first_rows[..., None] + np.arange(part_rows)).reshape(-1)).to(self._device)

    def store(self, layer_id: int, key_value: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """As StoredPages.store; returns key_value itself."""
        rows = self._store_rows[layer_id]
        rows.index_copy_(0, places, key_value.reshape(-1, rows.shape[1]))
        return key_value

    def gather(self, layer_id: int, places: torch.Tensor, num_sequences: int) -> tuple[torch.Tensor, torch.Tensor]:
        """As StoredPages.gather."""
        shape, rows = self._layout.shape, self._gather_rows[layer_id]
        gathered = self._workspace.take(places.numel() * rows.shape[1]).view(-1, rows.shape[1])
        torch.index_select(rows, 0, places, out=gathered)
        parts = gathered.view(shape.num_parts, num_sequences, shape.num_kv_heads, -1, shape.head_dim)
        return keys_and_values(parts, shape)


class QuantisedPages:
    """Keys and values in 8 bits. All queries read rounded values, also those of the step's own prompts: so a prompt
    gives the same tokens whether it was computed at once, in chunks, or found in the prefix cache."""

    def __init__(self, layout: TypeLayout, pool: torch.Tensor, workspace: Workspace) -> None:
        self._layout = layout
        self._workspace = workspace
        self._device = pool.device
        self._largest = LARGEST[layout.kv_dtype]
        ids = layout.layer_type.layer_ids
        # As bytes: torch does not index every type of 8 bits.
        self._pages = {i: layout.layer_pages(pool, i).view(torch.uint8) for i in ids}
        self._scales = {i: layout.layer_scales(pool, i) for i in ids}

    def store_places(self, page_ids: IntArray, offsets: IntArray) -> torch.Tensor:
        """[2, T]: page ids and offsets."""
        return torch.from_numpy(np.stack((page_ids, offsets))).to(self._device)

    def read_places(self, page_ids: IntArray) -> torch.Tensor:
        """[B, E]: page ids."""
        return torch.from_numpy(page_ids).to(self._device)

    def store(self, layer_id: int, key_value: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """As StoredPages.store; returns the rounded keys and values."""
        kv_dtype, scales = self._layout.kv_dtype, self._scales[layer_id]
        assert scales is not None
        page_ids, offsets = places
        heads = key_value.float()
        factors = heads.abs().amax(dim=-1) / self._largest  # [T, N, K]
        rounded = quantised(heads, factors[..., None], kv_dtype)
        self._pages[layer_id][page_ids, :, :, offsets] = rounded.view(torch.uint8)
        scales[page_ids, :, :, offsets] = factors
        return (rounded.float() * factors[..., None]).to(key_value.dtype)

    def gather(self, layer_id: int, places: torch.Tensor, num_sequences: int) -> tuple[torch.Tensor, torch.Tensor]:
        """As StoredPages.gather, multiplied with the scales."""
        scales = self._scales[layer_id]
        assert scales is not None
        heads = self._pages[layer_id][places].view(self._layout.kv_dtype).float()  # [B, E, N, K, P, D]
        heads.mul_(scales[places][..., None])
        ordered = heads.permute(2, 0, 3, 1, 4, 5)
        gathered = self._workspace.take(heads.numel()).view(ordered.shape).copy_(ordered)
        return keys_and_values(gathered.flatten(3, 4), self._layout.shape)
