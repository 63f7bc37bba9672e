"""Model folders for benchmarks: real shapes, random weights, and a tokenizer that covers the whole vocabulary.

`python -m benchmarks.models FOLDER` writes config.json and tokenizer of smol-135m only, for the engine's own random
weights (`load_format="dummy"`). `python -m benchmarks.models --make NAME,... [--out FOLDER]` writes whole checkpoints
with weights drawn by transformers from a seed, which every other engine can read too. The tokenizer gives every id of
the head a visible text, so that a client which counts pieces of text counts tokens.
"""

import argparse
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

#: Where --make writes and the other benchmarks look.
MODELS_VARIABLE = "AGON_BENCH_MODELS"
SEED = 20261120

_TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
#: rope_theta stands at the top level and torch_dtype beside dtype, so that older readers understand it too.
_BFLOAT16 = {"dtype": "bfloat16", "torch_dtype": "bfloat16"}

SMOL_135M: dict[str, Any] = {  # SmolLM2-135M
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "hidden_act": "silu",
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100000.0,
    "tie_word_embeddings": True,
    "initializer_range": 1 / 24,
    **_BFLOAT16,
    **_TOKENS,
}
TINY_15M: dict[str, Any] = {
    **SMOL_135M,
    "vocab_size": 8192,
    "hidden_size": 288,
    "intermediate_size": 896,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 48,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "initializer_range": 0.02,
}
GEMMA2_TINY: dict[str, Any] = {  # alternating sliding-window and full layers
    "architectures": ["Gemma2ForCausalLM"],
    "model_type": "gemma2",
    "vocab_size": 8192,
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "query_pre_attn_scalar": 64,
    "sliding_window": 128,
    "max_position_embeddings": 4096,
    "hidden_activation": "gelu_pytorch_tanh",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "tie_word_embeddings": True,
    "initializer_range": 0.02,
    **_BFLOAT16,
    **_TOKENS,
}
GPT2_124M: dict[str, Any] = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "vocab_size": 50257,
    "n_positions": 1024,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "initializer_range": 0.02,
    "tie_word_embeddings": True,
    **_BFLOAT16,
    **_TOKENS,
}
QWEN3_06B: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 151936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_act": "silu",
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
    "initializer_range": 1 / 32,
    **_BFLOAT16,
    **_TOKENS,
}
CONFIGS = {
    "smol-135m": SMOL_135M,
    "tiny-15m": TINY_15M,
    "gemma2-tiny": GEMMA2_TINY,
    "gpt2-124m": GPT2_124M,
    "qwen3-0.6b": QWEN3_06B,
}

_SPECIAL = ("<|pad|>", "<|start|>", "<|end|>")
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['role'] + '\\n' + message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def write_model(folder: Path, config: dict[str, Any]) -> Path:
    """Write config.json, tokenizer.json and tokenizer_config.json for `config` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    write_tokenizer(folder, config["vocab_size"])
    return folder


def write_tokenizer(folder: Path, vocab_size: int) -> None:
    """Write tokenizer.json and tokenizer_config.json, with a text for each id."""
    _tokenizer(vocab_size).save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": _SPECIAL[0],
        "bos_token": _SPECIAL[1],
        "eos_token": _SPECIAL[2],
        "chat_template": _CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))


def models_folder() -> Path:
    """$AGON_BENCH_MODELS, or benchmarks/models (which git ignores)."""
    return Path(os.environ.get(MODELS_VARIABLE) or Path(__file__).parent / "models")


def product_parameters(config: dict[str, Any]) -> tuple[int, int]:
    """Weights that every token is multiplied with: those of the layers, and those of the output head."""
    if config["model_type"] == "gpt2":
        hidden = config["n_embd"]
        return 12 * hidden**2 * config["n_layer"], hidden * config["vocab_size"]
    layer = sum(size * outputs for size, outputs in layer_products(config).values())
    return layer * config["num_hidden_layers"], config["hidden_size"] * config["vocab_size"]


def layer_products(config: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Inputs and outputs of the four products of a layer, by name: gate and up are one, and so are query, key and
    value."""
    hidden, head_dim, ffn = config["hidden_size"], config["head_dim"], config["intermediate_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    return {
        "qkv": (hidden, head_dim * (heads + 2 * kv_heads)),
        "output": (head_dim * heads, hidden),
        "gate_up": (hidden, 2 * ffn),
        "down": (ffn, hidden),
    }


def make_checkpoint(name: str, parent: Path) -> Path:
    """A whole checkpoint of CONFIGS[name] in `parent`/name; a complete one is kept."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModelForCausalLM

    folder, config = parent / name, CONFIGS[name]
    weights = folder / "model.safetensors"
    if weights.is_file():
        return folder
    torch.manual_seed(SEED)
    fields = {key: value for key, value in config.items() if key not in ("model_type", "torch_dtype")}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(config["model_type"], **fields), dtype=torch.float32)
    state = {key: value.to(torch.bfloat16).contiguous() for key, value in model.state_dict().items()}
    state.pop("lm_head.weight", None)  # tied to the embedding
    write_model(folder, config)
    partial = weights.with_suffix(".partial")
    save_file(state, partial, metadata={"format": "pt"})
    partial.replace(weights)
    return folder


def _tokenizer(vocab_size: int) -> Tokenizer:
    """One token per byte, then invented words until every id of the head has a text."""
    pieces = [*_SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    words = ("\u0120" + "".join(letters) for letters in itertools.product("etaoinshrdlu", repeat=5))
    pieces.extend(itertools.islice(words, vocab_size - len(pieces)))
    tokenizer = Tokenizer(BPE({piece: index for index, piece in enumerate(pieces)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(_SPECIAL))
    return tokenizer


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="write config and tokenizer of smol-135m there")
    parser.add_argument("--make", metavar="NAMES", help=f"whole checkpoints: {','.join(CONFIGS)}, or all")
    parser.add_argument("--out", type=Path, default=models_folder(), help=f"default: ${MODELS_VARIABLE}")
    options = parser.parse_args(arguments)
    if options.make:
        names = list(CONFIGS) if options.make == "all" else options.make.split(",")
        if unknown := [name for name in names if name not in CONFIGS]:
            parser.error(f"there is no model {unknown[0]!r}; there are {', '.join(CONFIGS)}")
        for name in names:
            print(make_checkpoint(name, options.out))
    elif options.folder:
        print(write_model(options.folder, SMOL_135M))
    else:
        parser.error("say a folder, or --make NAMES")


if __name__ == "__main__":
    main()
