"""Paged attention by step kernels: two or three calls per layer, with all metadata on the device. Layers that differ in
addresses only repeat the launches of the first of them. Prompts may be attended by an installed library instead.

Works over any StepKernels, in Triton or in plain torch. Unlike the other backends it takes no page tables from the
host: the runner keeps one row per slot on the device, and a step names slots. So nothing here waits for the device, and
a decode step whose metadata lies in buffers of fixed addresses can be captured as a CUDA graph.

T = tokens of the step, B = rows (sequences, with padding), S = slots, H, K = query and key/value heads, D = head
dimension.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from engine.attention.backend import AttentionShape, HeadNorms
from engine.attention.device_layout import DeviceLayout, SharedPrefix
from engine.attention.layout import TypeLayout, type_layouts, types_of_layers
from engine.attention.rotation import Rotation
from engine.kernels.adapters import AdapterRows
from engine.kernels.hardware import num_multiprocessors
from engine.kernels.operators import HeadNormWeights, Recorder, RunsLayers
from engine.kernels.prompt_libraries import AttendPrompts, PromptCase, PromptKernel
from engine.kernels.step_kernels import AttentionOptions, KeptLaunches, PageScales, SplitWorkspace, StepKernels
from engine.memory.spec import PoolPlan, storing_layer

#: Kernels load 16 elements at once only if addresses and strides are known to allow it.
_ALIGNED_ELEMENTS = 16
_MAX_HEAD_DIM = 512
_PROGRAMS_PER_MULTIPROCESSOR = 2
#: Parts of fewer tokens are not worth a program.
_LEAST_PART = 64
#: Queries times heads of a key/value head in a tile of prompts. Prompts are read in parts in steps whose tiles fill no
#: more than half of the multiprocessors.
_PROMPT_TILE = 128
_WORKSPACE_BYTES = 256 * 2**20


def unsupported_reason(plan: PoolPlan, shapes: Sequence[AttentionShape]) -> str | None:
    """Why step kernels cannot serve a model; None if they can."""
    for shape in shapes:
        if shape.output_dim > _MAX_HEAD_DIM:
            return f"heads of {shape.output_dim} channels (up to {_MAX_HEAD_DIM} are supported)"
    if plan.smallest_budget is not None:
        return "layers that keep a budget of tokens"
    for layout in type_layouts(plan, tuple(shapes)):
        layer_elements = layout.layer_elements
        if layout.page_elements % _ALIGNED_ELEMENTS or layer_elements % _ALIGNED_ELEMENTS:
            return f"pages of {layout.page_elements} elements, {layer_elements} a layer (multiples of 16 are needed)"
    return None


def split_workspace(
    shape: AttentionShape, max_rows: int, max_context: int, num_multiprocessors: int, device: torch.device
) -> SplitWorkspace:
    """The workspace for contexts that are read in parts: as many parts as a single row needs to fill the device, within
    the bound on memory.

    The number of parts is the same for every batch: where a context is divided, and so the last bits of its result,
    must not depend on other rows. Engines of few rows get more, for the queries of prompts that are read in half as
    many parts.
    """
    state_bytes = 4 * shape.num_heads * (shape.output_dim + 1)
    wanted = -(-_PROGRAMS_PER_MULTIPROCESSOR * num_multiprocessors // shape.num_kv_heads)
    affordable = _WORKSPACE_BYTES // (max_rows * state_bytes)
    num_parts = max(1, min(wanted, affordable, -(-max_context // _LEAST_PART)))
    num_tiles = num_multiprocessors // (2 * shape.num_kv_heads)
    prompt_rows = num_tiles * (_PROMPT_TILE * shape.num_kv_heads // shape.num_heads) // _PROGRAMS_PER_MULTIPROCESSOR
    num_rows = max(max_rows, min(prompt_rows, _WORKSPACE_BYTES // (num_parts * state_bytes)))
    return SplitWorkspace.allocate(num_rows, shape.num_heads, num_parts, shape.output_dim, device)


def prompt_cases(plan: PoolPlan, shapes: tuple[AttentionShape, ...], dtype: torch.dtype) -> tuple[PromptCase, ...]:
    """What a library of prompt attention must compute for each layer, by layer id. dtype: of queries."""
    layouts = type_layouts(plan, shapes)
    layout_of = [layouts[type_id] for type_id in types_of_layers(layouts, shapes)]
    return tuple(
        PromptCase(
            shape.num_heads,
            shape.num_kv_heads,
            shape.head_dim,
            layout_of[i].layer_type.page_tokens,
            dtype,
            layout_of[i].kv_dtype,
            shape.scale,
            layout_of[i].window,
            shape.softcap,
            has_sinks=shape.sinks is not None,
            has_chunks=layout_of[i].chunk is not None,
            has_latents=shape.value_dim is not None,
        )
        for i, shape in enumerate(shapes)
    )


@dataclass(frozen=True, slots=True)
class _Layer:
    """What attention of a layer needs and what does not change between steps."""

    type_id: int
    group: int  #: layers of the same group differ in nothing but addresses
    shape: AttentionShape
    pages: torch.Tensor  #: [N, 2 or 1, K, P, D], strided: its own, or those that it shares
    scales: PageScales | None  #: of keys and values in 8 bits
    options: AttentionOptions
    workspace: SplitWorkspace  #: shared by all layers with equal heads, which run one after another
    case: PromptCase
    prompts: PromptKernel | None  #: the library's kernel for prompts; None: they are ours, as decodes are


#: Group of a layer, angles of its rotation, epsilon of its head norms: what decides its launches, but for addresses.
_GroupKey = tuple[int, int, float | None]


@dataclass(frozen=True, slots=True)
class StepMemory:
    """What a step's first layers leave for its later ones."""

    kept: dict[_GroupKey, KeptLaunches | None] = field(default_factory=dict)
    #: by layer type and case: a library's attention of the step's prompts
    begun: dict[tuple[int, PromptCase], AttendPrompts] = field(default_factory=dict)


class DeviceBackend:
    """Attention of DeviceRunner. Owns the views on the pool and the workspaces; pool and page tables belong to the
    runner."""

    def __init__(
        self,
        kernels: StepKernels,
        plan: PoolPlan,
        pool: torch.Tensor,
        shapes: tuple[AttentionShape, ...],
        dtype: torch.dtype,
        page_tables: Mapping[str, torch.Tensor],
        max_rows: int,
        max_context: int,
        prompt_kernels: Mapping[PromptCase, PromptKernel] | None = None,
    ) -> None:
        """pool: bytes [plan.pool_bytes]; shapes by layer id; page_tables: by layer type [S, entries] int32.
        prompt_kernels: the cases whose prompts a library attends."""
        assert unsupported_reason(plan, shapes) is None
        self._kernels = kernels
        layouts = type_layouts(plan, shapes)
        self.page_tokens = tuple(layout.layer_type.page_tokens for layout in layouts)  #: of each attention type
        self.page_tables = tuple(page_tables[layout.layer_type.name] for layout in layouts)  #: likewise
        type_of = types_of_layers(layouts, shapes)
        heads = {_sums_of(shape): shape for shape in shapes}
        processors = num_multiprocessors(pool.device)
        workspaces = {
            key: split_workspace(shape, max_rows, max_context, processors, pool.device) for key, shape in heads.items()
        }
        groups: dict[tuple[int, AttentionShape], int] = {}
        cases = prompt_cases(plan, shapes, dtype)
        self._layers = [
            _Layer(
                type_id=type_of[i],
                group=groups.setdefault((type_of[i], replace(shape, sinks=None)), len(groups)),
                shape=shape,
                pages=layouts[type_of[i]].layer_pages(pool, storing_layer(shapes, i)),
                scales=_scales(layouts[type_of[i]], pool, storing_layer(shapes, i)),
                options=_options(shape, layouts[type_of[i]], pool.device),
                workspace=workspaces[_sums_of(shape)],
                case=cases[i],
                prompts=(prompt_kernels or {}).get(cases[i]),
            )
            for i, shape in enumerate(shapes)
        ]

    @property
    def can_share_prefixes(self) -> bool:
        """Whether some layers read whole contexts, with workspaces for the partial results of prefix and suffix."""
        splits = [layer.workspace.lse.shape[2] for layer in self._layers if layer.options.most_tokens is None]
        return bool(splits) and min(splits) > 1

    def begin(self, layout: DeviceLayout) -> "DeviceStep":
        """A step over these rows; nothing is computed yet."""
        return (DecodeStep if layout.query_starts is None else DeviceStep)(self, layout)

    def shape(self, layer_id: int) -> AttentionShape:
        """The heads of that layer."""
        return self._layers[layer_id].shape

    def attend(
        self,
        layer_id: int,
        qkv: torch.Tensor,
        output: torch.Tensor,
        rotation: Rotation | None,
        head_norms: HeadNorms | None,
        layout: DeviceLayout,
        memory: StepMemory,
    ) -> None:
        """As AttentionStep.attend, for a step of this layout, into output [T, H, channels of a value]. Queues its
        kernels. memory: the launches of the step's earlier layers, by their group, are repeated; those of a new group
        are added."""
        layer = self._layers[layer_id]
        self._launch_or_repeat(layer, qkv, output, rotation, head_norms, layout, memory.kept)
        if layout.query_starts is not None and layer.prompts is not None:  # a library's launches cannot be kept
            key = layer.type_id, layer.case
            if key not in memory.begun:
                memory.begun[key] = layer.prompts.begin(layout.prompts, self.page_tables[layer.type_id])
            rows = slice(layout.num_decodes, None)
            memory.begun[key](qkv[rows, : layer.shape.num_heads], layer.pages, output[rows])

    def _launch_or_repeat(
        self,
        layer: _Layer,
        qkv: torch.Tensor,
        output: torch.Tensor,
        rotation: Rotation | None,
        head_norms: HeadNorms | None,
        layout: DeviceLayout,
        kept: dict[_GroupKey, KeptLaunches | None],
    ) -> None:
        """Queue the launches of our own kernels."""
        work = partial(self._launch, layer, qkv, output, rotation, head_norms, layout)
        if not qkv.is_contiguous():
            work()
            return
        moving = _moving(layer, qkv, output, rotation, head_norms)
        key = _group_key(layer, rotation, head_norms)
        if key not in kept:
            kept[key] = self._kernels.keep_launches(work, moving)
            return
        launches = kept[key]
        if launches is None or not launches.repeat(moving):
            work()

    def _launch(
        self,
        layer: _Layer,
        qkv: torch.Tensor,
        output: torch.Tensor,
        rotation: Rotation | None,
        head_norms: HeadNorms | None,
        layout: DeviceLayout,
    ) -> None:
        self._store(layer, qkv, rotation, head_norms, layout)
        query = qkv[:, : layer.shape.num_heads]
        # Two launches if a step has decodes and prompts: tiles of prompts have 64 rows or more, of which a decode would
        # use one in ten, and prompts are cut into other parts. So a decode's last bits are the same with and without
        # prompts.
        if layout.shared is not None and layer.options.most_tokens is None:
            self._attend_shared(layer, query, output, layout, layout.shared)
        elif layout.num_decodes:
            self._attend_decodes(layer, query, output, layout)
        if layout.query_starts is not None and layer.prompts is None:
            self._attend_prompts(layer, query, output, layout, layout.query_starts)

    def _store(
        self,
        layer: _Layer,
        qkv: torch.Tensor,
        rotation: Rotation | None,
        head_norms: HeadNorms | None,
        layout: DeviceLayout,
    ) -> None:
        """Norm and rotate heads, store keys and values if this layer does."""
        stores = layer.shape.shares_with is None
        self._kernels.store_heads(
            qkv,
            None if rotation is None else rotation.cos,
            None if rotation is None else rotation.sin,
            None if head_norms is None else head_norms.query,
            None if head_norms is None else head_norms.key,
            0.0 if head_norms is None else head_norms.eps,
            layer.pages if stores else None,
            layout.page_places[layer.type_id],
            layer.scales if stores else None,
            norms_values=head_norms is not None and head_norms.has_values,
        )

    def _attend_shared(
        self, layer: _Layer, query: torch.Tensor, output: torch.Tensor, layout: DeviceLayout, shared: SharedPrefix
    ) -> None:
        self._kernels.attend_shared_prefix(
            query,
            layer.pages,
            self.page_tables[layer.type_id],
            layout.slots,
            layout.context_lengths,
            shared.group_starts,
            shared.prefix_lengths,
            output,
            layer.options,
            layer.workspace,
            layer.scales,
        )

    def _attend_decodes(self, layer: _Layer, query: torch.Tensor, output: torch.Tensor, layout: DeviceLayout) -> None:
        most = len(layer.workspace.outputs)  # there are more where tokens of prompts are attended like decodes
        for first in range(0, layout.num_decodes, most):
            rows = slice(first, min(first + most, layout.num_decodes))
            self._kernels.attend_decode(
                query[rows],
                layer.pages,
                self.page_tables[layer.type_id],
                layout.slots[rows],
                layout.context_lengths[rows],
                output[rows],
                layer.options,
                layer.workspace,
                layer.scales,
            )

    def _attend_prompts(
        self, layer: _Layer, query: torch.Tensor, output: torch.Tensor, layout: DeviceLayout, query_starts: torch.Tensor
    ) -> None:
        rows = slice(layout.num_decodes, None)
        self._kernels.attend_mixed(
            query[rows],
            layer.pages,
            self.page_tables[layer.type_id],
            layout.slots[rows],
            layout.context_lengths[rows],
            query_starts,
            output[rows],
            layer.options,
            layer.workspace,
            layout.max_queries,
            layout.max_context,
            layer.scales,
        )


class DeviceStep:
    """The AttentionStep of a DeviceLayout."""

    def __init__(self, backend: DeviceBackend, layout: DeviceLayout) -> None:
        self._backend = backend
        self._layout = layout
        self._memory = StepMemory()

    def attend(
        self, layer_id: int, qkv: torch.Tensor, rotation: Rotation | None, head_norms: HeadNorms | None
    ) -> torch.Tensor:
        """As AttentionStep.attend."""
        shape = self._backend.shape(layer_id)
        output = qkv.new_empty((len(qkv), shape.num_heads * shape.output_dim))
        self.attend_into(layer_id, qkv, rotation, head_norms, output)
        return output

    def attend_into(
        self,
        layer_id: int,
        qkv: torch.Tensor,
        rotation: Rotation | None,
        head_norms: HeadNorms | None,
        output: torch.Tensor,
    ) -> None:
        """As attend, into output [T, H * channels of a value], contiguous."""
        heads = output.view(len(qkv), -1, self._backend.shape(layer_id).output_dim)
        self._backend.attend(layer_id, qkv, heads, rotation, head_norms, self._layout, self._memory)


class DecodeStep(DeviceStep):
    """A step of one token for each row: recorded layers run with their operators folded into products, where a product
    can have them for as many rows (RunsRecordings)."""

    def run_recorded(
        self,
        recorder: Recorder,
        stream: torch.Tensor,
        update: torch.Tensor | None,
        rotations: Sequence[Rotation],
        adapters: AdapterRows | None = None,
    ) -> torch.Tensor:
        """As RunsRecordings.run_recorded."""
        assert adapters is None, "these recordings have no adapters"
        assert isinstance(recorder, RunsLayers)

        def attend(
            layer_id: int, heads: torch.Tensor, rotation: int | None, norms: HeadNormWeights | None
        ) -> torch.Tensor:
            qkv = heads.view(len(heads), -1, self._backend.shape(layer_id).head_dim)
            turned = None if rotation is None else rotations[rotation]
            return self.attend(layer_id, qkv, turned, None if norms is None else HeadNorms(*norms))

        return recorder.run(stream, update, attend)


def _group_key(layer: _Layer, rotation: Rotation | None, head_norms: HeadNorms | None) -> _GroupKey:
    num_angles = 0 if rotation is None else rotation.cos.shape[1]
    return layer.group, num_angles, None if head_norms is None else head_norms.eps


def _moving(
    layer: _Layer, qkv: torch.Tensor, output: torch.Tensor, rotation: Rotation | None, head_norms: HeadNorms | None
) -> tuple[torch.Tensor | None, ...]:
    """The tensors that differ between layers of a group."""
    return (
        qkv,
        output,
        layer.pages,
        *((None, None) if rotation is None else (rotation.cos, rotation.sin)),
        *((None, None) if head_norms is None else (head_norms.query, head_norms.key)),
        *((None, None) if layer.scales is None else (layer.scales.key, layer.scales.value)),
        layer.options.sinks,
    )


def _sums_of(shape: AttentionShape) -> tuple[int, int, int]:
    """What the workspace for a layer's partial sums depends on."""
    return shape.num_heads, shape.num_kv_heads, shape.output_dim


def _options(shape: AttentionShape, layout: TypeLayout, device: torch.device) -> AttentionOptions:
    sinks = None if shape.sinks is None else torch.tensor(shape.sinks, dtype=torch.float32, device=device)
    return AttentionOptions(shape.scale, layout.window, shape.softcap, sinks=sinks, chunk=layout.chunk)


def _scales(layout: TypeLayout, pool: torch.Tensor, layer_id: int) -> PageScales | None:
    scales = layout.layer_scales(pool, layer_id)
    return None if scales is None else PageScales(scales[:, 0], scales[:, -1])
