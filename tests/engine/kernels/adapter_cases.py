"""Adapters of a layer with three parts, as the tests of all operators use them."""

from collections.abc import Mapping, Sequence

import torch

from engine.kernels.adapters import LowRank

#: Of the parts.
OUTPUTS = (70, 24, 33)


def random(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def adapters(num_inputs: int) -> Mapping[int, Sequence[LowRank]]:
    """By slot: of an odd rank, of several ranks, of the first and last part alone with magnitudes, of the second."""
    ranks = {1: (5, 5, 5), 2: (40, 3, 17), 3: (8, 0, 16), 4: (0, 1, 0)}
    found = {}
    for slot, of_parts in ranks.items():
        parts = []
        for index, rank in enumerate(of_parts):
            if rank:
                outputs, generator = OUTPUTS[index], torch.Generator().manual_seed(10 * slot + index)
                down = torch.randn(rank, num_inputs, generator=generator) / num_inputs**0.5
                up = torch.randn(outputs, rank, generator=generator) / rank**0.5
                gains = 0.5 + torch.rand(outputs, generator=generator) if slot == 3 else None
                shifts = torch.randn(outputs, generator=generator) if slot == 3 and index == 2 else None
                parts.append(LowRank(sum(OUTPUTS[:index]), down, up, gains, shifts))
        found[slot] = parts
    return found
