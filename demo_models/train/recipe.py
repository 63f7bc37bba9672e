"""How each model is trained: token budget, step size, learning rates, and the common schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from demo_models.train.architectures import ModelName
from demo_models.train.dialogues import Dialogue, dialogue, tool_dialogue

WARMUP_STEPS = 40


@dataclass(frozen=True)
class Recipe:
    """Budgets count real tokens, not padding; a step takes `micro_batches` of about `micro_tokens` each."""

    tokens: int
    micro_tokens: int = 4096
    micro_batches: int = 2
    matrix_lr: float = 3e-3
    other_lr: float = 3e-3
    decay_share: float = 0.3
    seed: int = 20
    #: of the weights in the passes; the masters are fp32. bf16 is the faster one only on CPUs that multiply it
    dtype: torch.dtype = torch.bfloat16
    #: training dialogue `number` of the stream named by `seed`
    dialogues: Callable[[int, int], Dialogue] = dialogue


RECIPES: dict[ModelName, Recipe] = {
    "finch": Recipe(tokens=5_300_000),
    "robin": Recipe(tokens=7_400_000),
    "raven": Recipe(tokens=14_000_000),
    "wren": Recipe(tokens=3_300_000, micro_tokens=6144, micro_batches=1, dtype=torch.float32, dialogues=tool_dialogue),
}


def learning_rate_factor(step: int, tokens: int, budget: int, decay_share: float) -> float:
    """Rise during warm-up, stay at 1, then fall linearly to zero over the last `decay_share` of the budget.

    Before the decay the factor does not depend on the budget, so a run can be resumed with another budget until then.
    """
    warmup = min(1.0, (step + 1) / WARMUP_STEPS)
    return min(warmup, max(0.0, (budget - tokens) / (budget * decay_share)))
