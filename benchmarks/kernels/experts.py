"""Mixtures of experts: the choice, both grouped products and the sum, in shapes of Mixtral-8x7B and Qwen3-30B-A3B.

The tokens choose the experts in turn, so that as many experts as possible are read.
"""

from collections.abc import Iterator

import torch

from benchmarks.kernels.case import Call, Case, Goal, Make
from benchmarks.kernels.limits import H200
from engine.kernels.gpu.operators import GpuOperators
from engine.kernels.operators import Routing

#: model -> experts, chosen, hidden, intermediate size
_MODELS = {"Mixtral-8x7B": (8, 2, 4096, 14336), "Qwen3-30B-A3B": (128, 8, 2048, 768)}
_TOKENS = (1, 16, 64, 256, 4096)
_ITEM_BYTES = 2
_BYTES_GOAL, _FLOPS_GOAL = Goal(share=0.70), Goal(share=0.55)


def expert_cases(*, is_quick: bool) -> Iterator[Case]:
    for model, sizes in {"tiny": (4, 2, 32, 48)}.items() if is_quick else _MODELS.items():
        num_experts, num_chosen, hidden, ffn = sizes
        for num_tokens in (3,) if is_quick else _TOKENS:
            num_choices = num_tokens * num_chosen
            matrices = 3 * hidden * ffn
            moved = (min(num_choices, num_experts) * matrices + 2 * num_tokens * hidden) * _ITEM_BYTES
            flops = 2 * num_choices * matrices
            goal = _BYTES_GOAL if H200.seconds(moved) >= H200.seconds(0, flops) else _FLOPS_GOAL
            yield Case("experts", f"{num_tokens} tokens, {model}", moved, flops, goal, _mixture(num_tokens, *sizes))


def _mixture(num_tokens: int, num_experts: int, num_chosen: int, hidden: int, ffn: int) -> Make:
    def make(device: torch.device) -> Call:
        dtype = torch.float16 if device.type == "cpu" else torch.bfloat16
        gate_up = torch.randn(num_experts, 2 * ffn, hidden, device=device, dtype=dtype) * hidden**-0.5
        down = torch.randn(num_experts, hidden, ffn, device=device, dtype=dtype) * ffn**-0.5
        x = torch.randn(num_tokens, hidden, device=device, dtype=dtype)
        chosen = torch.arange(num_tokens * num_chosen, device=device).view(num_tokens, num_chosen) % num_experts
        scores = torch.zeros(num_tokens, num_experts, device=device, dtype=dtype).scatter_(1, chosen, 1.0)
        mix = GpuOperators().grouped_experts(gate_up, down, Routing(num_chosen, sums_to_one=True))
        return lambda: mix(x, scores)

    return make
