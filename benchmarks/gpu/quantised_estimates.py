"""What decodes with quantised weights are expected to reach on an H200: a second table of docs/gpu.md, by the same
method as estimates.py. The output head stays in 16 bits, as in most checkpoints.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu.bounds import decode_s
from benchmarks.gpu.markdown import table
from benchmarks.gpu.shapes import CONFIGS
from benchmarks.kernels.limits import H200, Limits
from benchmarks.models import product_parameters

_MODELS = ("qwen3-0.6b", "llama-3.1-8b")
_BATCHES = (1, 16)
_ITEM_BITS = 16
#: (limits, config, batch, context) -> seconds
Estimate = Callable[[Limits, dict[str, Any], int, float], float]


@dataclass(frozen=True, slots=True)
class Weights:
    """A format of the layers' weights."""

    name: str
    bits: float  #: of a weight, with its share of the scales
    #: Of the memory's speed at which products read them. 4 bits are bound by instructions: 5.2 to 5.7 for each weight,
    #: by the machine code for sm_90, are 62 to 68 % of it if multiprocessors issue in every clock.
    share: float


FORMATS = (
    Weights("4 bits, groups of 128", 4.25, 0.55),
    Weights("FP8, blocks of 128 x 128", 8.25, 0.75),
)


def saved_s(limits: Limits, config: dict[str, Any], bits: float) -> float:
    """Seconds that reading the layers' weights once takes less than in 16 bits, at the memory's full speed."""
    layers, _ = product_parameters(config)
    return limits.seconds(layers * (_ITEM_BITS - bits) / 8)


def quantised_table(estimated_s: Estimate, share_of_16_bits: float, context: float) -> str:
    """Markdown: tokens per second. estimated_s: of one decode step in 16 bits, whose products read at that share."""
    rows = []
    for model in _MODELS:
        config = CONFIGS[model]
        layers_s = H200.seconds(product_parameters(config)[0] * _ITEM_BITS / 8)
        for weights in FORMATS:
            for batch in _BATCHES:
                bound_s = decode_s(H200, config, batch, context) - saved_s(H200, config, weights.bits)
                plain_s = estimated_s(H200, config, batch, context)
                products_s = layers_s * weights.bits / _ITEM_BITS / weights.share
                seconds_s = plain_s - layers_s / share_of_16_bits + products_s
                speeds = (float(f"{batch / each:.3g}") for each in (bound_s, seconds_s, plain_s))
                rows.append([model, weights.name, f"decode, {batch}", *(f"{speed:,.0f}" for speed in speeds)])
    return table(["model", "layers' weights", "work", "bound", "estimate", "estimate in 16 bits"], rows)
