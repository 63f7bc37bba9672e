"""Rotary positions: what turns, and what the scores depend on."""

import torch

from engine.layers.rotary import Rotary


def rotated(heads: torch.Tensor, positions: list[int]) -> torch.Tensor:
    heads = heads.clone()
    Rotary(heads.shape[-1], 10000.0, None).at(torch.tensor(positions)).apply_(heads)
    return heads


def test_position_zero_changes_nothing() -> None:
    heads = torch.randn(1, 2, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(rotated(heads, [0]), heads)


def test_scores_depend_on_the_distance_of_two_positions_only() -> None:
    query, key = torch.randn(2, 1, 1, 8, generator=torch.Generator().manual_seed(1))
    near = (rotated(query, [9]) * rotated(key, [4])).sum()
    far = (rotated(query, [105]) * rotated(key, [100])).sum()
    torch.testing.assert_close(near, far, atol=1e-4, rtol=1e-4)


def test_a_strided_view_is_rotated_in_place() -> None:
    wide = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(2))
    expected = rotated(wide[:, :3], [1, 2, 3])
    untouched = wide[:, 3:].clone()
    Rotary(8, 10000.0, None).at(torch.tensor([1, 2, 3])).apply_(wide[:, :3])
    torch.testing.assert_close(wide[:, :3], expected)
    assert torch.equal(wide[:, 3:], untouched)
