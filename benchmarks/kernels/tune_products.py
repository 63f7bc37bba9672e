"""Tiles of products of few rows by measurement, beside cuBLAS: for the products of the models that are measured.

An entry says which tiles are the fastest, or nothing where cuBLAS is; the engine then measures nothing for that shape.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.gpu.shapes import CONFIGS
from benchmarks.kernels.timing import Clock, WallClock
from benchmarks.models import layer_products
from engine.kernels.gpu.products import ROW_COUNTS
from engine.kernels.gpu.skinny_product import ProductTiles, ProductWorkspace, formula_tiles, multiply
from engine.kernels.gpu.tuning import ProductKey, as_entry

#: (inputs, outputs)
Weights = tuple[int, int]
MODELS = ("llama-3.1-8b", "llama-3.2-1b", "qwen3-0.6b")
#: Ours must be faster by this share: the noise of the clock is of that size.
_LEAST_GAIN = 0.02
#: Largest difference from cuBLAS's results, as a share of the largest of them.
_TOLERANCE = 0.02


def weights_of(*, is_quick: bool) -> Sequence[Weights]:
    """The products of the models' layers and heads, each shape once."""
    if is_quick:
        return ((32, 48),)
    heads = [(CONFIGS[model]["hidden_size"], CONFIGS[model]["vocab_size"]) for model in MODELS]
    layers = [weights for model in MODELS for weights in layer_products(CONFIGS[model]).values()]
    return list(dict.fromkeys([*layers, *heads]))


def sweep(
    clock: Clock | WallClock,
    num_multiprocessors: int,
    device: torch.device,
    deadline: float,
    weights: Sequence[Weights],
) -> Iterator[dict[str, Any]]:
    """An entry for each shape and number of rows. None begins after the deadline (time.monotonic)."""
    dtype = torch.float16 if device.type == "cpu" else torch.bfloat16
    workspace = ProductWorkspace.allocate(device)
    for size, channels in weights:
        if time.monotonic() > deadline:
            print(f"products of {size} x {channels}: not tuned, the time was over", flush=True)
            continue
        weight = torch.randn(channels, size, device=device).to(dtype)
        for num_rows in ROW_COUNTS:
            formula = formula_tiles(size, channels, num_rows, weight.itemsize, num_multiprocessors)
            x = torch.randn(num_rows, size, device=device).to(dtype)
            expected, output = F.linear(x, weight), x.new_empty(num_rows, channels)
            library_us = clock.microseconds(partial(F.linear, x, weight))
            times: dict[ProductTiles, float] = {}
            for tiles in candidates(formula):
                output.fill_(float("nan"))
                try:
                    times[tiles] = clock.microseconds(partial(multiply, x, weight, None, output, workspace, tiles))
                except Exception as error:  # too much shared memory: Triton has no class of its own
                    print(f"{tiles}: {type(error).__name__}: {error}".splitlines()[0], flush=True)
                    continue
                if not (output - expected).abs().max() < _TOLERANCE * expected.abs().max():
                    print(f"{tiles}: wrong results", flush=True)
                    del times[tiles]
            best = min(times, key=lambda tiles: times[tiles], default=None)
            is_faster = best is not None and times[best] < (1 - _LEAST_GAIN) * library_us
            key = ProductKey.of(dtype, size, channels, num_rows)
            measured = {
                "microseconds": None if best is None else round(times[best], 2),
                "library_microseconds": round(library_us, 2),
            }
            print(f"{num_rows} rows, {size} x {channels}: {measured}, {best}", flush=True)
            yield as_entry(key, asdict(best) if is_faster and best is not None else {}) | {"measured": measured}


def candidates(formula: ProductTiles) -> Iterator[ProductTiles]:
    """The formula's tiles, and others around them."""
    yield formula
    for splits in (formula.splits // 2, 2 * formula.splits):
        if 1 <= splits <= 16:
            yield replace(formula, splits=splits)
    yield replace(formula, num_stages=3)
    if formula.block_n > 32:
        yield replace(formula, block_n=formula.block_n // 2)
