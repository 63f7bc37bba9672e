"""How long the matrix products of a step of a model take at least: its linear weights, read once and multiplied, and
the two products of attention, of each token with the tokens that it sees.

Of most tokens of a prompt nothing is read at the end: in the last layer they need no more than what it stores. States,
exponentials, convolutions and norms come on top, so the limit is a lower bound for the rates that
were measured: of arithmetic, and of reading weights from memory.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open

from benchmarks.operators.limits import Limits

#: In the last layer: what makes the keys, values or states that it stores.
_STORING = re.compile(r".*\.(k_proj|v_proj|in_proj\w*|x_proj|dt_proj)\.weight")
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
    #: Likewise, of these: what only tokens need that are sampled after.
    last_dense: int
    last_experts: int
    last_attention: int

    def seconds(self, seen: Sequence[int], sampled: Sequence[int], dtype: str, limits: Limits) -> float:
        """The limit of a step. seen: of each token, how many it sees, itself included; sampled: likewise of those that
        are sampled after."""
        all_but = self.dense - self.last_dense + self.expert_share * (self.experts - self.last_experts)
        last = self.last_dense + self.expert_share * self.last_experts + self.head
        operations = 2 * (len(seen) * all_but + len(sampled) * last)
        operations += (self.attention - self.last_attention) * sum(seen) + self.last_attention * sum(sampled)
        num_tokens = len(seen)
        weights_read = self.dense + min(1.0, num_tokens * self.expert_share) * self.experts + self.head
        num_bytes = weights_read * _DTYPES[dtype].itemsize
        return limits.seconds(round(num_bytes), round(operations), _DTYPES[dtype])


def products_of(folder: Path) -> Products:
    """The products of a checkpoint in Hugging Face layout."""
    config = json.loads((folder / "config.json").read_text())
    num_experts = config.get("num_experts") or config.get("num_local_experts")
    sizes: dict[str, int] = {}
    of_experts: set[str] = set()
    for file in folder.glob("*.safetensors"):
        with safe_open(str(file), framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  # an object of the library, not a dict
                shape = tensors.get_slice(name).get_shape()
                if len(shape) >= 2 and "conv1d" not in name and not name.endswith("A_log"):
                    sizes[name] = torch.Size(shape).numel()
                    if ".experts." in name or (len(shape) == 3 and shape[0] == num_experts):  # one by one, or in one
                        of_experts.add(name)
    embedding = next(name for name in sizes if "embed" in name)
    is_head = {name: "lm_head" in name for name in sizes}
    experts = sum(sizes[name] for name in of_experts)
    head = sum(size for name, size in sizes.items() if is_head[name]) or sizes[embedding]
    dense = sum(size for name, size in sizes.items() if not is_head[name] and name != embedding) - experts
    share = config["num_experts_per_tok"] / num_experts if experts else 0.0
    attentions = [name for name in sizes if name.endswith(".q_proj.weight")]
    head_size = config.get("head_dim") or config.get("hidden_size", 0) // config.get("num_attention_heads", 1)
    attention = 4 * config.get("num_attention_heads", 0) * head_size
    last = max((_layer_of(name) for name in sizes), default=-1)
    in_last = [name for name in sizes if _layer_of(name) == last and not _STORING.fullmatch(name)]
    return Products(
        dense,
        experts,
        head,
        share,
        attention * len(attentions),
        last_dense=sum(sizes[name] for name in in_last if name not in of_experts),
        last_experts=sum(sizes[name] for name in in_last if name in of_experts),
        last_attention=attention * sum(name in attentions for name in in_last),
    )


def _layer_of(name: str) -> int:
    found = re.search(r"\.layers\.(\d+)\.", name)
    return -1 if found is None else int(found[1])
