"""Logits of a model's own forward pass over pages, without a runner."""

from pathlib import Path

import numpy as np
import torch

from engine.attention import choose_backend
from engine.attention.backend import ForwardBatch, StepLayout
from engine.attention.layout import layer_specs, state_specs
from engine.attention.state_pages import StatePages
from engine.kernels.operators import Operators
from engine.loader import CheckpointWeights, format_of, open_checkpoint, read_config
from engine.memory.planning.planner import plan_pool
from engine.models.config_reader import ConfigReader
from engine.models.registry import architecture_of

CPU = torch.device("cpu")


def chunked_logits(
    folder: Path,
    token_ids: list[int],
    *,
    page_tokens: int,
    chunk: int,
    operators: Operators,
    dtype: torch.dtype = torch.float32,
    kv_dtype: torch.dtype | None = None,
    device: torch.device = CPU,
) -> torch.Tensor:
    """Logits of every token of one sequence, computed chunk by chunk over pages in reverse order. kv_dtype: of keys and
    values in pages; None: dtype."""
    config = ConfigReader(read_config(folder))
    checkpoint = open_checkpoint(folder)
    weights = CheckpointWeights(
        checkpoint, dtype=dtype, device=device, operators=operators, quantised_by=format_of(checkpoint, config)
    )
    model = architecture_of(config).build(config, weights)
    specs = layer_specs(model.attention_shapes, kv_dtype or dtype, model.max_positions)
    specs += state_specs(model.state_shapes, len(token_ids))
    plan = plan_pool(specs, page_tokens=page_tokens, pool_bytes=8 << 20)
    pool = torch.zeros(plan.pool_bytes, dtype=torch.uint8, device=device)
    backend = choose_backend(operators, plan, pool, model.attention_shapes, dtype)
    state_pages = StatePages(plan, pool, model.state_shapes, len(model.attention_shapes))
    tables = {}
    for which, kind in enumerate(plan.types):  # every type has its own share of the pool
        first = plan.num_large_pages * which // len(plan.types) * plan.ratio(kind)
        tables[kind.name] = first + np.arange(-(-len(token_ids) // kind.page_tokens), 0, -1)[None]
    logits = []
    for start in range(0, len(token_ids), chunk):
        part = torch.tensor(token_ids[start : start + chunk], device=device)
        layout = StepLayout(np.array([start]), np.array([len(part)]), tables)
        positions = torch.from_numpy(layout.positions).to(device)
        batch = ForwardBatch(part, positions, backend.begin(layout), state_pages.begin(layout))
        logits.append(model.logits(model.forward(batch)))
    return torch.cat(logits)
