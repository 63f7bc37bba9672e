"""What a model's layers store, read from its config.json."""

from collections import Counter
from collections.abc import Mapping

import pytest

from engine.errors import CheckpointError
from engine.memory.planning.grouping import group_layers
from engine.memory.planning.layer_tables import KVDType, layers_from_config
from engine.memory.planning.model_configs import CONFIGS
from engine.memory.spec import LayerSpec, storing_layer


def kinds(config: Mapping[str, object], kv_dtype: KVDType = "auto") -> Counter[tuple[str, int, int]]:
    layers = layers_from_config(config, kv_dtype=kv_dtype).layers
    return Counter((layer.kind, layer.bytes_per_token, layer.span) for layer in layers)


def test_a_multimodal_gemma_3_keeps_its_text_part_in_a_section_of_its_own() -> None:
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "mm_tokens_per_image": 256,
        "text_config": {
            "model_type": "gemma3_text",
            "head_dim": 128,
            "hidden_size": 5376,
            "num_attention_heads": 32,
            "num_hidden_layers": 62,
            "num_key_value_heads": 16,
            "sliding_window": 1024,
        },
        "torch_dtype": "bfloat16",
        "vision_config": {"image_size": 896, "patch_size": 14},
    }
    assert kinds(config) == {("full", 8192, 0): 10, ("window", 8192, 1024): 52}
    with_images = layers_from_config(config, with_vision_cache=True)
    assert with_images.image_tokens == 256
    assert with_images.layers[-1] == LayerSpec("vision", 2 * 5376, "bfloat16")


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
    assert kinds(config) == {("full", 1024, 0): 1, ("window", 1024, 128): 2}


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
    assert kinds(config) == {("full", 4096, 0): 12, ("chunked", 4096, 8192): 36}


def test_the_published_config_of_ministral_says_windows_everywhere_but_one_layer_in_four_has_none() -> None:
    config = {
        "model_type": "mistral",
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "hidden_size": 4096,
        "sliding_window": 32768,
    }
    assert kinds(config) == {("full", 4096, 0): 9, ("window", 4096, 32768): 27}


def test_a_mistral_with_a_window_has_it_in_all_layers() -> None:
    config = {"model_type": "mistral", "num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096}
    assert kinds({**config, "sliding_window": 4096}) == {("window", 4096, 4096): 32}
    assert kinds({**config, "sliding_window": None}) == {("full", 4096, 0): 32}


def test_a_mamba_layer_stores_a_convolution_and_an_ssm_state() -> None:
    jamba = kinds(CONFIGS["jamba-1.5-mini"])
    assert jamba == {("full", 4096, 0): 4, ("recurrent", 48 * 1024, 512): 28, ("recurrent", 256 * 1024, 512): 28}
    mamba_2 = {"model_type": "mamba2", "num_hidden_layers": 2, "hidden_size": 4096, "num_heads": 128, "n_groups": 8}
    found = kinds({**mamba_2, "state_size": 128, "expand": 2, "conv_kernel": 4})
    assert found == {("recurrent", (8192 + 2 * 8 * 128) * 3 * 2, 512): 2, ("recurrent", 8192 * 128 * 2, 512): 2}


def test_quantised_keys_and_values_take_a_byte_and_their_scales() -> None:
    llama = CONFIGS["llama-3.1-8b"]
    for kv_dtype in ("fp8", "int8"):
        assert kinds(llama, kv_dtype=kv_dtype) == {("full", 2 * 8 * (128 + 4), 0): 32}
    assert kinds(llama, kv_dtype="float32") == {("full", 2 * 8 * 128 * 4, 0): 32}


def test_states_keep_their_own_dtype_when_attention_is_quantised() -> None:
    types = group_layers(layers_from_config(CONFIGS["jamba-1.5-mini"], kv_dtype="fp8").layers, page_tokens=16)
    assert {(kind.spec.kind, kind.spec.dtype) for kind in types} == {("full", "fp8"), ("recurrent", "bfloat16")}


def test_layers_that_share_keys_and_values_store_nothing() -> None:
    layers = layers_from_config(CONFIGS["character"]).layers
    types = group_layers(layers, page_tokens=16)
    assert {kind.spec.kind: len(kind.layer_ids) for kind in types} == {"full": 1, "window": 16}
    assert storing_layer(layers, 24) == 0
    assert storing_layer(layers, 2) == 1
    assert storing_layer(layers, 1) == 1


def test_every_layer_of_pyramidkv_has_its_own_budget() -> None:
    layers = layers_from_config(CONFIGS["llama-3.1-8b-pyramidkv"]).layers
    assert [layers[0].span, layers[-1].span] == [3968, 128]
    assert {layer.kind for layer in layers} == {"budgeted"}


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"num_hidden_layers": 0, "num_attention_heads": 2, "hidden_size": 8},
        {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 8, "layer_types": ["full_attention"]},
        {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "layer_types": ["telepathy"]},
        {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "kv_shared_with": [0]},
        {"num_hidden_layers": "many"},
        {"num_hidden_layers": 1, "num_attention_heads": 0, "hidden_size": 8},
    ],
)
def test_a_config_that_does_not_say_enough_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(CheckpointError):
        layers_from_config(broken)
