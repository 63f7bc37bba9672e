"""Layers of architectures that are not served, and of storage that no served model has yet."""

from collections import Counter
from collections.abc import Iterable, Mapping

import pytest

from engine.errors import CheckpointError
from engine.memory.planning.grouping import group_layers
from engine.memory.planning.layer_tables import ModelLayers, PlannedKVDType, layers_by_rule
from engine.memory.planning.model_configs import CONFIGS
from engine.memory.spec import LayerSpec, storing_layer
from engine.models.stored_layers import layers_from_config


def kinds(layers: Iterable[LayerSpec]) -> Counter[tuple[str, int, int]]:
    return Counter((layer.kind, layer.bytes_per_token, layer.span) for layer in layers)


def by_rule(config: Mapping[str, object]) -> Counter[tuple[str, int, int]]:
    return kinds(layers_by_rule(config).layers)


def named(name: str, kv_dtype: PlannedKVDType = "auto") -> ModelLayers:
    return layers_from_config(CONFIGS[name], kv_dtype=kv_dtype)


def test_images_of_gemma_3_are_added_to_the_layers_of_its_text_model() -> None:
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "mm_tokens_per_image": 256,
        "text_config": {
            "model_type": "gemma3_text",
            "head_dim": 128,
            "hidden_size": 5376,
            "intermediate_size": 21504,
            "num_attention_heads": 32,
            "num_hidden_layers": 62,
            "num_key_value_heads": 16,
            "sliding_window": 1024,
        },
        "torch_dtype": "bfloat16",
        "vision_config": {"image_size": 896, "patch_size": 14},
    }
    text = layers_from_config(config)
    assert kinds(text.layers) == {("full", 8192, 0): 10, ("window", 8192, 1024): 52}
    with_images = layers_from_config(config, with_vision=True)
    assert with_images.image_tokens == 256
    assert with_images.layers == (*text.layers, LayerSpec("vision", 2 * 5376, "bfloat16"))
    assert (text.is_served, with_images.is_served) == (True, False)


def test_layer_types_are_believed_before_any_rule() -> None:
    config = {
        "model_type": "something-new",
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "head_dim": 64,
        "hidden_size": 256,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    }
    assert by_rule(config) == {("full", 1024, 0): 1, ("window", 1024, 128): 2}


def test_llama_4_has_three_chunked_layers_to_one_with_full_attention() -> None:
    config = {
        "model_type": "llama4",
        "text_config": {
            "model_type": "llama4_text",
            "num_hidden_layers": 48,
            "num_attention_heads": 40,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "hidden_size": 5120,
            "attention_chunk_size": 8192,
            "no_rope_layers": [1, 1, 1, 0] * 12,
        },
    }
    assert by_rule(config) == {("full", 4096, 0): 12, ("chunked", 4096, 8192): 36}


def test_a_window_without_a_rule_is_in_all_layers() -> None:
    config = {"model_type": "starcoder2", "num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096}
    assert by_rule({**config, "sliding_window": 4096}) == {("window", 16384, 4096): 32}
    assert by_rule({**config, "sliding_window": None}) == {("full", 16384, 0): 32}


def test_the_upper_layers_of_gemma_3n_read_the_keys_and_values_of_lower_ones() -> None:
    config = {"model_type": "gemma3n_text", "num_hidden_layers": 30, "hidden_size": 2048, "sliding_window": 512}
    layers = layers_by_rule(config).layers
    assert [layer.shares_with for layer in layers[:15]] == [None] * 15
    assert [layers[owner].kind for layer in layers[15:] if (owner := layer.shares_with) is not None] == [
        layer.kind for layer in layers[15:]
    ]


def test_a_layer_of_mamba_2_convolves_its_inputs_and_outputs_too() -> None:
    config = {"num_hidden_layers": 2, "layer_types": ["mamba", "mamba"], "hidden_size": 4096, "num_attention_heads": 32}
    sizes = {"mamba_n_heads": 128, "mamba_n_groups": 8, "mamba_d_state": 128, "mamba_expand": 2, "mamba_d_conv": 4}
    found = by_rule({**config, **sizes})
    assert found == {("recurrent", (8192 + 2 * 8 * 128) * 3 * 2, 512): 2, ("recurrent", 8192 * 128 * 2, 512): 2}


def test_a_served_mamba_layer_stores_its_ssm_state_in_float32() -> None:
    assert kinds(named("jamba-1.5-mini").layers) == {
        ("full", 4096, 0): 4,
        ("recurrent", 48 * 1024, 512): 28,
        ("recurrent", 512 * 1024, 512): 28,
    }


@pytest.mark.parametrize("name", ["llama-3.1-8b", "llama-4-scout"])
def test_quantised_keys_and_values_take_a_byte_and_their_scales(name: str) -> None:
    for kv_dtype in ("fp8", "int8"):
        layers = named(name, kv_dtype=kv_dtype).layers
        assert {layer.bytes_per_token for layer in layers} == {2 * 8 * (128 + 4)}
    assert {layer.bytes_per_token for layer in named(name, kv_dtype="float32").layers} == {2 * 8 * 128 * 4}


def test_states_keep_their_own_dtype_when_attention_is_quantised() -> None:
    types = group_layers(named("jamba-1.5-mini", kv_dtype="int8").layers, page_tokens=16)
    assert {(kind.spec.part or kind.spec.kind, kind.spec.dtype) for kind in types} == {
        ("full", "int8"),
        ("conv", "bfloat16"),
        ("ssm", "float32"),
    }


def test_layers_that_share_keys_and_values_store_nothing() -> None:
    layers = named("character").layers
    types = group_layers(layers, page_tokens=16)
    assert {kind.spec.kind: len(kind.layer_ids) for kind in types} == {"full": 1, "window": 16}
    assert storing_layer(layers, 24) == 0
    assert storing_layer(layers, 2) == 1
    assert storing_layer(layers, 1) == 1


def test_every_layer_of_pyramidkv_has_its_own_budget() -> None:
    layers = named("llama-3.1-8b-pyramidkv").layers
    assert [layers[0].span, layers[-1].span] == [3968, 128]
    assert {layer.kind for layer in layers} == {"budgeted"}


def test_a_draft_model_adds_the_layers_of_its_own_model_code() -> None:
    both = named("gemma-2-27b-with-2b-draft")
    drafts = [layer for layer in both.layers if layer.model == "draft"]
    assert kinds(drafts) == kinds(named("gemma-2-2b").layers)
    assert kinds(both.layers) - kinds(drafts) == kinds(named("gemma-2-27b").layers)


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"num_hidden_layers": 0, "num_attention_heads": 2, "hidden_size": 8},
        {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 8, "layer_types": ["full_attention"]},
        {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "layer_types": ["telepathy"]},
        {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "kv_shared_with": [0]},
        {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "kv_budgets": [16, 16]},
        {"num_hidden_layers": "many"},
        {"num_hidden_layers": 1, "num_attention_heads": 0, "hidden_size": 8},
    ],
)
def test_a_config_that_does_not_say_enough_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(CheckpointError):
        layers_from_config({"architectures": ["SomethingNew"], **broken})


def test_a_config_without_an_architecture_is_refused_because_a_worker_would_refuse_it() -> None:
    with pytest.raises(CheckpointError, match="no architectures"):
        layers_from_config({"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8})
