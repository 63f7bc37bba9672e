"""Folders of adapters: what is read, and that everything else is refused by a sentence that names it."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.adapters.lora_config import LoraConfig
from engine.adapters.peft_folder import PeftFolder
from engine.adapters.random_adapter import write_random_adapter
from engine.errors import AdapterError, CheckpointError
from tests.engine.checkpoints import TinyModels
from tests.engine.small_engines import load


@pytest.fixture
def folder(tiny_model: TinyModels, tmp_path: Path) -> Path:
    """An adapter of rank 4 for the tiny llama."""
    write_random_adapter(str(tiny_model("llama").folder), tmp_path, rank=4)
    return tmp_path


def change(folder: Path, **fields: Any) -> None:
    file = folder / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def replace_tensors(folder: Path, **changes: torch.Tensor | None) -> None:
    """changes: by the last parts of names; None: away with it."""
    file = folder / "adapter_model.safetensors"
    tensors = load_file(file)
    for name, tensor in changes.items():
        if tensor is None:
            del tensors[name]
        else:
            tensors[name] = tensor
    save_file(tensors, str(file))


FIRST = "base_model.model.model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"peft_type": "IA3"}, "peft_type 'IA3'"),
        ({"bias": "lora_only"}, "bias = 'lora_only'"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"layer_replication": [[0, 2]]}, "layer_replication"),
        ({"lora_bias": True}, "lora_bias"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices"),
        ({"target_parameters": ["experts.gate_up_proj"]}, "target_parameters"),
        ({"a_field_of_tomorrow": 3}, "a_field_of_tomorrow = 3"),
        ({"init_lora_weights": "pissa_niter_16"}, "changes the base's weights"),
        ({"init_lora_weights": "olora"}, "changes the base's weights"),
        ({"r": 0}, "r = 0 is no rank"),
        ({"r": 8}, "has rank 4, adapter_config.json says 8"),
        ({"lora_alpha": "big"}, "lora_alpha"),
        ({"lora_alpha": math.inf}, "not readable JSON"),
        ({"rank_pattern": {"q_proj": 9}}, "has rank 4, adapter_config.json says 9"),
        ({"alpha_pattern": {"(": 1}}, "no regular expression"),
        ({"alpha_pattern": {"(a+)+b": 1}}, "is not supported"),
        ({"alpha_pattern": [1]}, "is no object"),
        ({"use_dora": True}, "magnitude"),
        ({"use_rslora": 1}, "neither true nor false"),
    ],
)
def test_a_configuration_that_is_not_supported_is_refused_by_name(
    folder: Path, fields: dict[str, Any], reason: str
) -> None:
    change(folder, **fields)
    with pytest.raises(CheckpointError, match=reason.replace("(", r"\(").replace("+", r"\+")):
        PeftFolder.read(folder)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({f"{FIRST}.lora_B.weight": None}, "lora_A without the other matrix"),
        ({f"{FIRST}.lora_A.weight": torch.zeros(4, 5, dtype=torch.int32)}, "has dtype int32"),
        ({f"{FIRST}.lora_A.weight": torch.full((4, 48), math.nan)}, "NaN or infinity"),
        ({f"{FIRST}.lora_B.weight": torch.zeros(48, 3)}, "do not fit"),
        ({f"{FIRST}.lora_magnitude_vector": torch.ones(48)}, "magnitude vector"),
        ({f"{FIRST}.bias": torch.ones(48)}, "not supported: .*q_proj.bias"),
        ({"base_model.model.model.embed_tokens.lora_embedding_A": torch.ones(4, 9)}, "lora_embedding_A"),
        ({"base_model.model.lm_head.weight": torch.ones(4, 9)}, "lm_head.weight"),
    ],
)
def test_tensors_that_are_not_supported_are_refused_by_name(
    folder: Path, changes: dict[str, torch.Tensor | None], reason: str
) -> None:
    replace_tensors(folder, **changes)
    with pytest.raises(AdapterError, match=reason):
        PeftFolder.read(folder)


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_folder_without_one_of_its_files_is_refused(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(AdapterError, match=f"no {name}"):
        PeftFolder.read(folder)


def test_pickled_weights_are_never_loaded(folder: Path) -> None:
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(AdapterError, match="pickled weights"):
        PeftFolder.read(folder)


def test_a_damaged_file_is_refused(folder: Path) -> None:
    file = folder / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(AdapterError, match="damaged"):
        PeftFolder.read(folder)


def test_scales_follow_rank_alpha_and_patterns(folder: Path) -> None:
    change(folder, r=4, lora_alpha=6, alpha_pattern={"layers.1.self_attn.q_proj": 3, r"mlp\.(up|down)_proj": 2})
    config = LoraConfig.read(folder)
    assert config.scale_of("model.layers.0.self_attn.q_proj") == 1.5
    assert config.scale_of("model.layers.1.self_attn.q_proj") == 0.75
    assert config.scale_of("model.layers.11.self_attn.q_proj") == 1.5
    assert config.scale_of("model.layers.2.mlp.down_proj") == 0.5
    change(folder, use_rslora=True)
    assert LoraConfig.read(folder).scale_of("model.layers.0.self_attn.q_proj") == 3.0


def test_the_digest_changes_with_every_number(folder: Path) -> None:
    first = PeftFolder.read(folder).digest
    change(folder, lora_alpha=5)
    second = PeftFolder.read(folder).digest
    replace_tensors(folder, **{f"{FIRST}.lora_A.weight": torch.zeros(4, 48)})
    assert len({first, second, PeftFolder.read(folder).digest}) == 3


def test_an_adapter_that_does_not_fit_the_model_is_refused(
    tiny_model: TinyModels, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with load(tiny_model("llama").folder, max_adapters=1, max_adapter_rank=3) as llm:
        with pytest.raises(AdapterError, match="rank 4, more than max_adapter_rank 3"):
            llm.add_adapter("a", folder)
        replace_tensors(folder, **{f"{FIRST}.lora_A.weight": torch.zeros(4, 40)})
        with pytest.raises(AdapterError, match="is for 40 inputs"):
            llm.add_adapter("a", folder)
    with load(tiny_model("mixtral").folder, max_adapters=1) as llm:
        other = tmp_path_factory.mktemp("experts")
        layer = "base_model.model.model.layers.0.block_sparse_moe.experts.0.w1"
        (other / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2}))
        tensors = {f"{layer}.lora_A.weight": torch.zeros(2, 48), f"{layer}.lora_B.weight": torch.zeros(80, 2)}
        save_file(tensors, str(other / "adapter_model.safetensors"))
        with pytest.raises(AdapterError, match=r"no linear layer .* of the name .*experts\.0\.w1"):
            llm.add_adapter("a", other)
    with load(tiny_model("llama").folder) as llm, pytest.raises(AdapterError, match="max_adapters"):
        llm.add_adapter("a", folder)
