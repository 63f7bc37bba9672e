"""The shapes of well-known models, each as a minimal config.json, so that `agon plan gemma-3-27b` needs no download.

The sizes are the published ones, except for vocabularies: no page depends on them.
"""

from typing import Any


def _config(
    architecture: str, *, layers: int, heads: int, kv_heads: int, head_dim: int, hidden: int, ffn: int, **more: Any
) -> dict[str, Any]:
    """A config.json in bfloat16 with 131,072 tokens of context, unless `more` says otherwise."""
    return {
        "architectures": [architecture],
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "vocab_size": 131_072,
        "max_position_embeddings": 131_072,
        "torch_dtype": "bfloat16",
        **more,
    }


_LLAMA_8B: dict[str, Any] = {
    "layers": 32,
    "heads": 32,
    "kv_heads": 8,
    "head_dim": 128,
    "hidden": 4096,
    "ffn": 14_336,
}
_GEMMA_2: dict[str, Any] = {"sliding_window": 4096, "max_position_embeddings": 8192}
_GEMMA_2_2B = _config(
    "Gemma2ForCausalLM", layers=26, heads=8, kv_heads=4, head_dim=256, hidden=2304, ffn=9216, **_GEMMA_2
)
_GEMMA_2_27B = _config(
    "Gemma2ForCausalLM", layers=46, heads=32, kv_heads=16, head_dim=128, hidden=4608, ffn=36_864, **_GEMMA_2
)
#: Ministral-8B is published as a plain Mistral with a window of 32,768. Its authors' own parameter file says that only
#: three of four layers read it. "MinistralForCausalLM" is the architecture whose config lists the layers.
_MINISTRAL_LAYERS = ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"] * 9
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
    keys: dict[str, Any] = {"layer_types": types, "sliding_window": 1024, "kv_shared_with": shared}
    return _config("CharacterForCausalLM", **_LLAMA_8B, **keys)  # the name is Agon's: no code is published


def _pyramid_budgets(num_layers: int, longest: int, shortest: int) -> list[int]:
    """PyramidKV: budgets fall linearly from the first layer to the last; whole pages of 16 tokens."""
    step = (longest - shortest) / (num_layers - 1)
    return [round((longest - step * index) / 16) * 16 for index in range(num_layers)]


CONFIGS: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": _config("LlamaForCausalLM", **_LLAMA_8B),
    "llama-3.2-11b-vision": {
        "architectures": ["MllamaForConditionalGeneration"],
        "model_type": "mllama",
        "text_config": _config(
            "MllamaForCausalLM",
            **{**_LLAMA_8B, "layers": 40},
            model_type="mllama_text_model",
            cross_attention_layers=[3, 8, 13, 18, 23, 28, 33, 38],
        ),
        "vision_config": {"image_size": 560, "patch_size": 14, "max_num_tiles": 4},
    },
    "gemma-2-2b": _GEMMA_2_2B,
    "gemma-2-9b": _config(
        "Gemma2ForCausalLM", layers=42, heads=16, kv_heads=8, head_dim=256, hidden=3584, ffn=14_336, **_GEMMA_2
    ),
    "gemma-2-27b": _GEMMA_2_27B,
    "gemma-3-12b": _config(
        "Gemma3ForCausalLM",
        layers=48,
        heads=16,
        kv_heads=8,
        head_dim=256,
        hidden=3840,
        ffn=15_360,
        sliding_window=1024,
    ),
    "gemma-3-27b": _config(
        "Gemma3ForCausalLM",
        layers=62,
        heads=32,
        kv_heads=16,
        head_dim=128,
        hidden=5376,
        ffn=21_504,
        sliding_window=1024,
    ),
    "ministral-8b": _config(
        "MinistralForCausalLM",
        **{**_LLAMA_8B, "layers": 36, "ffn": 12_288},
        sliding_window=32_768,
        layer_types=_MINISTRAL_LAYERS,
    ),
    "llama-4-scout": _config(
        "Llama4ForCausalLM",
        layers=48,
        heads=40,
        kv_heads=8,
        head_dim=128,
        hidden=5120,
        ffn=16_384,
        model_type="llama4_text",
        attention_chunk_size=8192,
        max_position_embeddings=10_485_760,
    ),
    "jamba-1.5-mini": _config(
        "JambaForCausalLM",
        **_LLAMA_8B,
        attn_layer_period=8,
        attn_layer_offset=4,
        num_experts=16,
        mamba_d_state=16,
        mamba_d_conv=4,
        mamba_expand=2,
        max_position_embeddings=262_144,
    ),
    "llama-3.1-8b-pyramidkv": _config("LlamaForCausalLM", **_LLAMA_8B, kv_budgets=_pyramid_budgets(32, 3968, 128)),
    "character": _character(),
    "gemma-2-27b-with-2b-draft": {**_GEMMA_2_27B, "draft_model": _GEMMA_2_2B},
}
