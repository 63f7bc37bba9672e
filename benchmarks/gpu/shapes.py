"""Models of the GPU benchmark, as configs without weights, and our goals for them on one H200."""

from dataclasses import dataclass
from typing import Any

_TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128256,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_act": "silu",
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "dtype": "bfloat16",
    **_TOKENS,
}
LLAMA_1B = {
    **_LLAMA,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "head_dim": 64,
    "tie_word_embeddings": True,
}
LLAMA_8B = {
    **_LLAMA,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "head_dim": 128,
    "tie_word_embeddings": False,
}
QWEN3_600M = {
    **_LLAMA,
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 151936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
}
TINY = {
    **_LLAMA,
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}
CONFIGS = {"llama-3.2-1b": LLAMA_1B, "qwen3-0.6b": QWEN3_600M, "llama-3.1-8b": LLAMA_8B, "tiny": TINY}


@dataclass(frozen=True, slots=True)
class Goal:
    """Tokens per second on one H200: the goal, and the first milestone."""

    goal: float
    milestone: float | None = None


#: By model and batch, contexts of about 1024 tokens.
DECODE_GOALS = {
    ("llama-3.2-1b", 1): Goal(1_100, 850),
    ("llama-3.2-1b", 16): Goal(15_500, 11_400),
    ("llama-3.2-1b", 64): Goal(42_000, 30_000),
    ("llama-3.2-1b", 256): Goal(65_000, 46_000),
    ("qwen3-0.6b", 1): Goal(1_450, 1_000),
    ("qwen3-0.6b", 16): Goal(13_300, 10_000),
    ("qwen3-0.6b", 64): Goal(23_000, 16_000),
    ("qwen3-0.6b", 256): Goal(27_500, 20_000),
    ("llama-3.1-8b", 1): Goal(233, 200),
    ("llama-3.1-8b", 16): Goal(3_280, 2_800),
    ("llama-3.1-8b", 64): Goal(9_400, 7_500),
    ("llama-3.1-8b", 256): Goal(15_300, 12_000),
}
#: By model and prompt tokens.
PREFILL_GOALS = {
    ("llama-3.2-1b", 2048): Goal(228_000),
    ("llama-3.2-1b", 8192): Goal(190_000),
    ("qwen3-0.6b", 2048): Goal(390_000),
    ("qwen3-0.6b", 8192): Goal(235_000),
    ("llama-3.1-8b", 2048): Goal(35_000),
    ("llama-3.1-8b", 8192): Goal(31_000),
}
#: 256 sequences with prompts and answers of 100 to 1024 tokens, Qwen3-0.6B.
UNIFORM_GOAL = Goal(20_000)
