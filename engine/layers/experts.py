"""Mixture of experts: each token goes through the few gated MLPs to which a router gives the highest probability.

The host decides which experts run, and each runs on its own tokens. On a device every layer would wait for that
decision. In a step with enough tokens, most experts are chosen by some token. Running all experts on all tokens, with
weight zero where an expert was not chosen, then reads hardly more weights. The host reads no results in such a step, so
it can be a CUDA graph.
"""

from collections.abc import Iterable, Sequence

import torch

from engine.errors import CheckpointError
from engine.layers.linear import Linear
from engine.layers.mlp import GatedMLP

#: Values of capturable_rows: steps of any number of tokens can be captured; no step can.
ANY_ROWS, NO_ROWS = range(1, 1 << 30), range(0)
#: With more tokens, products take longer than reading the weights: 790 TFLOP/s and 4.3 TB/s of an H200 meet at 184
#: tokens in bfloat16. Above this bound the host chooses the experts: such steps are prompts, and need no graph.
_MOST_DENSE_ROWS = 256


class Experts:
    """A router and its experts; the output is the weighted sum of the chosen ones."""

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
        routes_on_device: the host must not read results, because that would wait for the device. Raises
        CheckpointError where more experts are to be chosen than there are."""
        if num_chosen > len(experts):
            raise CheckpointError(f"config.json: {num_chosen} of {len(experts)} experts cannot be chosen")
        #: Numbers of tokens for which all experts run. From the smallest on, tokens make at least as many choices as
        #: there are experts: on average at least 63 % of the experts are then chosen by some token.
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
        """This process's part of the output, [T, hidden]: a sum over the processes completes it."""
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
    """Experts, and a shared expert for every token, weighted by the sigmoid of a score (Qwen2-MoE)."""

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
    """Numbers of tokens with which a step through all these feed-forward parts can be captured as a CUDA graph."""
    rows = ANY_ROWS
    for part in parts:
        if isinstance(part, Experts | WithSharedExpert):
            rows = range(max(rows.start, part.capturable_rows.start), min(rows.stop, part.capturable_rows.stop))
    return rows
