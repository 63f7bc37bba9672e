"""The least time that a device's memory and arithmetic allow for a model's work, by class of kernels.

A decode step takes at least the time to read every weight once and every key and value of its contexts, and at least
the time of its arithmetic. A prompt takes at least the time of its arithmetic.
"""

from typing import Any, Literal

from benchmarks.kernels.limits import Limits
from benchmarks.models import product_parameters

_ITEM_BYTES = 2  #: bfloat16

KernelClass = Literal["products", "attention", "norms", "storing", "activations", "sampling"]


def decode_s(limits: Limits, config: dict[str, Any], batch: int, context: float) -> float:
    """Bound of one decode step: one token for each of the sequences, contexts of that length on average."""
    parts = decode_parts_s(limits, config, batch, context)
    return parts["products"] + parts["attention"]


def decode_parts_s(limits: Limits, config: dict[str, Any], batch: int, context: float) -> dict[KernelClass, float]:
    """Seconds of each class in a decode step. All but the first two move so little that launching them takes longer."""
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    layer_weights, head_weights = product_parameters(config)
    weights = layer_weights + head_weights
    heads = config["num_attention_heads"] + 2 * config["num_key_value_heads"]
    rows_bytes = batch * _ITEM_BYTES
    return {
        "products": limits.seconds(weights * _ITEM_BYTES, 2 * weights * batch),
        "attention": limits.seconds(batch * context * token_bytes(config)),
        # Two norms a layer and a last one: stream and update are read, stream and result written.
        "norms": limits.seconds(4 * hidden * rows_bytes * (2 * layers + 1)),
        "storing": limits.seconds(2 * heads * config["head_dim"] * rows_bytes * layers),
        "activations": limits.seconds(3 * config["intermediate_size"] * rows_bytes * layers),
        "sampling": limits.seconds(config["vocab_size"] * rows_bytes),
    }


def prefill_s(limits: Limits, config: dict[str, Any], num_tokens: int) -> float:
    """Bound of one prompt."""
    return sum(prefill_parts_s(limits, config, num_tokens))


def prefill_parts_s(limits: Limits, config: dict[str, Any], num_tokens: int) -> tuple[float, float]:
    """Seconds of products and of attention; the output head runs on the last token only."""
    layers, head = product_parameters(config)
    attention_size = config["num_attention_heads"] * config["head_dim"] * config["num_hidden_layers"]
    attention = 2 * attention_size * num_tokens**2  # half of the square, scores and values
    return limits.seconds(0, 2 * layers * num_tokens + 2 * head), limits.seconds(0, attention)


def weight_bytes(config: dict[str, Any]) -> int:
    """All products' weights, and the embedding where the output head has weights of its own."""
    embedding = 0 if config["tie_word_embeddings"] else config["hidden_size"] * config["vocab_size"]
    return (sum(product_parameters(config)) + embedding) * _ITEM_BYTES


def token_bytes(config: dict[str, Any]) -> int:
    """Keys and values of one token in all layers."""
    heads, layers = config["num_key_value_heads"], config["num_hidden_layers"]
    return int(2 * heads * config["head_dim"] * layers * _ITEM_BYTES)
