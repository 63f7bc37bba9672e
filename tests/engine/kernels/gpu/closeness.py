"""Tolerances between a kernel and its reference, by dtype: both compute in float32 and round once."""

import torch

#: Relative and absolute. Triton's interpreter truncates to bfloat16 and a device rounds: one unit in the last place.
TOLERANCES = {torch.float32: 3e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
DTYPES = tuple(TOLERANCES)


def assert_near(actual: torch.Tensor, expected: torch.Tensor, num_roundings: int = 1) -> None:
    """Close within the dtype's tolerance. NaN equals NaN: it marks places that must not be written."""
    tolerance = TOLERANCES[expected.dtype] * num_roundings
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance, equal_nan=True)
