"""A model with adapters, and the logits of several sequences that it computes in one step."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from engine.adapters import AdapterRack
from engine.attention import choose_backend
from engine.attention.backend import ForwardBatch, StepLayout
from engine.attention.layout import layer_specs, state_specs
from engine.attention.state_pages import StatePages
from engine.kernels.adapters import AdapterRows
from engine.kernels.operators import Operators
from engine.layers.adapter_points import AdapterPoints
from engine.loader import CheckpointWeights, format_of, open_checkpoint, read_config
from engine.memory.planning.planner import plan_pool
from engine.models.config_reader import ConfigReader
from engine.models.registry import architecture_of
from engine.runner.load import weight_reader

CPU = torch.device("cpu")
MAX_RANK = 128


class AdaptedModel:
    """A checkpoint, and the adapters of the slots 1, 2, ..."""

    def __init__(
        self,
        folder: Path,
        operators: Operators,
        adapters: Sequence[Path] = (),
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device = CPU,
    ) -> None:
        config = ConfigReader(read_config(folder))
        checkpoint = open_checkpoint(folder)
        quantised_by = format_of(checkpoint, config)
        self._dtype, self._device, self._operators = dtype, device, operators
        self._points = AdapterPoints(operators, dtype, device, max(1, len(adapters)), MAX_RANK)
        weights = CheckpointWeights(
            checkpoint,
            dtype=dtype,
            device=device,
            operators=operators,
            quantised_by=quantised_by,
            adapter_points=self._points if adapters else None,
        )
        self._model = architecture_of(config).build(config, weights)
        self.rack = AdapterRack(self._points, weight_reader(checkpoint, quantised_by))
        for slot, adapter in enumerate(adapters, start=1):
            self.rack.load(slot, adapter)

    def logits(self, sequences: Sequence[tuple[list[int], int]]) -> list[torch.Tensor]:
        """Logits of every token of each sequence, [T, V], all in one step. sequences: tokens, and the slot of an
        adapter."""
        model, longest = self._model, max(len(tokens) for tokens, _ in sequences)
        specs = layer_specs(model.attention_shapes, self._dtype, model.max_positions)
        specs += state_specs(model.state_shapes, longest)
        plan = plan_pool(specs, page_tokens=4, pool_bytes=64 << 20)
        pool = torch.zeros(plan.pool_bytes, dtype=torch.uint8, device=self._device)
        backend = choose_backend(self._operators, plan, pool, model.attention_shapes, self._dtype)
        state_pages = StatePages(plan, pool, model.state_shapes, len(model.attention_shapes))
        tables = {}
        for which, kind in enumerate(plan.types):  # every type has its own share of the pool
            first, pages = (
                plan.num_large_pages * which // len(plan.types) * plan.ratio(kind),
                -(-longest // kind.page_tokens),
            )
            tables[kind.name] = first + 1 + np.arange(len(sequences) * pages).reshape(len(sequences), pages)
        lengths = np.array([len(tokens) for tokens, _ in sequences])
        layout = StepLayout(np.zeros_like(lengths), lengths, tables)
        rows = AdapterRows.of(map(int, lengths), [slot for _, slot in sequences])
        self._points.begin(rows)
        batch = ForwardBatch(
            torch.tensor([token for tokens, _ in sequences for token in tokens], device=self._device),
            torch.from_numpy(layout.positions).to(self._device),
            backend.begin(layout),
            state_pages.begin(layout),
            adapters=rows,
        )
        with torch.inference_mode():
            return list(model.logits(model.forward(batch)).split(lengths.tolist()))
