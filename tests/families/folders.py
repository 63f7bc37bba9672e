"""Tiny random models of the families that most people run, with a real tokenizer and a chat template."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.engine.checkpoints import VARIANTS, save
from tests.engine.formats import gguf_files, mxfp4_folders

#: Its tokenizer, chat template and sampling defaults are those of every model here.
TOKENIZER_FOLDER = Path(__file__).parents[2] / "demo_models" / "finch"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")
VOCAB_SIZE = 2048
END_ID = 4
COMMON = {"vocab_size": VOCAB_SIZE, "eos_token_id": END_ID, "pad_token_id": 0, "max_position_embeddings": 1024}

#: What the checkpoint's architecture is, by the name under which the arena serves it.
ARCHITECTURES = {
    "qwen3.5": "Qwen3_5ForConditionalGeneration",
    "gemma-4": "Gemma4ForConditionalGeneration",
    "gpt-oss": "GptOssForCausalLM",
    "granite-4": "GraniteMoeHybridForCausalLM",
    "qwen3-gguf": "Qwen3ForCausalLM",
}


def write_models(root: Path) -> Mapping[str, Path]:
    """Write all models below a folder; returns the path of each by its name.

    Qwen3.5 and Gemma 4 are wrappers with towers, as their published checkpoints are; gpt-oss has experts in MXFP4,
    Granite 4 Mamba-2 layers and experts, the GGUF file the data types of Q4_K_M.
    """
    models = {name: root / name for name in ARCHITECTURES if name != "qwen3-gguf"}
    save("qwen3.5-with-vision", models["qwen3.5"], **_text("qwen3.5-with-vision"))
    outside = {f"{kind}_token_id": VOCAB_SIZE + place for place, kind in enumerate(("image", "video", "audio"))}
    save("gemma4-with-experts", models["gemma-4"], **_text("gemma4-with-experts"), **outside)
    parts = mxfp4_folders.write(root / "parts" / "gpt-oss", "gpt-oss", hidden_size=64, intermediate_size=96, **COMMON)
    shutil.copytree(parts / "packed", models["gpt-oss"])
    save("granite-hybrid", models["granite-4"], **COMMON)
    for folder in models.values():
        for name in TOKENIZER_FILES:
            shutil.copy(TOKENIZER_FOLDER / name, folder / name)
    # Without a token for padding, whose row would be zero: blocks of zeros have no scale.
    sizes = {**gguf_files.SIZES, **COMMON, "pad_token_id": None}
    file, _ = gguf_files.write(root / "parts", "qwen3", "qwen3", sizes=sizes, changes=_gguf_tokenizer())
    return {**models, "qwen3-gguf": file}


def _text(variant: str) -> Mapping[str, Any]:
    """The text config of a wrapper, with the sizes of all models here."""
    _, settings = VARIANTS[variant]
    return {"text_config": {**settings["text_config"], **COMMON}}


def _gguf_tokenizer() -> Mapping[str, object]:
    """The same tokenizer as settings of a GGUF file."""
    tokenizer = json.loads((TOKENIZER_FOLDER / "tokenizer.json").read_text())
    settings = json.loads((TOKENIZER_FOLDER / "tokenizer_config.json").read_text())
    vocabulary = {
        **tokenizer["model"]["vocab"],
        **{token["content"]: token["id"] for token in tokenizer["added_tokens"]},
    }
    controls = {token["id"] for token in tokenizer["added_tokens"]}
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    values = {
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": [3 if token in controls else 1 for token in tokens],
        "merges": [" ".join(pair) for pair in tokenizer["model"]["merges"]],
        "eos_token_id": END_ID,
    }
    template = {"tokenizer.chat_template": settings["chat_template"]}
    return {f"tokenizer.ggml.{name}": value for name, value in values.items()} | template
