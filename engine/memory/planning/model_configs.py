"""The shapes of well-known models, each as a minimal config.json, so that `agon plan gemma-3-27b` needs no download.

Only what says what the layers store; layer_tables.py reads it like any other config.
"""

from typing import Any


def _dense(num_layers: int, num_kv_heads: int, head_dim: int, **more: Any) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "num_hidden_layers": num_layers,
        "num_attention_heads": num_kv_heads,
        "num_key_value_heads": num_kv_heads,
        "head_dim": head_dim,
        "hidden_size": num_kv_heads * head_dim,
        "max_position_embeddings": 131_072,
        "torch_dtype": "bfloat16",
        **more,
    }


#: character.ai's published recipe: one global layer in six, windows of 1024, keys and values shared by neighbours.
_CHARACTER_GLOBAL_LAYERS = (0, 6, 12, 18, 24, 30)


def _character() -> dict[str, Any]:
    types = ["full_attention" if i in _CHARACTER_GLOBAL_LAYERS else "sliding_attention" for i in range(32)]
    shared: list[int | None] = []
    for index, kind in enumerate(types):
        if kind == "full_attention":
            shared.append(0 if index else None)  # all global layers share the first one's
        else:
            is_second = index % 6 in (2, 4)  # neighbours in pairs
            shared.append(index - 1 if is_second else None)
    return _dense(32, 8, 128, layer_types=types, sliding_window=1024, kv_shared_with=shared)


def _pyramid_budgets(num_layers: int, longest: int, shortest: int) -> list[int]:
    """PyramidKV: budgets fall linearly from the first layer to the last; whole pages of 16 tokens."""
    step = (longest - shortest) / (num_layers - 1)
    return [round((longest - step * index) / 16) * 16 for index in range(num_layers)]


CONFIGS: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": _dense(32, 8, 128),
    "llama-3.2-11b-vision": {
        "model_type": "mllama",
        "text_config": _dense(
            40, 8, 128, model_type="mllama_text_model", cross_attention_layers=[3, 8, 13, 18, 23, 28, 33, 38]
        ),
        "vision_config": {"image_size": 560, "patch_size": 14, "max_num_tiles": 4},
    },
    "gemma-2-2b": _dense(26, 4, 256, model_type="gemma2", sliding_window=4096, max_position_embeddings=8192),
    "gemma-2-9b": _dense(42, 8, 256, model_type="gemma2", sliding_window=4096, max_position_embeddings=8192),
    "gemma-2-27b": _dense(46, 16, 128, model_type="gemma2", sliding_window=4096, max_position_embeddings=8192),
    "gemma-3-12b": _dense(48, 8, 256, model_type="gemma3_text", sliding_window=1024),
    "gemma-3-27b": _dense(62, 16, 128, model_type="gemma3_text", sliding_window=1024),
    "ministral-8b": _dense(36, 8, 128, model_type="ministral", sliding_window=32768),
    "llama-4-scout": _dense(
        48, 8, 128, model_type="llama4_text", attention_chunk_size=8192, max_position_embeddings=10_485_760
    ),
    "jamba-1.5-mini": _dense(
        32,
        8,
        128,
        model_type="jamba",
        hidden_size=4096,
        num_attention_heads=32,
        attn_layer_period=8,
        attn_layer_offset=4,
        mamba_d_state=16,
        mamba_d_conv=4,
        mamba_expand=2,
        max_position_embeddings=262_144,
    ),
    "llama-3.1-8b-pyramidkv": _dense(32, 8, 128, kv_budgets=_pyramid_budgets(32, 3968, 128)),
    "character": _character(),
    "gemma-2-27b-with-2b-draft": _dense(
        46,
        16,
        128,
        model_type="gemma2",
        sliding_window=4096,
        max_position_embeddings=8192,
        draft_model=_dense(26, 4, 256, model_type="gemma2", sliding_window=4096, max_position_embeddings=8192),
    ),
}
