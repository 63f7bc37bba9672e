"""Paged attention by the C++ operators, for any mixture of prompts, chunks and decodes: a layer in one call, or as
steps of a recorded list together with the other operators (engine/kernels/cpu/steps.py).

Inside a page, keys and values have the order of engine/kernels/cpu/layout.h, so no other backend can read a pool that
this one has written. T = tokens of the step, H, K = query and key/value heads, D = head dimension.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.attention.backend import AttentionShape, HeadNorms, IntArray, StepLayout
from engine.attention.layout import type_layouts, types_of_layers
from engine.attention.rotation import Rotation
from engine.kernels.adapters import AdapterRows
from engine.kernels.cpu.functions import address
from engine.kernels.cpu.library import Library
from engine.kernels.cpu.recorder import CppRecorder
from engine.kernels.cpu.scratch import Scratch
from engine.kernels.cpu.steps import (
    STREAM,
    UPDATE,
    AttentionLayer,
    Inputs,
    PageTable,
    Step,
    StepList,
    StepRotation,
    array_of,
)
from engine.kernels.operators import HeadNormWeights, Recorder
from engine.memory.spec import PoolPlan, storing_layer

#: Head dimensions must be multiples of this: whole vectors on every instruction set.
_VECTOR = 16
_MAX_HEAD_DIM = 576


def unsupported_reason(plan: PoolPlan, shapes: Sequence[AttentionShape], dtype: torch.dtype) -> str | None:
    """Why this backend cannot serve a model; None if it can."""
    for shape in shapes:
        if shape.output_dim % _VECTOR:
            return f"values of {shape.output_dim} channels (multiples of {_VECTOR} are supported)"
        if shape.head_dim % _VECTOR or shape.head_dim > _MAX_HEAD_DIM:
            return f"heads of {shape.head_dim} channels (multiples of {_VECTOR} up to {_MAX_HEAD_DIM} are supported)"
    if plan.smallest_budget is not None:
        return "layers that keep a budget of tokens"
    for layout in type_layouts(plan, tuple(shapes)):
        if layout.kv_dtype not in (dtype, torch.int8):
            return f"keys and values in {layout.layer_type.spec.dtype} where {dtype} is computed with"
    for kind in plan.types:
        if dtype == torch.bfloat16 and kind.page_tokens % 2:
            return f"pages of {kind.page_tokens} tokens (bfloat16 needs an even number)"
        if kind.small_page_bytes % 4:
            return f"pages of {kind.small_page_bytes} bytes (a multiple of 4 is needed)"
    return None


class CppBackend:
    """The AttentionBackend on CPU beside C++ operators. Owns the views on the pool; the pool belongs to the runner."""

    def __init__(
        self,
        plan: PoolPlan,
        pool: torch.Tensor,
        shapes: tuple[AttentionShape, ...],
        dtype: torch.dtype,
        library: Library,
        scratch: Scratch,
    ) -> None:
        """pool: bytes [plan.pool_bytes]; shapes by layer id. scratch: of the thread that computes steps."""
        assert unsupported_reason(plan, shapes, dtype) is None
        assert all(shape.sinks is None or len(shape.sinks) == shape.num_heads for shape in shapes)
        self._pool = pool
        self.scratch = scratch
        self.num_threads = library.num_threads
        self.run_steps = library.function("run_steps", dtype)
        layouts = type_layouts(plan, shapes)
        self._names = [layout.layer_type.name for layout in layouts]
        type_of = types_of_layers(layouts, shapes)
        self._layers = []
        self._sinks = [None if s.sinks is None else np.array(s.sinks, np.float32) for s in shapes]
        for layer_id, shape in enumerate(shapes):
            layout = layouts[type_of[layer_id]]
            pages, sinks = layout.layer_pages(pool, storing_layer(shapes, layer_id)), self._sinks[layer_id]
            self._layers.append(
                AttentionLayer(
                    type=type_of[layer_id],
                    num_heads=shape.num_heads,
                    num_kv_heads=shape.num_kv_heads,
                    head_dim=shape.head_dim,
                    value_dim=shape.output_dim,
                    stores_values=shape.value_dim is None,
                    page_tokens=layout.layer_type.page_tokens,
                    pages=pages.data_ptr(),
                    page_stride=pages.stride(0),
                    has_int8_pages=layout.is_quantised,
                    stores=shape.shares_with is None,
                    reads=True,
                    window=layout.window or 0,
                    chunk=layout.chunk or 0,
                    sinks=None if sinks is None else sinks.ctypes.data,
                    scale=shape.scale,
                    softcap=shape.softcap or 0.0,
                )
            )
        self._recordings: dict[int, Recording] = {}

    @property
    def name(self) -> str:
        """For logs and metrics."""
        return "cpp"

    def begin(self, layout: StepLayout) -> "CppStep":
        """A step over these sequences; it keeps the layout's arrays."""
        return CppStep(self, layout, [np.ascontiguousarray(layout.page_tables[name]) for name in self._names])

    def recording_of(self, steps: StepList) -> "Recording":
        """The recorded steps, bound to this backend's pages. Bound once and remembered."""
        recording = self._recordings.get(id(steps))
        if recording is None:
            recording = self._recordings[id(steps)] = self._bind(steps)
        return recording

    def attention_only(
        self,
        layer_id: int,
        *,
        is_rotated: bool,
        head_norms: HeadNorms | None,
        stores: bool = True,
        reads: bool = True,
    ) -> "Recording":
        """A list of one step: a layer's attention, from the update buffer into the stream buffer, or one half of it.
        stores: False: what would be stored has been, and the update buffer has query heads alone."""
        steps = StepList()
        norms = None
        if head_norms is not None:
            norms = HeadNormWeights(head_norms.query, head_norms.key, head_norms.eps, head_norms.has_values)
        steps.add_attention(layer_id, 0 if is_rotated else None, norms, input=UPDATE, output=STREAM)
        recording = self._bind(steps)
        [layer] = recording.layers
        layer.stores, layer.reads = layer.stores and stores, reads
        return recording

    def _bind(self, steps: StepList) -> "Recording":
        array, layers = array_of(steps.steps), []
        for call in steps.attention_calls:
            layer = AttentionLayer.from_buffer_copy(self._layers[call.layer_id])
            layer.rotation = -1 if call.rotation is None else call.rotation
            if call.norms is not None:
                layer.query_norm, layer.key_norm = call.norms.query.data_ptr(), address(call.norms.key)
                layer.norm_eps, layer.normalizes_values = call.norms.eps, call.norms.has_values
            array[call.step].attention = ctypes.addressof(layer)
            layers.append(layer)
        return Recording(steps, array, layers)


@dataclass(frozen=True, slots=True)
class Recording:
    """Steps that are bound to pages and ready to run, and the objects that they point to."""

    steps: StepList
    array: "ctypes.Array[Step]"
    layers: list[AttentionLayer]


class CppStep:
    """Attention during one step: keeps the step's arrays alive and passes their addresses to C++."""

    def __init__(self, backend: CppBackend, layout: StepLayout, tables: list[IntArray]) -> None:
        self._backend = backend
        self._arrays = (layout.starts, layout.lengths, tables)
        self._tables = (PageTable * len(tables))(
            *(PageTable(table.ctypes.data, table.strides[0] // 8) for table in tables)
        )
        self._inputs = Inputs(
            num_sequences=len(layout.lengths),
            starts=layout.starts.ctypes.data,
            lengths=layout.lengths.ctypes.data,
            tables=ctypes.addressof(self._tables),
            num_tables=len(tables),
        )

    def attend(
        self, layer_id: int, qkv: torch.Tensor, rotation: Rotation | None, head_norms: HeadNorms | None
    ) -> torch.Tensor:
        """As AttentionStep.attend; runs a list of one step."""
        recording = self._backend.attention_only(layer_id, is_rotated=rotation is not None, head_norms=head_norms)
        return self._attended(recording, qkv, rotation)

    def store(self, layer_id: int, qkv: torch.Tensor, rotation: Rotation | None, head_norms: HeadNorms | None) -> None:
        """As SplitAttentionStep.store."""
        assert qkv.is_contiguous()
        recording = self._backend.attention_only(
            layer_id, is_rotated=rotation is not None, head_norms=head_norms, reads=False
        )
        self._run(recording, qkv, qkv, () if rotation is None else (rotation,))

    def read(
        self, layer_id: int, query: torch.Tensor, rotation: Rotation | None, head_norms: HeadNorms | None
    ) -> torch.Tensor:
        """As SplitAttentionStep.read."""
        recording = self._backend.attention_only(
            layer_id, is_rotated=rotation is not None, head_norms=head_norms, stores=False
        )
        return self._attended(recording, query, rotation)

    def _attended(self, recording: Recording, heads: torch.Tensor, rotation: Rotation | None) -> torch.Tensor:
        assert heads.is_contiguous()
        [layer] = recording.layers
        output = torch.empty((heads.shape[0], layer.num_heads * layer.value_dim), dtype=heads.dtype)
        self._run(recording, output, heads, () if rotation is None else (rotation,))
        return output

    def run_recorded(
        self,
        recorder: Recorder,
        stream: torch.Tensor,
        update: torch.Tensor | None,
        rotations: Sequence[Rotation],
        adapters: AdapterRows | None = None,
    ) -> torch.Tensor:
        """As RunsRecordings.run_recorded, in one call of the library."""
        assert isinstance(recorder, CppRecorder)
        assert stream.is_contiguous()
        assert update is None or update.is_contiguous()
        result = torch.empty_like(stream) if update is None else update
        steps = recorder.steps if adapters is None else recorder.adapted_steps
        self._run(self._backend.recording_of(steps), stream, result, rotations, adapters)
        return result

    def _run(
        self,
        recording: Recording,
        stream: torch.Tensor,
        update: torch.Tensor,
        rotations: Sequence[Rotation],
        adapters: AdapterRows | None = None,
    ) -> None:
        buffers = recording.steps.buffers(stream, update, self._backend.scratch)
        turns = (StepRotation * len(rotations))(
            *(StepRotation(r.cos.data_ptr(), r.sin.data_ptr(), 2 * r.cos.shape[1]) for r in rotations)
        )
        inputs = self._inputs
        inputs.num_rows = stream.shape[0]
        inputs.buffers, inputs.rotations = ctypes.addressof(buffers.addresses), ctypes.addressof(turns)
        inputs.runs = None if adapters is None else adapters.runs.ctypes.data
        inputs.num_runs = 0 if adapters is None else len(adapters.runs)
        inputs.bytes, inputs.row_blocks = buffers.bytes, buffers.row_blocks
        backend = self._backend
        backend.run_steps(
            ctypes.addressof(recording.array), len(recording.array), ctypes.addressof(inputs), backend.num_threads
        )
