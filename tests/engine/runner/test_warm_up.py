"""What runs before the first request."""

import pytest

from engine.runner.warm_up import warm_up_steps


def shapes(num_tokens: int, max_running: int, max_model_len: int) -> list[list[int]]:
    plans = warm_up_steps(num_tokens, max_running, max_model_len)
    return [[len(sequence.token_ids) for sequence in plan.sequences] for plan in plans]


def test_tiles_of_every_size_the_largest_step_and_decodes() -> None:
    assert shapes(20, 3, 100) == [[2], [4], [8], [16], [20], [6, 6, 6], [1], [1, 1], [1, 1, 1], [1, 1, 1]]


@pytest.mark.parametrize(
    ("num_tokens", "max_running", "max_model_len"), [(1, 1, 1), (1, 64, 9), (64, 1, 5), (3, 2, 100)]
)
def test_small_limits_are_kept(num_tokens: int, max_running: int, max_model_len: int) -> None:
    for lengths in shapes(num_tokens, max_running, max_model_len):
        assert len(lengths) <= max_running
        assert max(lengths) <= max_model_len
        assert sum(lengths) <= max(num_tokens, max_running)
