"""Low-rank adapters against plain torch, and a row's independence of neighbours."""

import pytest
import torch
import torch.nn.functional as F

from engine.kernels.adapters import AdapterRows, AdapterTiles
from engine.kernels.gpu.adapters import GpuAdapterProduct
from engine.kernels.operators import AdapterShape
from engine.kernels.reference.adapters import TorchAdapterProduct
from tests.engine.kernels.adapter_cases import OUTPUTS, adapters, random
from tests.engine.kernels.gpu.closeness import assert_near

#: The interpreter has no products of bfloat16.
DTYPES = (torch.float32, torch.float16)


def product(num_inputs: int, dtype: torch.dtype, device: torch.device) -> GpuAdapterProduct:
    """With an adapter in each of the slots 1 to 4, and none in slot 5."""
    own = GpuAdapterProduct(AdapterShape(5, 40, num_inputs, OUTPUTS, dtype, device))
    for slot, parts in adapters(num_inputs).items():
        own.place(slot, parts)
    return own


def reference(num_inputs: int, dtype: torch.dtype, device: torch.device) -> TorchAdapterProduct:
    theirs = TorchAdapterProduct(lambda weight, _: lambda x: F.linear(x, weight), dtype, device)
    for slot, parts in adapters(num_inputs).items():
        theirs.place(slot, parts)
    return theirs


@pytest.mark.first_minutes
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_inputs", [64, 90])
def test_every_row_gets_the_update_of_its_own_adapter(
    dtype: torch.dtype, num_inputs: int, device: torch.device
) -> None:
    rows = AdapterRows.of((1, 3, 37, 1, 2, 5), (1, 0, 2, 3, 4, 5))
    assert rows is not None
    x = random(dtype, rows.num_rows, num_inputs + 6).to(device)[:, :num_inputs]
    base = random(dtype, rows.num_rows, sum(OUTPUTS)).to(device)
    ours, theirs = base.clone(), base.clone()
    product(num_inputs, dtype, device).add(x, ours, rows)
    reference(num_inputs, dtype, device).add(x, theirs, rows)
    assert_near(ours, theirs, num_roundings=2)
    assert torch.equal(ours[1:4], base[1:4])  # no adapter
    assert torch.equal(ours[44:], base[44:])  # an empty slot


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_of_a_row_do_not_depend_on_its_neighbours(dtype: torch.dtype, device: torch.device) -> None:
    own = product(64, dtype, device)
    rows = AdapterRows.of((19, 1, 7), (2, 1, 2))
    assert rows is not None
    x, y = random(dtype, 27, 64).to(device), random(dtype, 27, sum(OUTPUTS)).to(device)
    together = y.clone()
    own.add(x, together, rows)
    for row in (0, 17, 19, 26):  # at their places in their tiles: the interpreter's products depend on these
        others, alone = x.flip(0).contiguous(), y.clone()
        others[row] = x[row]
        own.add(others, alone, rows)
        assert torch.equal(alone[row], together[row])
        assert not torch.equal(alone[row - 1], together[row - 1])


def test_tiles_without_rows_change_nothing(device: torch.device) -> None:
    own = product(64, torch.float32, device)
    rows = AdapterRows.of((2,), (1,))
    assert rows is not None
    x, y = random(torch.float32, 2, 64).to(device), random(torch.float32, 2, sum(OUTPUTS)).to(device)
    expected = y.clone()
    own.add(x, expected, rows)
    padded = [torch.tensor(numbers, dtype=torch.int32, device=device) for numbers in ((0, 0, 0), (2, 0, 0), (1, 0, 0))]
    own.add(x, y, AdapterRows(rows.runs, 2, AdapterTiles(*padded)))
    assert torch.equal(y, expected)


def test_a_slot_that_is_filled_again_has_nothing_of_its_former_adapter(device: torch.device) -> None:
    own, others = product(64, torch.float32, device), adapters(64)
    own.place(4, others[1])
    x, y = random(torch.float32, 3, 64).to(device), random(torch.float32, 3, sum(OUTPUTS)).to(device)
    results = []
    for slot in (1, 4):
        rows = AdapterRows.of((3,), (slot,))
        assert rows is not None
        results.append(y.clone())
        own.add(x, results[-1], rows)
    assert torch.equal(*results)
