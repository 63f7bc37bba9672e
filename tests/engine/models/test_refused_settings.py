"""Settings that the code of an architecture does not implement are refused by name, never computed wrongly."""

from collections.abc import Mapping
from typing import Any

import pytest

from engine.errors import CheckpointError
from engine.layers.weights import ShapesOnly
from engine.models.config_reader import ConfigReader
from engine.models.registry import architecture_of
from tests.engine.checkpoints import VARIANTS

#: (variant, changes of its config, what the error says)
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("falcon", {"alibi": True}, "alibi True is not supported"),
    ("falcon-new", {"parallel_attn": False}, "parallel_attn False is not supported"),
    ("falcon-new", {"num_kv_heads": 4}, "6 heads over 4 do not fit"),
    ("phi", {"qk_layernorm": True}, "qk_layernorm True is not supported"),
    ("starcoder2", {"hidden_act": "tanh"}, "hidden_act 'tanh' is not supported"),
    ("glm4", {"partial_rotary_factor": 0.2}, "3 rotated channels of 16 are no pairs"),
    ("glm4-moe", {"first_k_dense_replace": 1, "n_group": 5}, "12 experts in 5 groups, 2 chosen, do not fit"),
    ("glm4-moe", {"first_k_dense_replace": 1, "num_experts_per_tok": 7}, "7 of 6 experts cannot be chosen"),
    ("glm4-moe", {"first_k_dense_replace": 1, "scoring_func": "softmax"}, "scoring_func 'softmax' is not supported"),
    ("olmoe", {"clip_qkv": 8.0}, "clip_qkv is not supported"),
    ("minimax-m2", {"attn_type_list": [1, 0, 1]}, "attn_type_list must be 1 in all layers"),
    ("minimax-m2", {"rotary_dim": 24}, "rotary_dim 24 is more than the 16 channels of a head"),
    ("hunyuan", {"use_cla": True}, "use_cla True is not supported"),
    ("hunyuan", {"rope_parameters": {"rope_type": "linear", "alpha": 2.0}}, "rope_type 'linear' is not supported"),
    ("hunyuan-moe", {"moe_topk": [1, 2]}, "moe_topk has 2 numbers for 3 layers"),
    ("hunyuan-moe", {"moe_topk": [1, "2", 1]}, "moe_topk must be int"),
    ("phimoe", {"num_experts_per_tok": 3}, "num_experts_per_tok 3 is not supported"),
    ("phimoe", {"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "has no short_mscale"),
    ("nemotron-h-moe", {"n_shared_experts": 2}, "n_shared_experts 2 is not supported"),
    ("nemotron-h-moe", {"moe_latent_size": 0}, "moe_latent_size must be from 1"),
    ("gemma3n", {"altup_active_idx": 3}, "altup_active_idx 3 is none of 3 streams"),
    ("gemma3n", {"activation_sparsity_pattern": [0.5]}, "activation_sparsity_pattern .* for each of 5 layers"),
    ("gemma3n", {"hidden_size_per_layer_input": 0}, "hidden_size_per_layer_input 0 is not supported"),
    ("gemma", {"hidden_act": "silu"}, "hidden_act 'silu' is not supported"),
]


@pytest.mark.parametrize(("name", "changes", "message"), REFUSED)
def test_a_setting_that_is_not_implemented_is_named(name: str, changes: Mapping[str, Any], message: str) -> None:
    architecture, settings = VARIANTS[name]
    config = ConfigReader({"architectures": [architecture], **settings, **changes})
    with pytest.raises(CheckpointError, match=message):
        architecture_of(config).build(config, ShapesOnly())
