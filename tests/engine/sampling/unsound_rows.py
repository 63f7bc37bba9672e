"""Logits that are not finite, for tests of every implementation of sampling."""

import random
from collections.abc import Sequence

import torch

NAN, INFINITE = float("nan"), float("inf")


def spoil(row: torch.Tensor, chance: random.Random, visible: Sequence[int] | None = None) -> None:
    """Make a row of logits [V] one of which nothing can be sampled: NaN or +inf in some places, among them one of the
    visible ones (None: of all), or nothing but -inf."""
    places = range(len(row)) if visible is None else visible
    match chance.randrange(6):
        case 0:
            row[chance.choice(places)] = NAN
        case 1:
            row[chance.choice(places)] = INFINITE
        case 2:
            row[:] = NAN
        case 3:
            row[:] = -INFINITE
        case 4:
            row[chance.choice(places)] = INFINITE
            row[chance.sample(range(len(row)), 5)] = NAN
        case 5:
            row[:] = -INFINITE
            row[chance.choice(places)] = NAN
