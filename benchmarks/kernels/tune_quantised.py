"""Tiles of products with quantised weights by measurement, around those of the formula: for the products of the models
that are measured, in the formats of quantised_products.py. Only tiles that gain get an entry.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch

from benchmarks.gpu.shapes import CONFIGS
from benchmarks.kernels.quantised_products import FORMATS, of_device
from benchmarks.kernels.timing import Clock, WallClock
from benchmarks.kernels.tune_products import Weights
from benchmarks.models import layer_products
from engine.kernels.gpu.quantised_product import CodeTiles, multiply, tiles_of
from engine.kernels.gpu.skinny_product import ROW_TILES, ProductWorkspace
from engine.kernels.gpu.tuning import ProductKey, as_entry

#: One row for all numbers of rows in the smallest tile; then tiles of more rows.
ROWS = (ROW_TILES[0], 64, 256)
_MODELS = ("qwen3-0.6b", "llama-3.1-8b")
_LEAST_GAIN = 0.02
_TOLERANCE = 0.02
_MAX_SPLITS = 16


def weights_of(*, is_quick: bool) -> Sequence[Weights]:
    """The products of the models' layers, each shape once."""
    if is_quick:
        return ((64, 48),)
    return list(dict.fromkeys(shape for model in _MODELS for shape in layer_products(CONFIGS[model]).values()))


def sweep(
    clock: Clock | WallClock,
    num_multiprocessors: int,
    device: torch.device,
    deadline: float,
    weights: Sequence[Weights],
    row_counts: Sequence[int] = ROWS,
) -> Iterator[dict[str, Any]]:
    """Entries of those that gain. None begins after the deadline (time.monotonic)."""
    workspace = ProductWorkspace.allocate(device)
    for name, (_, make) in FORMATS.items():
        for size, channels in weights:
            if time.monotonic() > deadline:
                print(f"{name} products of {size} x {channels}: not tuned, the time was over", flush=True)
                continue
            weight = of_device(make(channels, size, device), device)
            for num_rows in row_counts:
                x = torch.randn(num_rows, size, device=device).to(weight.dtype)
                output = x.new_empty(num_rows, channels)
                formula = tiles_of(weight.form, channels, num_rows, x.itemsize, num_multiprocessors)
                expected: torch.Tensor | None = None
                times: dict[CodeTiles, float] = {}
                for tiles in candidates(formula, num_rows):
                    output.fill_(float("nan"))
                    try:
                        times[tiles] = clock.microseconds(partial(multiply, x, weight, None, output, workspace, tiles))
                    except Exception as error:  # too much shared memory: Triton has no class of its own
                        print(f"{tiles}: {type(error).__name__}: {error}".splitlines()[0], flush=True)
                        continue
                    expected = output.clone() if expected is None else expected
                    if not (output - expected).abs().max() < _TOLERANCE * expected.abs().max():
                        print(f"{tiles}: wrong results", flush=True)
                        del times[tiles]
                best = min(times, key=lambda tiles: times[tiles], default=None)
                print(f"{num_rows} rows, {name}, {size} x {channels}: {best}", flush=True)
                if best is None or formula not in times or times[best] >= (1 - _LEAST_GAIN) * times[formula]:
                    continue
                key = ProductKey.of_codes(weight.form.name, weight.dtype, size, channels, num_rows)
                measured = {
                    "microseconds": round(times[best], 2),
                    "formula_microseconds": round(times[formula], 2),
                }
                yield as_entry(key, asdict(best)) | {"measured": measured}


def candidates(formula: CodeTiles, num_rows: int) -> Iterator[CodeTiles]:
    """The formula's tiles, and others around them that the workspace has room for."""
    yield formula
    if num_rows <= ROW_TILES[0]:
        for splits in (formula.splits // 2, 2 * formula.splits):
            if 1 <= splits <= _MAX_SPLITS:
                yield replace(formula, splits=splits)
        yield replace(formula, block_n=64 if formula.block_n > 64 else 32)
    yield replace(formula, num_stages=formula.num_stages + 1)
    yield replace(formula, num_warps=4 if formula.num_warps == 8 else 8)
