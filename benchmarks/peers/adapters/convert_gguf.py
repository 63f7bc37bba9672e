"""A Llama or Qwen3 checkpoint of benchmarks/models.py as a GGUF file for llama.cpp.

convert_gguf.py CHECKPOINT TARGET f16|bf16|q8_0. Runs in the peer's environment. llama.cpp rotates neighbouring channels
of a Llama where Hugging Face rotates halves, so the rows of its query and key projections are put into that order.
"""

import json
import sys
from pathlib import Path

import gguf
import numpy as np
from safetensors import safe_open

_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def convert(checkpoint: Path, target: Path, weights: str) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    family = config["model_type"]
    if family not in ("llama", "qwen3"):
        raise SystemExit(f"only Llama and Qwen3 checkpoints are converted, this is {family}")
    kind = gguf.GGMLQuantizationType[weights.upper()]
    partial = target.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, family)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    _add_tokenizer(writer, checkpoint)
    for name, values in _tensors(checkpoint):
        if family == "llama" and "_proj" in name and (".q_" in name or ".k_" in name):
            heads = config["num_attention_heads"] if ".q_" in name else config["num_key_value_heads"]
            values = values.reshape(heads, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        own = gguf.GGMLQuantizationType.F32 if values.ndim == 1 else kind
        writer.add_tensor(_gguf_name(name), gguf.quants.quantize(values, own), raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.replace(target)


def _add_tokenizer(writer: gguf.GGUFWriter, checkpoint: Path) -> None:
    """The texts of all ids, which the server asks for; ids go in and out."""
    tokenizer = json.loads((checkpoint / "tokenizer.json").read_text())
    pieces = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    special = {token["id"] for token in tokenizer["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(pieces)
    kinds = (gguf.TokenType.CONTROL if index in special else gguf.TokenType.NORMAL for index in range(len(pieces)))
    writer.add_token_types(list(kinds))
    writer.add_token_merges(["e t"])  # the format wants a merge; prompts are ids
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def _tensors(checkpoint: Path):
    """Names and float32 values. numpy has no bfloat16, so the bytes are read as the upper halves of float32."""
    path = checkpoint / "model.safetensors"
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    data = np.memmap(path, dtype=np.uint8, mode="r", offset=8 + size)
    with safe_open(path, "numpy") as tensors:  # checks the file
        names = sorted(tensors.keys())
    for name in names:
        entry = header[name]
        assert entry["dtype"] == "BF16", name
        start, end = entry["data_offsets"]
        halves = np.frombuffer(data[start:end].tobytes(), np.uint16).astype(np.uint32) << 16
        yield name, halves.view(np.float32).reshape(entry["shape"])


def _gguf_name(name: str) -> str:
    match name.removesuffix(".weight").split(".", 3):
        case ["model", "embed_tokens"]:
            return "token_embd.weight"
        case ["model", "norm"]:
            return "output_norm.weight"
        case ["model", "layers", number, part]:
            return f"blk.{number}.{_LAYER_NAMES[part]}.weight"
    raise SystemExit(f"unknown tensor {name}")


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
