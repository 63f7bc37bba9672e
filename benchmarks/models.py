"""Model folders for benchmarks: a real shape, random weights, and a tokenizer that covers the whole vocabulary.

A folder holds config.json and a tokenizer only; the engine makes the weights (`load_format="dummy"`). The tokenizer
gives every id of the head a visible text, so that a client which counts pieces of text counts tokens.
"""

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

SMOL_135M: dict[str, Any] = {
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
    "dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
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
    _tokenizer(config["vocab_size"]).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": _SPECIAL[1], "eos_token": _SPECIAL[2], "chat_template": _CHAT_TEMPLATE}, indent=1)
    )
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    print(write_model(parser.parse_args().folder, SMOL_135M))


if __name__ == "__main__":
    main()
