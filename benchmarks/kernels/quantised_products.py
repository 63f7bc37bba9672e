"""Products with quantised weights beside cuBLAS's with the same weights in 16 bits, and experts in MXFP4."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F

from benchmarks.gpu.shapes import CONFIGS
from benchmarks.kernels.case import Call, Case, Goal, Make
from benchmarks.kernels.limits import H200
from benchmarks.models import layer_products
from engine.kernels.gpu.operators import GpuOperators
from engine.kernels.gpu.packed_codes import PackedCodes, packed
from engine.kernels.gpu.quantised_product import multiply, tiles_of
from engine.kernels.gpu.skinny_product import ProductWorkspace
from engine.kernels.hardware import num_multiprocessors
from engine.kernels.operators import Routing
from engine.kernels.quantised import QuantisedMatrix, QuantisedStack

ROWS = (1, 16, 256)
_MODELS = ("qwen3-0.6b", "llama-3.1-8b")
_PRODUCTS = ("gate_up", "down")
_ITEM_BYTES = 2
#: Of the time to read the packed weights once, by bits: decoding 4 bits takes about as long as reading them. Of the
#: time of the operations.
_BYTES_GOALS, _FLOPS_GOAL = {4: Goal(share=0.55), 8: Goal(share=0.75)}, Goal(share=0.45)
_LEAST_GOAL_BYTES = 20 << 20
#: gpt-oss-20b: experts, chosen, hidden, intermediate size
_EXPERTS = (32, 4, 2880, 2880)
_TOKENS = (1, 256)
_MXFP4_GROUP = 32


def int4(outputs: int, size: int, device: torch.device) -> QuantisedMatrix:
    """As AWQ has it: groups of 128, each with a zero point."""
    groups = (outputs, max(size // 128, 1))
    zeros = torch.randint(0, 16, groups, device=device).float()
    codes = torch.randint(0, 16, (outputs, size), dtype=torch.uint8, device=device)
    return QuantisedMatrix(codes, torch.rand(groups, device=device) / 128, 4, zeros)


def fp8(outputs: int, size: int, device: torch.device) -> QuantisedMatrix:
    """With a scale for 128 inputs of an output."""
    codes = torch.randint(0, 256, (outputs, size), dtype=torch.uint8, device=device)
    book = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().nan_to_num(0.0).to(device)
    return QuantisedMatrix(codes, torch.rand(outputs, max(size // 128, 1), device=device) / 512, 8, book=book)


def mxfp4(outputs: int, size: int, device: torch.device) -> QuantisedMatrix:
    """With an exponent for 32 inputs."""
    codes = torch.randint(0, 16, (outputs, size), dtype=torch.uint8, device=device)
    exponents = torch.randint(-9, -5, (outputs, size // _MXFP4_GROUP), device=device).float()
    values = torch.tensor((0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0), device=device)
    return QuantisedMatrix(codes, torch.exp2(exponents), 4, book=torch.cat((values, -values)))


#: format -> its bits, and random matrices of it
FORMATS: dict[str, tuple[int, Callable[[int, int, torch.device], QuantisedMatrix]]] = {
    "int4": (4, int4),
    "FP8": (8, fp8),
}


def quantised_cases(*, is_quick: bool) -> Iterator[Case]:
    for name, (bits, make) in FORMATS.items():
        for model in ("tiny",) if is_quick else _MODELS:
            for product in _PRODUCTS:
                size, outputs = layer_products(CONFIGS[model])[product]
                for rows in (3,) if is_quick else ROWS:
                    weight_bytes = size * outputs * bits // 8 + size * outputs // 128 * 4
                    moved = weight_bytes + rows * (size + outputs) * _ITEM_BYTES
                    flops = 2 * rows * size * outputs
                    is_by_bytes = H200.seconds(moved) >= H200.seconds(0, flops)
                    goal = _BYTES_GOALS[bits] if is_by_bytes else _FLOPS_GOAL
                    yield Case(
                        "quantised product",
                        f"{rows} rows, {name}, {product} of {model}, {size} x {outputs}",
                        moved,
                        flops,
                        None if moved < _LEAST_GOAL_BYTES else goal,
                        _ours(make, rows, size, outputs),
                        _torch(rows, size, outputs),
                    )
    yield from _expert_cases(is_quick=is_quick)


def of_device(matrix: QuantisedMatrix, device: torch.device) -> PackedCodes:
    """Packed for products in 16 bits."""
    codes = packed(replace(matrix, dtype=_dtype(device)))
    assert codes is not None
    return codes


def _dtype(device: torch.device) -> torch.dtype:
    return torch.float16 if device.type == "cpu" else torch.bfloat16


def _ours(matrix: Callable[[int, int, torch.device], QuantisedMatrix], rows: int, size: int, outputs: int) -> Make:
    def make(device: torch.device) -> Call:
        weight = of_device(matrix(outputs, size, device), device)
        x = torch.randn(rows, size, device=device).to(weight.dtype)
        output, workspace = x.new_empty(rows, outputs), ProductWorkspace.allocate(device)
        tiles = tiles_of(weight.form, outputs, rows, _ITEM_BYTES, num_multiprocessors(device))
        return lambda: multiply(x, weight, None, output, workspace, tiles)

    return make


def _torch(rows: int, size: int, outputs: int) -> Make:
    def make(device: torch.device) -> Call:
        x = torch.randn(rows, size, device=device).to(_dtype(device))
        weight = torch.randn(outputs, size, device=device).to(_dtype(device))
        return lambda: F.linear(x, weight)

    return make


def _expert_cases(*, is_quick: bool) -> Iterator[Case]:
    num_experts, num_chosen, hidden, ffn = (4, 2, 64, 64) if is_quick else _EXPERTS
    for num_tokens in (3,) if is_quick else _TOKENS:
        num_choices, weights = num_tokens * num_chosen, 3 * hidden * ffn
        moved = min(num_choices, num_experts) * weights * 17 // 32 + 2 * num_tokens * hidden * _ITEM_BYTES
        flops = 2 * num_choices * weights
        goal = _BYTES_GOALS[4] if H200.seconds(moved) >= H200.seconds(0, flops) else _FLOPS_GOAL
        make = _mixture(num_tokens, num_experts, num_chosen, hidden, ffn)
        yield Case("quantised experts", f"{num_tokens} tokens, MXFP4, gpt-oss-20b", moved, flops, goal, make)


def _mixture(num_tokens: int, num_experts: int, num_chosen: int, hidden: int, ffn: int) -> Make:
    def make(device: torch.device) -> Call:
        dtype = _dtype(device)

        def stack(outputs: int, size: int) -> QuantisedStack:
            return QuantisedStack(num_experts, lambda _: replace(mxfp4(outputs, size, device), dtype=dtype))

        x = torch.randn(num_tokens, hidden, device=device, dtype=dtype)
        chosen = torch.arange(num_tokens * num_chosen, device=device).view(num_tokens, num_chosen) % num_experts
        scores = torch.zeros(num_tokens, num_experts, device=device, dtype=dtype).scatter_(1, chosen, 1.0)
        routing = Routing(num_chosen, sums_to_one=True)
        mix = GpuOperators().quantised_experts(stack(2 * ffn, hidden), stack(hidden, ffn), routing)
        assert mix is not None
        return lambda: mix(x, scores)

    return make
