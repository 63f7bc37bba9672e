"""From what each layer stores to the layout of the page pool. Pure functions of numbers; nothing is allocated.

The least common multiple of Jenga wastes most of a large page on a short request when layer counts have no common
divisor (Gemma-3-27B: twice the live bytes at 100 tokens), and chats are short. So the planner also considers parts of
types, padded pages and other tokens per page. It takes the design that wastes least over the expected lengths, with a
bound on the number of page tables, because every table costs work in every step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.memory.admission import AdmissionRule
from engine.memory.images import ImageSpan
from engine.memory.planning.design_search import CHAT_WEIGHTS, DesignSearch
from engine.memory.planning.designs import (
    Design,
    equal_page_design,
    gcd_design,
    lcm_design,
    live_bytes,
    max_page_design,
)
from engine.memory.planning.grouping import group_layers, large_page_bytes
from engine.memory.policies import policy_for
from engine.memory.spec import NUM_NULL_LARGE_PAGES, LayerSpec, LayerType, PoolPlan

#: Lengths of requests at which waste is reported.
REPORT_LENGTHS = tuple(CHAT_WEIGHTS)
#: Page tables of one sequence. 72 serve Gemma-2-27B with its draft model in pages of one layer, the finest useful cut
#: in the layer tables.
MAX_PAGE_TABLES = 80
#: Tokens of one step that capacity figures assume: a window needs room for what a step adds to it.
STEP_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a pool of a given size holds: in pages, in tokens and in requests."""

    pool_bytes: int
    num_large_pages: int  #: for requests; the null page is not counted
    num_pages: tuple[int, ...]  #: small pages per type, if that type had the whole pool
    num_tokens: int  #: of the longest single request, up to the model's context
    num_max_length_requests: int  #: requests of the model's full context at once


@dataclass(frozen=True, slots=True)
class PlanReport:
    """A chosen design, and the alternatives it was compared with."""

    layers: tuple[LayerSpec, ...]
    chosen: Design
    designs: dict[str, Design]  #: by name, `chosen` included
    reason: str
    lengths: tuple[int, ...]
    image_tokens: int

    def live(self, num_tokens: int) -> int:
        """Bytes that a request of that many tokens needs, without pages."""
        return live_bytes(self.layers, num_tokens, self.image_tokens)

    def held(self, name: str, num_tokens: int) -> int:
        """Bytes of the large pages that such a request occupies in the named design."""
        return self.designs[name].held_bytes(num_tokens, self.image_tokens)

    def waste(self, name: str, num_tokens: int) -> float:
        """Bytes held beyond the live ones, as a share of the live ones."""
        return self.held(name, num_tokens) / self.live(num_tokens) - 1

    def capacity(self, pool_bytes: int, max_model_len: int, max_step_tokens: int = STEP_TOKENS) -> Capacity:
        """What a pool of that size in the chosen design holds. Raises ValueError where it is too small."""
        plan = pool_of(self.chosen, pool_bytes)
        rule = AdmissionRule(plan, max_step_tokens)
        images = (ImageSpan(0, self.image_tokens, b"", self.image_tokens),) if self.image_tokens else ()
        return Capacity(
            pool_bytes=plan.pool_bytes,
            num_large_pages=plan.num_usable_large_pages,
            num_pages=tuple(plan.num_usable_large_pages * plan.ratio(kind) for kind in plan.types),
            num_tokens=rule.max_tokens(max_model_len, images),
            num_max_length_requests=rule.max_sequences(max_model_len, images),
        )


def plan_layers(
    layers: Sequence[LayerSpec],
    *,
    page_tokens: int,
    lengths: Sequence[int] = REPORT_LENGTHS,
    image_tokens: int = 0,
    max_page_tables: int = MAX_PAGE_TABLES,
) -> PlanReport:
    """Compare all designs at these lengths in tokens and choose one. Lengths other than the usual ones weigh the same.

    Raises ValueError for an empty list of layers or of lengths.
    """
    if not lengths or min(lengths) < 1:
        raise ValueError("lengths must be positive numbers of tokens")
    alternatives = {
        design.name: design
        for design in (
            lcm_design(layers, page_tokens=page_tokens),
            gcd_design(layers, page_tokens=page_tokens),
            equal_page_design(layers, page_tokens=page_tokens),
            max_page_design(layers, page_tokens=page_tokens),
        )
    }
    search = DesignSearch(layers, page_tokens, lengths, image_tokens, max_page_tables, alternatives)
    chosen = search.best()
    return PlanReport(
        layers=tuple(layers),
        chosen=chosen,
        designs={"chosen": chosen, **alternatives},
        reason=search.explain(chosen),
        lengths=tuple(lengths),
        image_tokens=image_tokens,
    )


def choose_design(layers: Sequence[LayerSpec], *, page_tokens: int) -> Design:
    """The design with the least expected waste for chats."""
    types = group_layers(layers, page_tokens=page_tokens)
    if len(types) == 1:
        return Design("chosen", types, types[0].small_page_bytes)
    return plan_layers(layers, page_tokens=page_tokens).chosen


def pool_of(design: Design, pool_bytes: int) -> PoolPlan:
    """A pool of at most `pool_bytes` in this design, the null page included.

    Raises ValueError where not even one large page would be left for requests.
    """
    num_large_pages = pool_bytes // design.large_page_bytes
    if num_large_pages <= NUM_NULL_LARGE_PAGES:
        needed = (NUM_NULL_LARGE_PAGES + 1) * design.large_page_bytes
        raise ValueError(f"a page pool of {pool_bytes} bytes is too small: this model needs at least {needed} bytes")
    return PoolPlan(design.types, design.large_page_bytes, num_large_pages)


def plan_pool(layers: Sequence[LayerSpec], *, page_tokens: int, pool_bytes: int) -> PoolPlan:
    """The chosen layout of a pool of at most `pool_bytes`, the null page included; ValueError where that is too
    little."""
    return pool_of(choose_design(layers, page_tokens=page_tokens), pool_bytes)


def pool_bytes_for(
    types: Sequence[LayerType], *, num_tokens: int, num_sequences: int = 1, max_step_tokens: int | None = None
) -> int:
    """Bytes of the smallest pool in which that many sequences of that length fit at once, null page included.

    max_step_tokens: the most tokens of a sequence that one step computes; None: unbounded, a window keeps all tokens.
    """
    page_bytes = large_page_bytes(types)
    num_large_pages = NUM_NULL_LARGE_PAGES
    for layer_type in types:
        num_small_pages = num_sequences * policy_for(layer_type, max_step_tokens).num_pages(num_tokens)
        num_large_pages += -(-num_small_pages * layer_type.small_page_bytes // page_bytes)
    return num_large_pages * page_bytes
