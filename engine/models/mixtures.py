"""Loads the mixture of experts of a layer: router, experts and, where there are any, shared experts as one MLP."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.kernels.operators import Routing
from engine.layers.experts import ExpertNames, Experts, WithSharedExpert, load_expert
from engine.layers.linear import Linear
from engine.layers.mlp import FeedForward
from engine.layers.weights import WeightSource
from engine.parallel.shard import Shard


@dataclass(frozen=True)
class SharedExpert:
    """An MLP that every token goes through, beside the chosen experts."""

    name: str
    ffn: int  #: the sum, if the checkpoint counts several


def load_mixture(
    weights: WeightSource,
    router: str,
    experts: Sequence[ExpertNames],
    hidden: int,
    ffn: int,
    routing: Routing,
    shared: SharedExpert | None = None,
) -> FeedForward:
    """router: name of its matrix. ffn: intermediate size of an expert."""
    scores = Linear.load_router(weights, router, hidden, len(experts))
    part = Shard.even(ffn, weights.group.place, "intermediate size of an expert")
    mixture = Experts.load(weights, scores, experts, hidden, part, routing)
    if shared is None:
        return mixture
    part = Shard.even(shared.ffn, weights.group.place, "intermediate size of the shared experts")
    return WithSharedExpert(mixture, load_expert(weights, ExpertNames.projections(shared.name), hidden, part))
