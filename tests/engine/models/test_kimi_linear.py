"""Configs of Kimi Linear as published checkpoints have them, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import CheckpointError
from engine.kernels.torch_operators import TorchOperators
from engine.layers.weights import ShapesOnly
from engine.models.config_reader import ConfigReader
from engine.models.registry import architecture_of
from tests.engine.checkpoints import TinyModels
from tests.engine.chunked_logits import chunked_logits
from tests.engine.stepper import random_prompt

WRITTEN = ("layer_types", "mlp_layer_types", "linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
SECTION = {
    "full_attn_layers": [2, 4],
    "kda_layers": [1, 3],
    "num_heads": 3,
    "head_dim": 12,
    "short_conv_kernel_size": 3,
}


def published(config: dict[str, Any], **changes: object) -> dict[str, Any]:
    kept = {name: value for name, value in config.items() if name not in WRITTEN}
    section = {**SECTION, **changes}
    return {**kept, "linear_attn_config": section, "first_k_dense_replace": 1, "mla_use_nope": True}


def test_a_published_folder_computes_the_same(tmp_path: Path, tiny_model: TinyModels) -> None:
    source = tiny_model("kimi-linear").folder
    shutil.copytree(source, tmp_path / "published")
    config = json.loads((source / "config.json").read_text())
    (tmp_path / "published/config.json").write_text(json.dumps(published(config)))
    first = "model.layers.0."
    tensors = {
        name.replace(f"{first}block_sparse_moe.", f"{first}mlp."): tensor
        for name, tensor in load_file(source / "model.safetensors").items()
    }
    save_file(tensors, tmp_path / "published/model.safetensors")
    ours, theirs = (
        chunked_logits(folder, random_prompt(9, 20), page_tokens=4, chunk=8, operators=TorchOperators())
        for folder in (tmp_path / "published", source)
    )
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"kda_layers": [1]}, "are not layers 1 to 4"), ({"full_attn_layers": [2, "4"]}, "are not layers 1 to 4")],
)
def test_layers_that_are_listed_wrongly_are_refused(
    changes: dict[str, object], message: str, tiny_model: TinyModels
) -> None:
    values = json.loads((tiny_model("kimi-linear").folder / "config.json").read_text())
    config = ConfigReader(published(values, **changes))
    with pytest.raises(CheckpointError, match=message):
        architecture_of(config).build(config, ShapesOnly())


def test_latent_attention_with_positions_is_refused(tiny_model: TinyModels) -> None:
    values = json.loads((tiny_model("kimi-linear").folder / "config.json").read_text())
    config = ConfigReader({**values, "mla_use_nope": False})
    with pytest.raises(CheckpointError, match="mla_use_nope"):
        architecture_of(config).build(config, ShapesOnly())
