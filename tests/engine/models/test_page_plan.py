"""What `agon plan` reads from a config.json is what the model that is served stores."""

import json
from collections import Counter

import pytest
import torch

from engine.attention.layout import layer_specs, state_specs
from engine.loader import DummyWeights
from engine.memory.planning.layer_tables import layers_from_config
from engine.memory.spec import CHECKPOINT_TOKENS
from engine.models.config_reader import ConfigReader
from engine.models.registry import architecture_of
from tests.engine.checkpoints import VARIANTS, TinyModels


@pytest.mark.parametrize("name", VARIANTS)
def test_the_planned_layers_are_those_of_the_model(tiny_model: TinyModels, name: str) -> None:
    values = json.loads((tiny_model(name).folder / "config.json").read_text())
    config = ConfigReader(values)
    model = architecture_of(config).build(config, DummyWeights.counting(), torch.float32, None)
    for kv_dtype in ("float32", "int8"):
        specs = layer_specs(model.attention_shapes, getattr(torch, kv_dtype), model.max_positions)
        specs += state_specs(model.state_shapes, CHECKPOINT_TOKENS)
        planned = layers_from_config(values, kv_dtype=kv_dtype)
        assert Counter(planned.layers) == Counter(specs)  # the ids of states stand behind those of attention layers
        assert planned.max_model_len == model.max_positions
