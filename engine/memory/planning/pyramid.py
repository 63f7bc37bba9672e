"""Budgets of tokens per layer that fall from the first layer to the last: PyramidKV (Cai et al., arXiv 2406.02069).

Attention of lower layers spreads over many tokens, that of upper layers gathers on few. Pure functions of numbers.
"""

from collections.abc import Sequence
from dataclasses import replace

from engine.memory.spec import OBSERVED_TOKENS, LayerSpec

#: The last layer keeps this share of the mean, and the first one as much more than it as the last one less (section 4.2
#: of the paper: beta = 20).
_LAST_SHARE = 1 / 20
#: Neighbouring layers form at most that many groups of equal budgets, since each budget has its own page tables.
_MAX_STEPS = 8
#: Half of the smallest budget is observed tokens.
_MIN_BUDGET = 2 * OBSERVED_TOKENS


def pyramid(mean_tokens: int, num_layers: int, page_tokens: int) -> list[int]:
    """Tokens that each layer keeps: whole pages, as near to the linear fall as they allow, at least 16 tokens.

    The mean over the layers is mean_tokens, but for the rounding to pages and for that least budget.
    """
    num_steps = min(_MAX_STEPS, num_layers)
    shared = mean_tokens - OBSERVED_TOKENS
    budgets = []
    for layer_id in range(num_layers):
        step = layer_id * num_steps // num_layers
        fall = (2 * step + 1) / num_steps - 1  # -1 to 1: of the middle of the step
        wanted = OBSERVED_TOKENS + shared * (1 - (1 - _LAST_SHARE) * fall)
        least_pages = -(-_MIN_BUDGET // page_tokens)
        budgets.append(max(least_pages, round(wanted / page_tokens)) * page_tokens)
    return budgets


def with_budgets(
    layers: Sequence[LayerSpec], mean_tokens: int, page_tokens: int, max_model_len: int
) -> list[LayerSpec]:
    """Full attention layers with the budgets of a pyramid. A budget of max_model_len or more counts as none."""
    assert all(spec.kind == "full" and spec.shares_with is None for spec in layers)
    budgets = pyramid(mean_tokens, len(layers), page_tokens)
    return [
        replace(spec, kind="budgeted", span=budget) if budget < max_model_len else spec
        for spec, budget in zip(layers, budgets, strict=True)
    ]
