"""Mixture of experts: each token goes through the few gated MLPs that a router gives the highest probability.

On the host it is seen which experts run, and each runs on its own tokens. Where a device computes, every layer waits
for that. A step of so many tokens that most experts are somebody's choice reads hardly more weights if all of them run
on all tokens, with weight zero where they were not chosen: nothing is looked at then, and it can be a graph.
"""

from collections.abc import Iterable, Sequence

import torch

from engine.layers.linear import Linear
from engine.layers.mlp import GatedMLP

#: For any number of tokens; for none.
ANY_ROWS, NO_ROWS = range(1, 1 << 30), range(0)
#: More tokens take longer to multiply than the weights take to read: 790 TFLOP/s and 4.3 TB/s of an H200 meet at 184
#: tokens in bfloat16. Above, the host chooses: those are prompts, or graphs that no one expects of such a model.
_MOST_DENSE_ROWS = 256


class Experts:
    def __init__(
        self,
        router: Linear,
        experts: Sequence[GatedMLP],
        *,
        num_chosen: int,
        sums_to_one: bool,
        routes_on_device: bool = False,
    ) -> None:
        """router gives a score for each expert. sums_to_one: the chosen experts' weights are scaled to sum to one.
        routes_on_device: looking at a number would wait for a device."""
        #: Tokens for which all experts run. From the first of them on there are as many choices as experts, and on
        #: average 63 % of the experts or more are somebody's.
        least = -(-len(experts) // num_chosen)
        self.capturable_rows = range(least, _MOST_DENSE_ROWS + 1) if routes_on_device else NO_ROWS
        self._router = router
        self._experts = experts
        self._num_chosen = num_chosen
        self._sums_to_one = sums_to_one

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]."""
        return self._experts[0].completed(self.partial(x))

    def partial(self, x: torch.Tensor) -> torch.Tensor:
        """This process's part of the output."""
        probabilities = self._router(x).softmax(dim=-1, dtype=torch.float32)
        weights, chosen = probabilities.topk(self._num_chosen, dim=-1)  # [T, chosen]
        if self._sums_to_one:
            weights /= weights.sum(dim=-1, keepdim=True)
        weights = weights.to(x.dtype)
        output = torch.zeros_like(x)
        if len(x) in self.capturable_rows:
            of_all = x.new_zeros((len(x), len(self._experts))).scatter_(1, chosen, weights)
            for index, expert in enumerate(self._experts):
                output.addcmul_(expert.partial(x), of_all[:, index, None])
            return output
        for index in sorted(set(chosen.flatten().tolist())):
            rows, places = (chosen == index).nonzero(as_tuple=True)
            output.index_add_(0, rows, self._experts[index].partial(x[rows]) * weights[rows, places, None])
        return output


class WithSharedExpert:
    """Experts, and beside them one that every token goes through, weighted by the sigmoid of a score of its own."""

    def __init__(self, experts: Experts, shared: GatedMLP, gate: Linear) -> None:
        self.capturable_rows = experts.capturable_rows
        self._experts = experts
        self._shared = shared
        self._gate = gate

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]."""
        partial = self._experts.partial(x) + self._gate(x).sigmoid() * self._shared.partial(x)
        return self._shared.completed(partial)


def capturable_rows(parts: Iterable[object]) -> range:
    """Of how many tokens steps can be captured that go through all of these."""
    rows = ANY_ROWS
    for part in parts:
        if isinstance(part, Experts | WithSharedExpert):
            rows = range(max(rows.start, part.capturable_rows.start), min(rows.stop, part.capturable_rows.stop))
    return rows
