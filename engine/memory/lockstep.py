"""Groups of layer types whose pages are always allocated and freed together; a group has one pool and one policy."""

from dataclasses import dataclass

from engine.memory.large_pool import LargePool
from engine.memory.policies import LayerPolicy, policy_for
from engine.memory.small_pool import SmallPool
from engine.memory.spec import IMAGE_KINDS, LayerKind, PoolPlan


@dataclass(frozen=True, slots=True)
class LockstepGroup:
    """Layer types in lockstep. Most plans have one group per kind of layer (Gemma-3-27B: 2 groups, 31 page tables)."""

    index: int  #: in lists that have an entry for each group
    types: tuple[int, ...]  #: their indices in PoolPlan.types
    kind: LayerKind
    span: int
    page_tokens: int
    has_images: bool
    policy: LayerPolicy
    pool: SmallPool


def make_groups(plan: PoolPlan, large_pool: LargePool, max_step_tokens: int | None) -> list[LockstepGroup]:
    """The groups of a plan, in the order of PoolPlan.lockstep_groups, with empty pools over the large pages."""
    groups = []
    for index, types in enumerate(plan.lockstep_groups()):
        first = plan.types[types[0]]
        groups.append(
            LockstepGroup(
                index=index,
                types=types,
                kind=first.spec.kind,
                span=first.spec.span,
                page_tokens=first.page_tokens,
                has_images=first.spec.kind in IMAGE_KINDS,
                policy=policy_for(first, max_step_tokens),
                pool=SmallPool(first, plan.ratio(first), large_pool, width=len(types)),
            )
        )
    return groups
