"""Keeping launches, in plain torch: there are none to repeat."""

from collections.abc import Callable, Sequence

import torch


def keep_launches(work: Callable[[], None], moving: Sequence[torch.Tensor | None]) -> None:
    """Run `work`. Nothing is kept, as StepKernels.keep_launches allows."""
    work()
