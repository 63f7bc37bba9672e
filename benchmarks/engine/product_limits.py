"""How long the matrix products of a step of a model take at least: its linear weights, read once and multiplied, and
the two products of attention, of each token with the tokens that it sees.

States, exponentials, convolutions and norms come on top, so the limit is a lower bound. No implementation of the same
products is faster, whatever else it does.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open

from benchmarks.operators.limits import Limits

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Products:
    """Weights that every token passes, those of all experts of all layers, and those of the output head; and the work
    of attention."""

    dense: int
    experts: int
    head: int
    expert_share: float  #: of the experts' weights that one token passes
    attention: int  #: operations for a token and one that it sees, in all layers

    def seconds(self, num_tokens: int, num_sampled: int, num_seen: int, dtype: str, limits: Limits) -> float:
        """The limit of a step of so many tokens, of which so many are sampled after. num_seen: tokens that each of them
        sees, itself included, added up."""
        operations = 2 * (num_tokens * (self.dense + self.expert_share * self.experts) + num_sampled * self.head)
        operations += self.attention * num_seen
        weights_read = self.dense + min(1.0, num_tokens * self.expert_share) * self.experts + self.head
        num_bytes = weights_read * _DTYPES[dtype].itemsize
        return limits.seconds(round(num_bytes), round(operations), _DTYPES[dtype])


def products_of(folder: Path) -> Products:
    """The products of a checkpoint in Hugging Face layout."""
    config = json.loads((folder / "config.json").read_text())
    sizes: dict[str, int] = {}
    for file in folder.glob("*.safetensors"):
        with safe_open(str(file), framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  # an object of the library, not a dict
                shape = tensors.get_slice(name).get_shape()
                if len(shape) >= 2 and "conv1d" not in name and not name.endswith("A_log"):
                    sizes[name] = torch.Size(shape).numel()
    embedding = next(name for name in sizes if "embed" in name)
    is_head = {name: "lm_head" in name for name in sizes}
    experts = sum(size for name, size in sizes.items() if ".experts." in name)
    head = sum(size for name, size in sizes.items() if is_head[name]) or sizes[embedding]
    dense = sum(size for name, size in sizes.items() if not is_head[name] and name != embedding) - experts
    num_experts = config.get("num_experts") or config.get("num_local_experts")
    share = config["num_experts_per_tok"] / num_experts if experts else 0.0
    num_attentions = sum(name.endswith(".q_proj.weight") for name in sizes)
    head_size = config.get("head_dim") or config.get("hidden_size", 0) // config.get("num_attention_heads", 1)
    attention = 4 * num_attentions * config.get("num_attention_heads", 0) * head_size
    return Products(dense, experts, head, share, attention)
