"""The rotary embedding that a config.json describes, in all its spellings, against transformers."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, Phi3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from engine.attention.rotation import Rotation
from engine.errors import CheckpointError
from engine.kernels.torch_operators import TorchOperators
from engine.models.config_reader import ConfigReader
from engine.models.ministral3 import read_ministral3
from engine.models.rope import read_rope, read_ropes
from tests.engine.checkpoints import save
from tests.engine.chunked_logits import chunked_logits

POSITIONS = torch.tensor([0, 1, 3, 7, 40])
SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 4096,
}
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 8.0, "original_max_position_embeddings": 512}
LONG = {"rope_type": "longrope", "short_factor": [2.0] * 16, "long_factor": [float(i + 1) for i in range(16)]}


def rotation(values: dict[str, Any], served_context: int | None = None) -> Rotation:
    return read_rope(ConfigReader({**SIZES, **values}, served_context=served_context)).rotary(32).at(POSITIONS)


def reference(values: dict[str, Any], kind: str, num_tokens: int | None = None) -> Rotation:
    config_class: Any = Phi3Config if kind == "longrope" else LlamaConfig
    frequencies, amplitude = ROPE_INIT_FUNCTIONS[kind](config_class(**SIZES, **values), seq_len=num_tokens)
    angles = POSITIONS[:, None] * frequencies
    return Rotation(angles.cos() * amplitude, angles.sin() * amplitude)


def assert_same(ours: Rotation, theirs: Rotation) -> None:
    torch.testing.assert_close(ours.cos, theirs.cos, atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.sin, theirs.sin, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"truncate": False},
        {"beta_fast": 4, "beta_slow": 0.5},
        {"attention_factor": 1.7},
        {"mscale": 0.7, "mscale_all_dim": 1.0},
        {"mscale": 0.7},
        {"factor": None},
        {"factor": 1.0},
        {"original_max_position_embeddings": 4},  # the blend would end before the first channel
        {"original_max_position_embeddings": None},
        {"partial_rotary_factor": 0.5},
    ],
    ids=str,
)
def test_yarn_is_that_of_transformers(changes: dict[str, Any]) -> None:
    section = {key: value for key, value in {**YARN, **changes}.items() if value is not None or key == "factor"}
    assert_same(rotation({"rope_parameters": section}), reference({"rope_parameters": dict(section)}, "yarn"))


@pytest.mark.parametrize("high_freq_factor", [4.0, 1.0])
def test_llama3_is_that_of_transformers(high_freq_factor: float) -> None:
    """Llama 4 has equal bounds: nothing is blended."""
    section = {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 16.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": high_freq_factor,
        "original_max_position_embeddings": 512,
    }
    assert_same(rotation({"rope_parameters": section}), reference({"rope_parameters": dict(section)}, "llama3"))


def test_older_configs_spell_the_same_embedding_in_another_way() -> None:
    section = {"type": "yarn", "factor": 8.0}
    older = {"rope_theta": 10_000.0, "rope_scaling": section, "original_max_position_embeddings": 512}
    assert_same(rotation(older), rotation({"rope_parameters": YARN}))


def test_layers_with_a_window_may_have_an_embedding_of_their_own() -> None:
    sections = {"full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}
    config = ConfigReader({**SIZES, "rope_parameters": sections})
    full, window = read_ropes(config, default_base=1.0, default_window_base=1.0)
    assert_same(full.rotary(32).at(POSITIONS), rotation({"rope_parameters": YARN}))
    assert_same(window.rotary(32).at(POSITIONS), rotation({"rope_theta": 100.0}))


@pytest.mark.parametrize("served_context", [None, 1024, 512, 100])
def test_longrope_takes_its_factors_by_the_context_that_is_served(served_context: int | None) -> None:
    """Without a limit that is the context of the checkpoint. The amplitude is the same on both sides."""
    values = {"rope_parameters": dict(LONG), "original_max_position_embeddings": 512}
    num_tokens = served_context or SIZES["max_position_embeddings"]
    assert_same(rotation(values, served_context), reference(values, "longrope", num_tokens))


@pytest.mark.parametrize("kind", ["su", "yarn"])
def test_early_names_of_longrope(kind: str) -> None:
    values = {"original_max_position_embeddings": 512}
    older = {**values, "rope_scaling": {**LONG, "rope_type": None, "type": kind}}
    assert_same(rotation(older), rotation({**values, "rope_parameters": LONG}))


def test_dynamic_scaling_changes_nothing_within_the_context_of_the_checkpoint() -> None:
    values = {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0}}
    num_tokens = SIZES["max_position_embeddings"]
    assert_same(
        rotation(values), reference({"rope_parameters": dict(values["rope_parameters"])}, "dynamic", num_tokens)
    )


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({**YARN, "beta_slow": 40.0}, "has no blend"),
        ({**YARN, "beta_fast": 0}, "beta_fast must be from"),
        ({**YARN, "rope_theta": 1.0}, "has no blend"),
        ({**LONG, "long_factor": [1.0] * 15}, "15 factors of longrope for 16 pairs"),
        ({**LONG, "long_factor": [1.0] * 15 + [True]}, "must be numbers from"),
        ({**LONG, "long_factor": [1.0] * 15 + [float("nan")]}, "must be numbers from"),
        ({**LONG, "long_factor": 3.0}, "long_factor must be list"),
        ({**LONG, "original_max_position_embeddings": 1}, "needs an attention_factor"),
        ({"rope_type": "proportional"}, "'proportional' is not supported"),
    ],
    ids=str,
)
def test_an_embedding_that_cannot_be_computed_is_refused(section: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        rotation({"rope_parameters": {"original_max_position_embeddings": 512, **section}})


@pytest.mark.parametrize(("served_context", "is_scaled"), [(None, True), (513, True), (512, False)])
def test_queries_grow_only_where_more_than_the_original_context_is_served(
    served_context: int | None, *, is_scaled: bool
) -> None:
    section = {**YARN, "llama_4_scaling_beta": 0.25}
    config = ConfigReader({**SIZES, "rope_parameters": section}, served_context=served_context)
    scaling = read_ministral3(config).rope.query_scaling
    assert (scaling is not None) == is_scaled
    if scaling is not None:
        factors = scaling.at(torch.tensor([0, 511, 512, 1535, 1536])).flatten()
        grown = 1.0 + 0.25 * torch.tensor([1.0, 1.0, 2.0, 3.0, 4.0]).log()
        torch.testing.assert_close(factors, grown)


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_parameters": {"rope_type": "default"}, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        {"partial_rotary_factor": 0.5},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
    ],
    ids=["both spellings", "a share that Llama ignores", "likewise, inside"],
)
def test_llama_rotates_as_in_transformers(tmp_path: Path, changes: dict[str, Any]) -> None:
    model = save("llama", tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    token_ids = list(range(5, 45))
    logits = chunked_logits(tmp_path, token_ids, page_tokens=4, chunk=64, operators=TorchOperators())
    torch.testing.assert_close(logits, model.logits(token_ids), atol=1e-4, rtol=0)
