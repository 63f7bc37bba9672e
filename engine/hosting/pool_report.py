"""What a host's page pool holds, by model: for metrics and operators. Frozen values."""

from dataclasses import dataclass
from typing import Self

from engine.core import EngineCore
from engine.hosting.hosted_model import ModelState
from engine.memory.large_pool import LargePool


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """One model's part of the pool, in bytes."""

    name: str
    state: ModelState
    used_bytes: int = 0  #: small pages of sequences
    evictable_bytes: int = 0  #: cached prefixes
    empty_in_large_bytes: int = 0  #: empty small pages in large pages that the model holds
    share_bytes: int = 0  #: what it may take back from others, if it had requests now

    @classmethod
    def of(cls, name: str, state: ModelState, core: EngineCore | None, share_bytes: int) -> Self:
        """The memory of a model now. core: None: it is being loaded."""
        if core is None:
            return cls(name, state)
        ledger = core.ledger()
        return cls(name, state, ledger.used_bytes, ledger.evictable_bytes, ledger.empty_in_large_bytes, share_bytes)


@dataclass(frozen=True, slots=True)
class PoolReport:
    """null + empty + what the models hold = pool, in bytes and exactly; the rest of the memory is less than a large
    page."""

    pool_bytes: int  #: the memory
    large_page_bytes: int
    null_bytes: int
    empty_bytes: int
    models: tuple[ModelMemory, ...]

    @classmethod
    def of(
        cls, pool_bytes: int, large_page_bytes: int, large_pool: LargePool | None, models: tuple[ModelMemory, ...]
    ) -> Self:
        """The pool now. large_pool: None: no model has joined."""
        if large_pool is None:
            return cls(pool_bytes, 0, 0, 0, models)
        report = cls(pool_bytes, large_page_bytes, large_page_bytes, large_pool.num_empty * large_page_bytes, models)
        held = sum(model.used_bytes + model.evictable_bytes + model.empty_in_large_bytes for model in models)
        assert report.null_bytes + report.empty_bytes + held == large_pool.num_large_pages * large_page_bytes
        return report
