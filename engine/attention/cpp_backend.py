"""Paged attention by the C++ operators: two calls a layer, whatever the mixture of prompts, chunks and decodes.

Keys and values stand inside their part of a page as engine/kernels/cpu/layout.h says, so a pool belongs to this backend
from its first step on. T = tokens of the step, H, K = query and key/value heads, D = head dimension.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.attention.backend import AttentionShape, HeadNorms, IntArray, StepLayout
from engine.attention.layout import type_layouts
from engine.attention.rotation import Rotation
from engine.kernels.cpu.library import Library
from engine.memory.spec import PoolPlan

#: Channels that every instruction set handles in whole vectors.
_VECTOR = 16
_MAX_HEAD_DIM = 512


def unsupported_reason(plan: PoolPlan, shapes: Sequence[AttentionShape], dtype: torch.dtype) -> str | None:
    """Why this backend cannot serve a model; None if it can."""
    for shape in shapes:
        if shape.head_dim % _VECTOR or shape.head_dim > _MAX_HEAD_DIM:
            return f"heads of {shape.head_dim} channels (multiples of {_VECTOR} up to {_MAX_HEAD_DIM} are supported)"
    for kind in plan.types:
        if dtype == torch.bfloat16 and kind.page_tokens % 2:
            return f"pages of {kind.page_tokens} tokens (bfloat16 needs an even number)"
        if kind.small_page_bytes % 4:
            return f"pages of {kind.small_page_bytes} bytes (a multiple of 4 is needed)"
    return None


@dataclass(frozen=True, slots=True)
class _Layer:
    """What does not change between steps."""

    type_id: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    page_tokens: int
    pages: int  #: address of the layer's part of small page 0
    page_stride: int  #: elements
    scale: float
    window: int  #: 0: none
    softcap: float  #: 0: none


class CppBackend:
    def __init__(
        self,
        plan: PoolPlan,
        pool: torch.Tensor,
        shapes: tuple[AttentionShape, ...],
        dtype: torch.dtype,
        library: Library,
    ) -> None:
        """pool: bytes [plan.pool_bytes]; shapes by layer id."""
        assert unsupported_reason(plan, shapes, dtype) is None
        self._pool = pool
        self._num_threads = library.num_threads
        self._store = library.function("store", dtype)
        self._attend = library.function("paged_attention", dtype)
        layouts = type_layouts(plan, shapes)
        self._names = [layout.layer_type.name for layout in layouts]
        type_of = {i: which for which, layout in enumerate(layouts) for i in layout.layer_type.layer_ids}
        self._layers = []
        for layer_id, shape in enumerate(shapes):
            layout = layouts[type_of[layer_id]]
            pages = layout.layer_pages(pool, dtype, layer_id)
            self._layers.append(
                _Layer(
                    type_id=type_of[layer_id],
                    num_heads=shape.num_heads,
                    num_kv_heads=shape.num_kv_heads,
                    head_dim=shape.head_dim,
                    page_tokens=layout.layer_type.page_tokens,
                    pages=pages.data_ptr(),
                    page_stride=pages.stride(0),
                    scale=shape.scale,
                    window=layout.window or 0,
                    softcap=shape.softcap or 0.0,
                )
            )

    @property
    def name(self) -> str:
        return "cpp"

    def begin(self, layout: StepLayout) -> "CppStep":
        return CppStep(self, layout, [np.ascontiguousarray(layout.page_tables[name]) for name in self._names])

    def attend(
        self,
        layer_id: int,
        qkv: torch.Tensor,
        rotation: Rotation | None,
        head_norms: HeadNorms | None,
        step: "CppStep",
    ) -> torch.Tensor:
        layer = self._layers[layer_id]
        assert qkv.is_contiguous()
        num_tokens, row = qkv.shape[0], qkv.stride(0)
        table, table_stride = step.tables[layer.type_id]
        self._store(
            qkv.data_ptr(), row,
            0 if rotation is None else rotation.cos.data_ptr(), 0 if rotation is None else rotation.sin.data_ptr(),
            0 if head_norms is None else head_norms.query.data_ptr(),
            0 if head_norms is None else head_norms.key.data_ptr(),
            0.0 if head_norms is None else head_norms.eps,
            layer.pages, layer.page_stride, table, table_stride, step.sequences, step.positions, num_tokens,
            layer.num_heads, layer.num_kv_heads, layer.head_dim,
            0 if rotation is None else 2 * rotation.cos.shape[1], layer.page_tokens, self._num_threads,
        )  # fmt: skip
        output = torch.empty((num_tokens, layer.num_heads * layer.head_dim), dtype=qkv.dtype)
        self._attend(
            qkv.data_ptr(), row, output.data_ptr(), output.stride(0), layer.pages, layer.page_stride,
            table, table_stride, step.starts, step.lengths, step.num_sequences,
            layer.num_heads, layer.num_kv_heads, layer.head_dim, layer.page_tokens,
            layer.scale, layer.window, layer.softcap, self._num_threads,
        )  # fmt: skip
        return output


class CppStep:
    """The arrays of one step, kept alive, and their addresses."""

    def __init__(self, backend: CppBackend, layout: StepLayout, tables: list[IntArray]) -> None:
        self._backend = backend
        self.num_sequences = len(layout.lengths)
        sequences = np.repeat(np.arange(self.num_sequences), layout.lengths)
        self._arrays = (tables, sequences, layout.positions, layout.starts, layout.lengths)
        self.tables = [(table.ctypes.data, table.strides[0] // 8) for table in tables]
        self.sequences, self.positions, self.starts, self.lengths = (array.ctypes.data for array in self._arrays[1:])

    def attend(
        self, layer_id: int, qkv: torch.Tensor, rotation: Rotation | None, head_norms: HeadNorms | None
    ) -> torch.Tensor:
        return self._backend.attend(layer_id, qkv, rotation, head_norms, self)
