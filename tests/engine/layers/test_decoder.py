"""Decoder layers in one call give to the last bit what the same layers give operator by operator."""

from itertools import pairwise

import pytest
import torch

from tests.engine.kernels.libraries import USABLE
from tests.engine.layers.decoders import MAKES, Make, Outcome, gemma, llama, run


def assert_equal(one: Outcome, other: Outcome) -> None:
    assert torch.equal(one.update, other.update)
    assert torch.equal(one.stream, other.stream)


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("weights", ["float32", "bfloat16", "int8", "int4"])
def test_it_gives_what_its_operators_give(make: Make, weights: str) -> None:
    dtype = torch.float32 if weights == "float32" else torch.bfloat16
    one_by_one, recorded = (run(make, dtype, weights=weights, is_recorded=is_recorded) for is_recorded in (False, True))
    assert_equal(one_by_one, recorded)
    assert recorded.update.isfinite().all()
    assert recorded.stream.isfinite().all()


@pytest.mark.parametrize("make", [llama, gemma])
def test_so_it_does_over_pages_of_8_bits(make: Make) -> None:
    runs = [run(make, torch.bfloat16, is_recorded=r, kv_dtype=torch.int8) for r in (False, True)]
    assert_equal(*runs)
    exact = run(make, torch.bfloat16)
    assert not torch.equal(exact.stream, runs[1].stream)
    torch.testing.assert_close(exact.stream, runs[1].stream, atol=0.1, rtol=0.1)


@pytest.mark.parametrize("instruction_set", USABLE)
@pytest.mark.parametrize("weights", ["bfloat16", "int8", "int4"])
def test_a_row_is_the_same_on_any_number_of_threads(instruction_set: str, weights: str) -> None:
    runs = [run(llama, torch.bfloat16, instruction_set, threads, weights) for threads in (1, 2, 3, 5)]
    for one, other in pairwise(runs):
        assert_equal(one, other)


def test_threads_that_lose_their_cores_leave_no_item_out_and_do_none_twice() -> None:
    """Many more threads than cores: the system preempts threads at any point, and other threads do their items."""
    alone, *others = [run(llama, num_threads=threads) for threads in (1, *8 * [16])]
    for other in others:
        assert_equal(other, alone)
