"""A mixture of experts, against the sum over the experts that each token chooses."""

import contextlib

import pytest
import torch

from engine.kernels.torch_operators import TorchOperators
from engine.layers.experts import Experts
from engine.layers.linear import Linear
from engine.layers.mlp import GatedMLP
from tests.engine.runner.device.tape import NoWaiting


@pytest.mark.parametrize("routes_on_device", [False, True])
def test_every_token_gets_its_own_experts_in_any_batch(routes_on_device: bool) -> None:
    """Five experts, two choices: on a device, steps of three tokens and more do not wait for a result."""
    generator = torch.Generator().manual_seed(0)
    router, gate_up, down = (torch.randn(*shape, generator=generator) for shape in ((5, 8), (5, 12, 8), (5, 8, 6)))
    operators = TorchOperators()
    mlps = [
        GatedMLP(Linear.bind(operators, gate_up[i]), Linear.bind(operators, down[i]), operators.silu_mul)
        for i in range(5)
    ]
    experts = Experts(
        Linear.bind(operators, router), mlps, num_chosen=2, sums_to_one=False, routes_on_device=routes_on_device
    )
    assert experts.capturable_rows == (range(3, 257) if routes_on_device else range(0))
    with NoWaiting() if routes_on_device else contextlib.nullcontext():
        experts(torch.randn(3, 8, generator=generator))
    x = torch.randn(40, 8, generator=generator)
    together = experts(x)
    for row in range(40):
        probabilities = (router @ x[row]).softmax(0)
        best = probabilities.topk(2).indices.tolist()
        expected = sum(probabilities[i] * mlps[i](x[row : row + 1])[0] for i in best)
        torch.testing.assert_close(together[row], expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(experts(x[row : row + 1])[0], expected, atol=1e-5, rtol=1e-5)
