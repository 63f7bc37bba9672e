"""Steps for the backend of devices, with metadata as the runner leaves it there."""

from dataclasses import replace

import numpy as np
import torch

from engine.attention.device_backend import DeviceBackend
from engine.attention.device_layout import DeviceLayout
from engine.kernels import reference
from engine.kernels.step_kernels import StepKernels
from tests.engine.attention.cases import Case, Prepared, with_larger_heads

NOWHERE = 2**30  #: a page that does not exist, in the width of the device's tables


def aligned(case: Case) -> Case:
    """The same with heads and pages that kernels can load at once."""
    padding = 64 if case.padding and len(case.plan.types) == 1 else 0
    page_tokens = 16 if case.kv_dtype else case.page_tokens  # with scales, pages of few tokens end anywhere
    return replace(with_larger_heads(case), padding=padding, page_tokens=page_tokens)


def begin(
    case: Case, prepared: Prepared, *, num_padding: int, kernels: StepKernels = reference
) -> tuple[DeviceBackend, DeviceLayout]:
    """Sequences in slots of any order; rows of padding behind them, and other slots' pages around theirs."""
    layout = prepared.layout
    count = len(layout.starts)
    slots = torch.randperm(count + 3, generator=torch.Generator().manual_seed(case.seed))[:count]
    tables, page_places = {}, []
    sequence_of = np.repeat(np.arange(count), layout.lengths)
    for kind in prepared.type_layouts:
        table = layout.page_tables[kind.layer_type.name]
        rows = torch.full((count + 3, table.shape[1]), NOWHERE, dtype=torch.int32)
        rows[slots] = torch.from_numpy(table.astype(np.int32))
        tables[kind.layer_type.name] = rows
        page_ids = table[sequence_of, layout.positions // case.page_tokens]
        places = torch.from_numpy(page_ids * case.page_tokens + layout.positions % case.page_tokens)
        page_places.append(places)
    num_decodes = next((row for row, length in enumerate(layout.lengths) if length > 1), count)
    is_decode = num_decodes == count
    nowhere = torch.full((num_padding if is_decode else 0,), -1)
    contexts = torch.from_numpy(layout.starts + layout.lengths).int()
    device = prepared.pool.device
    tables = {name: table.to(device) for name, table in tables.items()}
    device_layout = DeviceLayout(
        slots=torch.cat((slots, torch.full((num_padding,), -1))).int().to(device),
        context_lengths=torch.cat((contexts, torch.zeros(num_padding, dtype=torch.int32))).to(device),
        page_places=[torch.cat((places, nowhere)).to(device) for places in page_places],
        num_decodes=count + num_padding if is_decode else num_decodes,
        query_starts=None if is_decode else query_starts(layout.lengths[num_decodes:], num_padding).to(device),
        max_queries=int(layout.lengths.max()),
        max_context=int(contexts[num_decodes:].max()) if num_decodes < count else 0,
    )
    pool, max_rows, max_context = prepared.pool, count + num_padding, int(contexts.max())
    backend = DeviceBackend(kernels, case.plan, pool, case.shapes, case.dtype, tables, max_rows, max_context)
    return backend, device_layout


def query_starts(lengths: np.ndarray[tuple[int], np.dtype[np.int64]], num_padding: int) -> torch.Tensor:
    ends = np.cumsum(lengths)
    return torch.from_numpy(np.concatenate(([0], ends, np.full(num_padding, ends[-1])))).int()
