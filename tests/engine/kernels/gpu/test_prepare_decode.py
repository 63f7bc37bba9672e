"""Inputs of a decode step equal those of the reference exactly."""

import pytest
import torch

from engine.kernels import gpu, reference
from engine.kernels.step_kernels import SAMPLING_WORDS, SamplingColumns, StepKernels


def _run(kernels: StepKernels, device: torch.device, num_rows: int, page_tokens: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(num_rows)
    num_slots = 200
    slots = torch.randperm(num_slots, generator=generator)[:num_rows].int()
    slots[::3] = -1
    starts = torch.randint(0, 96, (num_rows,), generator=generator, dtype=torch.int32)
    last_tokens = torch.randint(0, 50_000, (num_slots,), generator=generator)
    tables = [
        torch.randint(0, 2**31 - 1, (num_slots, 128 // tokens + 3), generator=generator, dtype=torch.int32)[:, :-2]
        for tokens in page_tokens
    ]
    parameters = torch.randint(-(2**31), 2**31 - 1, (num_slots, SAMPLING_WORDS), generator=generator, dtype=torch.int32)
    parameters[:, [0, 2, 3]] = torch.rand((num_slots, 3), generator=generator).view(torch.int32)  # floats by their bits
    parameters[:, 6] //= 2  # added to the length of a context
    slots, starts, last_tokens, parameters = (x.to(device) for x in (slots, starts, last_tokens, parameters))
    outputs = [torch.full((num_rows,), 9, device=device) for _ in range(2 + len(page_tokens))]
    contexts = torch.full((num_rows,), 9, dtype=torch.int32, device=device)
    token_ids, positions, *page_places = outputs
    tables = [table.to(device) for table in tables]
    sampling = SamplingColumns.allocate(num_rows, device)
    for column in sampling.all:
        column.fill_(9)
    inputs = (slots, starts, last_tokens, tables, page_tokens, parameters)
    kernels.prepare_decode(*inputs, token_ids, positions, contexts, page_places, sampling)
    return [*outputs, contexts, *sampling.all]


@pytest.mark.first_minutes(2)
@pytest.mark.parametrize("page_tokens", [(), (16,), (4, 48)])  # a model without attention has no tables
@pytest.mark.parametrize("num_rows", [1, 16, 131])  # the last ones are more than one block
def test_rows_and_padding_are_those_of_the_reference(
    num_rows: int, page_tokens: tuple[int, ...], device: torch.device
) -> None:
    ours, expected = (_run(kernels, device, num_rows, page_tokens) for kernels in (gpu, reference))
    assert all(torch.equal(one, other) for one, other in zip(ours, expected, strict=True))
