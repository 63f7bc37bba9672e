"""GGUF files of all architectures: what the file computes is what the checkpoint computes that it was made from."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from engine.formats.gguf.architectures import ARCHITECTURES
from engine.kernels.torch_operators import TorchOperators
from engine.loader import CheckpointWeights, find_model_folder, format_of, open_checkpoint, read_config
from engine.models.config_reader import ConfigReader
from engine.models.registry import architecture_of
from tests.engine.checkpoints import CONTEXT, save
from tests.engine.chunked_logits import chunked_logits
from tests.engine.formats import gguf_converter as converter
from tests.engine.stepper import random_prompt

PROMPT = random_prompt(7, 30)
#: Sizes of which rows are whole blocks of 32, and settings that files do not hold replaced by the published ones.
WIDE = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "head_dim": 16, "num_key_value_heads": 2}
DELTA = {"linear_key_head_dim": 8, "linear_value_head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4}
LATENT = {"hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32, "v_head_dim": 32, "q_lora_rank": 32}
LATENT |= {"num_attention_heads": 4, "num_key_value_heads": 4}
CASES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "llama": ("llama-with-biases", WIDE),
    "mixtral": ("mixtral", WIDE),
    "qwen2": ("qwen2", WIDE),
    "qwen3": ("qwen3", WIDE),
    "qwen2moe": (
        "qwen2-moe",
        {**WIDE, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64}
        | {"decoder_sparse_step": 1, "use_sliding_window": False, "sliding_window": None},
    ),
    "qwen3moe": ("qwen3-moe", {**WIDE, "moe_intermediate_size": 32, "decoder_sparse_step": 1, "mlp_only_layers": []}),
    "gemma": ("gemma", WIDE),
    "gemma2": ("gemma2", {**WIDE, "query_pre_attn_scalar": 16}),
    "gemma3": ("gemma3", {**WIDE, "query_pre_attn_scalar": 16}),
    "gemma3n": ("gemma3n", {"altup_num_inputs": 4, "vocab_size_per_layer_input": 311}),
    "phi3": ("phi3", WIDE),
    "smollm3": (
        "smollm3",
        {**WIDE, "no_rope_layer_interval": 4, "num_hidden_layers": 4, "use_sliding_window": False}
        | {"sliding_window": None, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    ),
    "granite": ("granite", WIDE),
    "granitemoe": ("granite-moe", WIDE),
    "olmo2": ("olmo2", WIDE),
    "glm4": ("glm4", WIDE),
    "mistral3": (
        "ministral3",
        {**WIDE, "sliding_window": None, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    ),
    "ernie4_5": ("ernie4-5", {**WIDE, "use_bias": False}),
    "ernie4_5-moe": ("ernie4-5-moe", {**WIDE, "moe_intermediate_size": 32}),
    "gpt-oss": ("gpt-oss", {**WIDE, "intermediate_size": 64, "swiglu_limit": 7.0}),
    "deepseek2": ("deepseek-v2", {**LATENT, "q_lora_rank": None}),
    "deepseek2 (sigmoid)": (
        "deepseek-v3-yarn",
        {**LATENT, "attention_bias": False, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    ),
    "glm4moe": ("glm4-moe", {**WIDE, "moe_intermediate_size": 32}),
    "llama4": (
        "llama4",
        {**WIDE, "no_rope_layer_interval": 4, "floor_scale": 8192, "attn_scale": 0.1, "attention_chunk_size": 8192}
        | {"attention_bias": False, "intermediate_size_mlp": 64},
    ),
    "lfm2": ("lfm2", {"hidden_size": 96, "intermediate_size": 96, "block_auto_adjust_ff_dim": False}),
    "lfm2moe": (
        "lfm2-moe",
        {"hidden_size": 96, "intermediate_size": 96, "moe_intermediate_size": 32, "conv_bias": False}
        | {"routed_scaling_factor": 1.0},
    ),
    "qwen3next": (
        "qwen3-next",
        {**WIDE, **DELTA, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64, "mlp_only_layers": []},
    ),
    "qwen35": ("qwen3.5", {**WIDE, **DELTA}),
    "qwen35moe": (
        "qwen3.5-moe",
        {**WIDE, **DELTA, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64},
    ),
    "granitehybrid": ("granite-hybrid", {**WIDE, "intermediate_size": 32, "shared_intermediate_size": 64}),
}
#: Those that are compared each time; the others take time and differ little from them.
OFTEN = ("gemma3", "qwen3moe", "gpt-oss", "deepseek2 (sigmoid)", "qwen35moe", "granitehybrid")
OFTEN_IN_BLOCKS = {("gemma3", "Q5_0"), ("qwen35moe", "Q8_0"), ("gpt-oss", "MXFP4")}
TYPES = ("Q8_0", "Q5_0", "Q4_1", "MXFP4")
#: Without one here: llama.cpp's converter folds all factors into the weights of Falcon-H1, and its files of Nemotron-H
#: differ in nothing but names from those of Granite 4 and DeepSeek.
ELSEWHERE = {"falcon-h1", "nemotron_h", "nemotron_h_moe"}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.formats.gguf.folder.cache_folder", lambda: tmp_path / "cache" / "operators")


def test_every_architecture_has_a_case() -> None:
    assert CASES.keys() | ELSEWHERE == ARCHITECTURES.keys()


def marked(value: Any, *, is_often: bool) -> Any:
    """A variant of a test, long unless it is compared each time."""
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=[] if is_often else [pytest.mark.long])


def logits(folder: Path) -> torch.Tensor:
    return chunked_logits(folder, PROMPT, page_tokens=16, chunk=12, operators=TorchOperators())


def plain(name: str, values: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], Any]:
    return values, gguf.GGMLQuantizationType.F32


def written(tmp_path: Path, name: str, pack: Any = plain) -> tuple[Path, Path]:
    """A checkpoint, and the folder that is made of a GGUF file of it."""
    variant, changes = CASES[name]
    if not (tmp_path / "checkpoint").exists():
        save(variant, tmp_path / "checkpoint", **{"max_position_embeddings": CONTEXT, **changes})
    file = tmp_path / f"{getattr(pack, '__name__', 'file')}.gguf"
    stored = {"mixtral": "llama", "deepseek2 (sigmoid)": "deepseek2"}.get(name, name)
    converter.convert(tmp_path / "checkpoint", stored, file, pack)
    return tmp_path / "checkpoint", find_model_folder(str(file))


def check_all_taken(folder: Path) -> None:
    config, checkpoint = ConfigReader(read_config(folder)), open_checkpoint(folder)
    weights = CheckpointWeights(
        checkpoint,
        dtype=torch.float32,
        device=torch.device("cpu"),
        operators=TorchOperators(),
        quantised_by=format_of(checkpoint, config),
    )
    architecture = architecture_of(config)
    architecture.build(config, weights)
    weights.check_all_taken(architecture.ignored)


@pytest.mark.parametrize("name", [marked(name, is_often=name in OFTEN) for name in CASES])
def test_a_file_computes_what_its_checkpoint_computes(tmp_path: Path, name: str) -> None:
    checkpoint, made = written(tmp_path, name)
    check_all_taken(made)
    wanted = logits(checkpoint)
    torch.testing.assert_close(logits(made), wanted, atol=2e-4 * float(wanted.abs().max()), rtol=0)


@pytest.mark.parametrize(
    ("name", "kind"),
    [marked(case, is_often=case in OFTEN_IN_BLOCKS) for case in itertools.product(CASES, TYPES)],
)
def test_blocks_compute_what_they_stand_for(tmp_path: Path, name: str, kind: str) -> None:
    """Matrices in blocks, beside the same file with the numbers that the gguf package decodes from them."""
    block = gguf.GGMLQuantizationType[kind]

    def blocks(name: str, values: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], Any]:
        if values.ndim < 2 or values.shape[-1] % 32 or any(part in name for part in ("conv1d", "norm", "bias")):
            return values, gguf.GGMLQuantizationType.F32
        return gguf.quantize(values, block), block

    def numbers(name: str, values: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], Any]:
        data, stored = blocks(name, values)
        is_plain = stored == gguf.GGMLQuantizationType.F32
        return data if is_plain else gguf.dequantize(data, stored), gguf.GGMLQuantizationType.F32

    _, packed = written(tmp_path, name, blocks)
    _, unpacked = written(tmp_path, name, numbers)
    wanted = logits(unpacked)
    torch.testing.assert_close(logits(packed), wanted, atol=2e-4 * float(wanted.abs().max()), rtol=0)
