"""A narrowed step gives rows of the whole step, stores the same, and computes no other rows behind the last layer that
stores anything."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.attention.backend import StepLayout
from engine.attention.narrowing import rows_of
from engine.attention.torch_backend import TorchBackend
from engine.layers.decoder import DecoderLayer
from tests.engine.kernels.libraries import USABLE
from tests.engine.layers.decoders import LENGTHS, MAKES, STARTS, Make, Random, llama, run, sharing

WANTED = (1, 1, 0, 1, 3)
ROWS = torch.from_numpy(rows_of(StepLayout(STARTS, LENGTHS, {}), np.array(WANTED)))


def test_its_rows_are_the_last_ones_of_each_sequence() -> None:
    ends = LENGTHS.cumsum()
    assert ROWS.tolist() == [ends[0] - 1, ends[1] - 1, ends[3] - 1, ends[4] - 3, ends[4] - 2, ends[4] - 1]


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("weights", ["float32", "bfloat16", "int8", "int4"])
@pytest.mark.parametrize("is_recorded", [True, False])
def test_rows_and_pages_are_those_of_the_whole_step(make: Make, weights: str, is_recorded: bool) -> None:
    dtype = torch.float32 if weights == "float32" else torch.bfloat16
    whole = run(make, dtype, weights=weights, is_recorded=is_recorded)
    narrowed = run(make, dtype, weights=weights, is_recorded=is_recorded, wanted=WANTED)
    assert torch.equal(narrowed.update, whole.update[ROWS])
    assert torch.equal(narrowed.stream, whole.stream[ROWS])
    assert torch.equal(narrowed.pool, whole.pool)


@pytest.mark.parametrize("instruction_set", USABLE)
def test_so_they_are_over_pages_of_8_bits(instruction_set: str) -> None:
    runs = [
        run(llama, torch.bfloat16, instruction_set, kv_dtype=torch.int8, wanted=wanted) for wanted in (None, WANTED)
    ]
    whole, narrowed = runs
    assert torch.equal(narrowed.update, whole.update[ROWS])
    assert torch.equal(narrowed.pool, whole.pool)


@pytest.mark.parametrize("make", MAKES)
def test_so_they_are_with_attention_in_torch(make: Make) -> None:
    whole, narrowed = (run(make, wanted=wanted, make_backend=TorchBackend) for wanted in (None, WANTED))
    torch.testing.assert_close(narrowed.update, whole.update[ROWS])
    torch.testing.assert_close(narrowed.stream, whole.stream[ROWS])
    torch.testing.assert_close(narrowed.pool.view(torch.float32), whole.pool.view(torch.float32))


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("make_backend", [None, TorchBackend])
def test_a_step_of_which_nothing_is_read_stores_the_same(make: Make, make_backend: type | None) -> None:
    whole, narrowed = (run(make, wanted=wanted, make_backend=make_backend) for wanted in (None, (0,) * 5))
    assert len(narrowed.update) == len(narrowed.stream) == 0
    torch.testing.assert_close(narrowed.pool.view(torch.float32), whole.pool.view(torch.float32))


@pytest.mark.parametrize(("make", "all_rows"), [(llama, [True, False]), (sharing, [False, False])])
def test_layers_behind_the_last_one_that_stores_compute_no_other_rows(make: Make, all_rows: Sequence[bool]) -> None:
    counts: dict[int, int] = {}

    def counting(random: Random, layer_id: int) -> DecoderLayer:
        layer = make(random, layer_id)
        mlp = layer.mlp
        assert mlp is not None

        def counted(x: torch.Tensor) -> torch.Tensor:
            counts[layer_id] = len(x)
            return mlp(x)

        return replace(layer, mlp=counted)

    run(counting, wanted=WANTED, shares=make is sharing)
    num_rows = int(LENGTHS.sum())
    assert counts == {layer_id: num_rows if is_all else len(ROWS) for layer_id, is_all in enumerate(all_rows)}
