"""What the layers of a model store, for planning a page pool without loading the model.

For a registered architecture the answer comes from the model code itself, built without weights: the same
`attention_shapes` and `state_shapes` that a worker plans its pool with, so both plans agree to the byte. So it does for
any other that transformers' code can run on pages. Only architectures that no worker can run, and storage that no model
code has, come from the rules in engine/memory/planning/layer_tables.py.
"""

import logging
from collections.abc import Mapping
from typing import Any

import torch

from engine.attention.layout import layer_specs, state_specs
from engine.errors import CheckpointError
from engine.layers.weights import ShapesOnly
from engine.memory.planning.layer_tables import (
    ModelLayers,
    PlannedKVDType,
    layers_by_rule,
    with_draft_model,
    with_own_keys,
    with_vision_cache,
)
from engine.memory.planning.pyramid import with_budgets
from engine.memory.spec import CHECKPOINT_TOKENS, LayerSpec
from engine.models.budget_support import check_budget
from engine.models.causal_lm import CausalLM
from engine.models.config_reader import ConfigReader, read_model_dtype
from engine.models.registry import Architecture, architecture_of, registered_architecture

_log = logging.getLogger(__name__)


def stored_layers(
    model: CausalLM, kv_dtype: torch.dtype, max_model_len: int, checkpoint_tokens: int
) -> list[LayerSpec]:
    """What this process stores of a sequence: attention layers by id, then states by id.

    kv_dtype: of keys and values in pages. max_model_len: a window that is not shorter becomes full attention.
    checkpoint_tokens: a recurrent layer keeps its states every that many tokens.
    """
    specs = layer_specs(model.attention_shapes, kv_dtype, max_model_len)
    return specs + state_specs(model.state_shapes, checkpoint_tokens)


def layers_from_config(
    values: Mapping[str, Any],
    *,
    dtype: str = "auto",
    kv_dtype: PlannedKVDType = "auto",
    with_vision: bool = False,
    checkpoint_tokens: int = CHECKPOINT_TOKENS,
    allow_transformers: bool = False,
    kv_budget: int | None = None,
    page_tokens: int = 16,
) -> ModelLayers:
    """What the model with this config.json stores, Agon's own keys included (see layer_tables.py).

    dtype: of the model, as torch calls it; "auto": the checkpoint's own, which is what a worker on CUDA takes.
    kv_dtype: of keys and values. with_vision adds the embeddings of images. allow_transformers: for an architecture
    without code, ask transformers' code, which takes seconds to import. kv_budget: tokens that a layer of the model
    keeps on average, in pages of page_tokens, as EngineConfig.kv_budget. Raises CheckpointError for a config that is
    incomplete or that the model code refuses, and where a worker on CPU refuses kv_budget.
    """
    settings = ConfigReader(values)
    model_dtype = read_model_dtype(settings) if dtype == "auto" else _torch_dtype(dtype)
    found = _model_without_weights(settings, model_dtype, allow_transformers)
    own_dtype: str | None = str(model_dtype).removeprefix("torch.")
    if found is None:
        if kv_budget is not None:
            raise CheckpointError("kv_budget is for models that a worker can run")
        own_dtype = None if dtype == "auto" else dtype
        base = layers_by_rule(values, dtype=own_dtype, kv_dtype=kv_dtype, checkpoint_tokens=checkpoint_tokens)
    else:
        architecture, model = found
        stored_dtype = model_dtype if kv_dtype == "auto" else _torch_dtype(kv_dtype)
        layers = stored_layers(model, stored_dtype, model.max_positions, checkpoint_tokens)
        if kv_budget is not None:
            check_budget(architecture, model, torch.device("cpu"), stored_dtype, num_processes=1)
            layers = with_budgets(layers, kv_budget, page_tokens, model.max_positions)
        through_transformers = architecture.code == "transformers"
        base = ModelLayers(
            tuple(layers), model.max_positions, is_served=True, through_transformers=through_transformers
        )
    base = with_own_keys(base, values)
    if with_vision:
        base = with_vision_cache(base, values, own_dtype)
    draft = values.get("draft_model")
    if not isinstance(draft, Mapping):
        return base
    return with_draft_model(
        base,
        layers_from_config(
            draft,
            dtype=dtype,
            kv_dtype=kv_dtype,
            checkpoint_tokens=checkpoint_tokens,
            allow_transformers=allow_transformers,
        ),
    )


def _model_without_weights(
    settings: ConfigReader, dtype: torch.dtype, allow_transformers: bool
) -> tuple[Architecture, CausalLM] | None:
    """None: no code can run this architecture."""
    architecture = registered_architecture(settings)
    if architecture is not None:
        return architecture, architecture.build(settings, ShapesOnly(dtype))
    if not allow_transformers:
        return None
    try:
        architecture = architecture_of(settings)
        return architecture, architecture.build(settings, ShapesOnly(dtype))
    except CheckpointError as error:
        _log.info("planned by rules: %s", error)
        return None


def adapter_bytes(values: Mapping[str, Any], rank: int, *, dtype: str = "auto") -> int:
    """Memory of a LoRA adapter of that rank on every linear layer that can have one, for the model with this
    config.json. dtype: as layers_from_config. Raises CheckpointError where the model can have none."""
    settings = ConfigReader(values)
    architecture = registered_architecture(settings)
    if architecture is None:
        raise CheckpointError("only models that run on Agon's own code have adapters")
    model_dtype = read_model_dtype(settings) if dtype == "auto" else _torch_dtype(dtype)
    shapes = ShapesOnly(model_dtype)
    architecture.build(settings, shapes)
    assert shapes.adapter_points is not None
    return shapes.adapter_points.num_parameters(rank) * model_dtype.itemsize


def _torch_dtype(name: str) -> torch.dtype:
    dtype = torch.float8_e4m3fn if name == "fp8" else getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype
