"""The matrix products of decode steps: those of every layer and of the output head. Up to 64 rows by our kernel, beside
cuBLAS; with more rows by cuBLAS, as the engine computes them.

Weights come from memory in every step, and are read once; so few rows are bound by bytes, many by operations.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from benchmarks.gpu.shapes import CONFIGS
from benchmarks.kernels.case import Call, Case, Goal, Make
from benchmarks.kernels.limits import H200
from benchmarks.models import layer_products
from engine.kernels.gpu.skinny_product import MAX_ROWS, ProductWorkspace, formula_tiles, multiply
from engine.kernels.hardware import num_multiprocessors

ROWS = (1, 16, 64, 256)
_MODELS = ("llama-3.1-8b", "llama-3.2-1b", "qwen3-0.6b")
_ITEM_BYTES = 2
#: Of the time to read the weights once, and of the time of the operations: the shares in the goals of whole models.
_BYTES_GOAL, _FLOPS_GOAL = Goal(share=0.85), Goal(share=0.70)
#: A product that moves less takes about as long as any kernel does at least, which no share of the bound describes.
_LEAST_GOAL_BYTES = 20 << 20


def product_cases(*, is_quick: bool) -> Iterator[Case]:
    for model in ("tiny",) if is_quick else _MODELS:
        config = CONFIGS[model]
        products = {**layer_products(config), "head": (config["hidden_size"], config["vocab_size"])}
        for name, (size, outputs) in products.items():
            for rows in (3,) if is_quick else ROWS:
                moved = (size * outputs + rows * (size + outputs)) * _ITEM_BYTES
                flops = 2 * rows * size * outputs
                is_by_bytes = H200.seconds(moved) >= H200.seconds(0, flops)
                goal = None if moved < _LEAST_GOAL_BYTES else _BYTES_GOAL if is_by_bytes else _FLOPS_GOAL
                shape = f"{rows} rows, {name} of {model}, {size} x {outputs}"
                ours = _ours(rows, size, outputs)
                peer = _torch(rows, size, outputs) if rows <= MAX_ROWS else None
                yield Case("product", shape, moved, flops, goal, ours, peer)


def _operands(rows: int, size: int, outputs: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    dtype = torch.float16 if device.type == "cpu" else torch.bfloat16
    return torch.randn(rows, size, device=device).to(dtype), torch.randn(outputs, size, device=device).to(dtype)


def _ours(rows: int, size: int, outputs: int) -> Make:
    def make(device: torch.device) -> Call:
        x, weight = _operands(rows, size, outputs, device)
        if rows > MAX_ROWS:
            return lambda: F.linear(x, weight)
        output, workspace = x.new_empty(rows, outputs), ProductWorkspace.allocate(device)
        tiles = formula_tiles(size, outputs, rows, weight.itemsize, num_multiprocessors(device))
        return lambda: multiply(x, weight, None, output, workspace, tiles)

    return make


def _torch(rows: int, size: int, outputs: int) -> Make:
    def make(device: torch.device) -> Call:
        x, weight = _operands(rows, size, outputs, device)
        return lambda: F.linear(x, weight)

    return make
