"""What the checkpoints of Qwen3-Next and Qwen3.5 have in other forms than those that transformers writes, and what is
refused."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.config import EngineConfig
from engine.errors import CheckpointError
from engine.layers.weights import ShapesOnly
from engine.models.config_reader import ConfigReader
from engine.models.registry import architecture_of
from engine.runner import load_runner
from tests.engine.checkpoints import TinyModels
from tests.engine.stepper import generate, random_prompt


def tokens(folder: Path) -> list[list[int]]:
    config = EngineConfig(str(folder), kv_cache_bytes=1 << 20, max_running=2, num_threads=1)
    return generate(load_runner(config).runner, [random_prompt(1, 20)], 6, chunk=64)


def test_experts_may_be_joined_and_a_predictor_of_more_tokens_is_ignored(
    tmp_path: Path, tiny_model: TinyModels
) -> None:
    source = tiny_model("qwen3.5-moe-with-vision").folder
    tensors = load_file(source / "model.safetensors")
    for index in range(3):
        name = f"model.language_model.layers.{index}.mlp.experts"
        gates, ups, downs = (
            torch.stack([tensors.pop(f"{name}.{expert}.{part}_proj.weight") for expert in range(5)])
            for part in ("gate", "up", "down")
        )
        tensors |= {f"{name}.gate_up_proj": torch.cat((gates, ups), 1), f"{name}.down_proj": downs}
    tensors["mtp.norm.weight"] = torch.ones(48)
    save_file(tensors, tmp_path / "model.safetensors")
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    assert tokens(tmp_path) == tokens(source)


def test_without_a_list_of_layers_every_fourth_one_has_attention(tiny_model: TinyModels) -> None:
    values = json.loads((tiny_model("qwen3-next").folder / "config.json").read_text())
    config = ConfigReader({**values, "layer_types": None, "num_hidden_layers": 9, "full_attention_interval": None})
    model = architecture_of(config).build(config, ShapesOnly())
    assert len(model.attention_shapes) == 2
    assert len(model.state_shapes) == 2 * 7


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_types": ["linear_attention"]}, "layer_types must name 3 layers"),
        ({"layer_types": ["sliding_attention"] * 3}, "layer_types must name 3 layers"),
        ({"linear_num_value_heads": 5}, "5 value heads over 2 key heads do not fit"),
        ({"num_key_value_heads": 4}, "6 heads over 4 do not fit"),
        ({"attn_output_gate": False}, "attn_output_gate False is not supported"),
        ({"attention_bias": True}, "attention_bias True is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
        ({"mamba_ssm_dtype": "bfloat16"}, "mamba_ssm_dtype 'bfloat16' is not supported"),
        ({"linear_key_head_dim": 10_000_000}, "linear_key_head_dim must be from 1 to 8192"),
    ],
)
def test_a_config_that_we_cannot_serve_is_refused(
    tiny_model: TinyModels, changes: dict[str, object], message: str
) -> None:
    values = json.loads((tiny_model("qwen3-next").folder / "config.json").read_text())
    config = ConfigReader({**values, **changes})
    with pytest.raises(CheckpointError, match=message):
        architecture_of(config).build(config, ShapesOnly())
