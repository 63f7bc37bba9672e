"""Budgets per layer fall from the first layer to the last, in whole pages, around the mean that was asked for."""

import pytest

from engine.memory.planning.pyramid import pyramid, with_budgets
from engine.memory.spec import LayerSpec


@pytest.mark.parametrize(
    ("mean", "num_layers", "page_tokens"), [(256, 32, 16), (128, 16, 16), (1024, 80, 64), (64, 3, 1)]
)
def test_budgets_fall_in_whole_pages_around_the_mean(mean: int, num_layers: int, page_tokens: int) -> None:
    budgets = pyramid(mean, num_layers, page_tokens)
    assert budgets == sorted(budgets, reverse=True)
    assert all(budget % page_tokens == 0 for budget in budgets)
    assert len(set(budgets)) == min(8, num_layers)
    assert abs(sum(budgets) / num_layers - mean) <= page_tokens / 2
    assert budgets[0] > 1.5 * mean
    assert budgets[-1] < 0.5 * mean


def test_the_least_budget_holds_the_observed_tokens_twice() -> None:
    assert pyramid(16, 3, 4) == [20, 16, 16]
    assert pyramid(16, 3, 64) == [64, 64, 64]


def test_a_budget_as_long_as_the_context_is_none() -> None:
    layers = with_budgets([LayerSpec("full", 8, "float32")] * 3, 24, 4, max_model_len=30)
    assert [(layer.kind, layer.span) for layer in layers] == [("full", 0), ("budgeted", 24), ("budgeted", 16)]
