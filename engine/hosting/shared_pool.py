"""The page pool of a host: its memory, how it is cut for the models that share it, and their design in it.

Used by the host's thread. Knows no cores and no requests. While the pool is cut anew no model has pages.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from engine.errors import CheckpointError
from engine.kernels.cpu.scratch import Scratch
from engine.memory.large_pool import LargePool
from engine.memory.planning.designs import Design
from engine.memory.planning.planner import choose_design, pool_of
from engine.memory.planning.together import (
    TOLERATED_WASTE,
    StoredModel,
    expected_waste,
    fit_design,
    plan_together,
    report_lines,
)
from engine.memory.spec import LayerSpec, PoolPlan
from engine.runner.pool import GivenPool, share_of_free_memory, zeroed_pool

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Cut:
    """How the pool is cut for all its models."""

    large_page_bytes: int
    designs: dict[str, Design]


class SharedPool:
    """Owner of the pool's memory and of its cut. The memory is allocated when the first model joins, on its device."""

    def __init__(self, num_bytes: int | None) -> None:
        """num_bytes: None: a share of the memory that is free when the first model has its weights."""
        self._num_bytes = num_bytes
        self._memory: torch.Tensor | None = None
        self._scratch = Scratch()
        self._models: dict[str, StoredModel] = {}
        self._cut: Cut | None = None
        self.large_pool: LargePool | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of the memory; 0 before the first model has joined."""
        return 0 if self._memory is None else len(self._memory)

    @property
    def large_page_bytes(self) -> int:
        """Bytes of a large page, of the present cut."""
        assert self._cut is not None
        return self._cut.large_page_bytes

    def cut_with(self, name: str, layers: Sequence[LayerSpec], page_tokens: int, device: torch.device) -> Cut:
        """The cut in which this model may join. Where its large pages are those of the present cut, the other models
        stay as they are; otherwise the pool has to be cut anew (`use`) for all of them.

        Raises CheckpointError for a model on another device, and where no cut suits all.
        """
        if self._memory is not None and self._memory.device != device:
            raise CheckpointError(f"the models of a host share one device: this one has {self._memory.device}")
        new = StoredModel(tuple(layers), page_tokens)
        others = {other: model for other, model in self._models.items() if other != name}
        alone = choose_design(new.layers, page_tokens=page_tokens)
        if self._cut is None or not others:
            return Cut(alone.large_page_bytes, {name: alone})
        present = self._cut
        fitted = fit_design(new.layers, page_tokens=page_tokens, large_page_bytes=present.large_page_bytes)
        if fitted is not None:
            joined = Cut(present.large_page_bytes, {**present.designs, name: fitted})
            cost = expected_waste(new.layers, fitted) - expected_waste(new.layers, alone)
            if cost <= TOLERATED_WASTE:
                return joined
        try:
            together = plan_together({**others, name: new}, pool_bytes=self.num_bytes)
        except ValueError as error:
            if fitted is None:
                raise CheckpointError(f"{name} cannot share the page pool of {', '.join(others)}: {error}") from None
            return joined
        if fitted is not None and sum(together.waste.values()) + TOLERATED_WASTE >= _total_waste(
            {**others, name: new}, joined
        ):
            return joined
        if not together.fits_well:
            _log.warning("models do not fit well into one page pool: %s", "; ".join(report_lines(together)))
        return Cut(together.large_page_bytes, dict(together.designs))

    def is_present(self, cut: Cut) -> bool:
        """Whether the pool has these large pages already."""
        return self._cut is not None and self._cut.large_page_bytes == cut.large_page_bytes

    def plan_of(self, cut: Cut, name: str, device: torch.device) -> PoolPlan:
        """The pool as this model would see it. Raises CheckpointError where it is too small."""
        if self._memory is None:
            num_bytes = share_of_free_memory(device) if self._num_bytes is None else self._num_bytes
            self._memory = zeroed_pool(num_bytes, device)
        try:
            return pool_of(cut.designs[name], len(self._memory))
        except ValueError as error:
            raise CheckpointError(str(error)) from None

    def join(self, name: str, layers: Sequence[LayerSpec], page_tokens: int, cut: Cut) -> None:
        """The model is one of those that share the pool, in this cut. Where `is_present` is false, no model may have
        pages, and all large pages are new."""
        assert self._memory is not None
        self._models[name] = StoredModel(tuple(layers), page_tokens)
        if not self.is_present(cut):
            self.large_pool = LargePool(len(self._memory) // cut.large_page_bytes)
            self._memory[: cut.large_page_bytes].zero_()  # the null page
        self._cut = replace(cut, designs={other: cut.designs[other] for other in self._models})

    def leave(self, name: str) -> None:
        """The model has ended."""
        self._models.pop(name, None)
        if self._cut is not None:
            self._cut.designs.pop(name, None)
        if not self._models:
            self._cut = self.large_pool = None

    def given(self, name: str) -> GivenPool:
        """The pool for this model's runner."""
        assert self._memory is not None
        assert self._cut is not None
        plan = pool_of(self._cut.designs[name], len(self._memory))
        return GivenPool(plan, self._memory[: plan.pool_bytes], self._scratch)


def _total_waste(models: dict[str, StoredModel], cut: Cut) -> float:
    return sum(expected_waste(model.layers, cut.designs[name]) for name, model in models.items())
