"""A mixture of experts, against the sum over the experts that each token chooses."""

import contextlib
import weakref
from dataclasses import replace

import pytest
import torch

from engine.errors import CheckpointError
from engine.kernels.operators import ClampedGate, ExpertGroups, ExpertOptions, Operators, Routing
from engine.kernels.torch_operators import TorchOperators
from engine.layers.experts import ExpertNames, Experts
from engine.layers.linear import Linear
from engine.layers.weights import AsStored
from engine.parallel.group import Place, Solo
from engine.parallel.shard import Shard, Size, held_size
from tests.engine.runner.device.device_runners import TorchWithGroupedExperts
from tests.engine.runner.device.tape import NoWaiting

NAMES = [ExpertNames.projections(f"experts.{index}") for index in range(5)]


class Matrices(AsStored):
    """A weight source of five random experts, 8 channels wide and 6 in between; of a part of each for one of several
    processes."""

    def __init__(self, operators: Operators, place: Place | None = None) -> None:
        generator = torch.Generator().manual_seed(0)
        super().__init__(None)
        self.operators = operators
        self.group = Solo(place or Place())
        self.dtype = torch.float32
        self.router = torch.randn(5, 8, generator=generator)
        self.tensors: dict[str, torch.Tensor] = {}
        self.taken: list[weakref.ref[torch.Tensor]] = []
        self.most_held = 0
        for expert in NAMES:
            for name, shape in ((expert.gate, (6, 8)), (expert.up, (6, 8)), (expert.down, (8, 6))):
                self.tensors[f"{name}.weight"] = torch.randn(*shape, generator=generator)

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def take(self, name: str, *shape: Size, dtype: torch.dtype | None = None) -> torch.Tensor:
        tensor = self.tensors[name]
        for dim, size in enumerate(shape):
            if isinstance(size, Shard):
                tensor = torch.cat([tensor.narrow(dim, start, end - start) for start, end in size.ranges], dim)
        assert tensor.shape == tuple(map(held_size, shape))
        taken = tensor.clone()
        self.taken.append(weakref.ref(taken))
        self.most_held = max(self.most_held, self.num_held())
        return taken

    def take_matrix(self, name: str, *shape: Size) -> torch.Tensor:
        return self.take(name, *shape)

    def take_linear_weight(self, layer: str, out_features: Size, in_features: Size) -> torch.Tensor:
        return self.take(f"{layer}.weight", out_features, in_features)

    def take_stack(self, name: str, count: int, out_features: Size, in_features: Size) -> torch.Tensor:
        return self.take(name, count, out_features, in_features)

    def is_quantised(self, layer: str) -> bool:
        return False

    def has_own_head(self, head: str, embedding: str) -> bool:
        return False

    def num_held(self) -> int:
        return sum(reference() is not None for reference in self.taken)

    def experts(self, routing: Routing, names: list[ExpertNames] = NAMES) -> Experts:
        router = Linear.bind(self.operators, self.router)
        return Experts.load(self, router, names, 8, Shard.even(6, self.group.place, "size"), routing)

    def joined_experts(self, routing: Routing) -> Experts:
        """The same experts, from a checkpoint with one tensor for all of them."""
        gates, ups, downs = (
            torch.stack([self.tensors[f"{getattr(expert, part)}.weight"] for expert in NAMES])
            for part in ("gate", "up", "down")
        )
        self.tensors |= {"experts.gate_up_proj": torch.cat((gates, ups), 1), "experts.down_proj": downs}
        router = Linear.bind(self.operators, self.router)
        return Experts.load_joined(self, router, "experts", 5, 8, Shard.even(6, self.group.place, "size"), routing)

    def expected(self, x: torch.Tensor, num_chosen: int) -> torch.Tensor:
        probabilities = (self.router @ x).softmax(0)
        total = torch.zeros(8)
        for index in probabilities.topk(num_chosen).indices.tolist():
            gate, up, down = (
                self.tensors[f"{name}.weight"] for name in (NAMES[index].gate, NAMES[index].up, NAMES[index].down)
            )
            total += probabilities[index] * (down @ (torch.nn.functional.silu(gate @ x) * (up @ x)))
        return total


@pytest.mark.parametrize("is_grouped", [False, True])
def test_every_token_gets_its_own_experts_in_any_batch(is_grouped: bool) -> None:
    """Five experts, two choices. Where they are grouped, a step of any number of tokens waits for no result."""
    matrices = Matrices(TorchWithGroupedExperts() if is_grouped else TorchOperators())
    experts = matrices.experts(Routing(2, sums_to_one=False))
    assert experts.is_capturable == is_grouped
    x = torch.randn(40, 8, generator=torch.Generator().manual_seed(1))
    with NoWaiting() if is_grouped else contextlib.nullcontext():
        together = experts(x)
        alone = [experts(x[row : row + 1])[0] for row in range(40)]
    for row in range(40):
        expected = matrices.expected(x[row], 2)
        torch.testing.assert_close(together[row], expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(alone[row], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("is_grouped", [False, True])
def test_each_process_computes_its_part_of_every_expert(is_grouped: bool) -> None:
    operators = TorchWithGroupedExperts() if is_grouped else TorchOperators()
    routing = Routing(2, sums_to_one=True)
    x = torch.randn(9, 8, generator=torch.Generator().manual_seed(1))
    parts = [Matrices(operators, Place(rank, 2)).experts(routing).partial(x) for rank in range(2)]
    torch.testing.assert_close(parts[0] + parts[1], Matrices(operators).experts(routing)(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("is_grouped", [False, True])
def test_experts_may_be_joined_in_one_tensor(is_grouped: bool, rank: int) -> None:
    matrices = Matrices(TorchWithGroupedExperts() if is_grouped else TorchOperators(), Place(rank, 2))
    routing = Routing(2, sums_to_one=True)
    x = torch.randn(9, 8, generator=torch.Generator().manual_seed(1))
    joined = matrices.joined_experts(routing)
    assert joined.is_capturable == is_grouped
    torch.testing.assert_close(joined.partial(x), matrices.experts(routing).partial(x), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("is_grouped", [False, True])
def test_weights_may_be_scaled_to_sum_to_one(is_grouped: bool) -> None:
    """One choice: its weight is then one."""
    matrices = Matrices(TorchWithGroupedExperts() if is_grouped else TorchOperators())
    x = torch.randn(9, 8, generator=torch.Generator().manual_seed(1))
    weight = torch.nn.functional.linear(x, matrices.router).softmax(1).amax(1, keepdim=True)
    scaled = matrices.experts(Routing(1, sums_to_one=True))(x)
    torch.testing.assert_close(scaled * weight, matrices.experts(Routing(1, sums_to_one=False))(x))


@pytest.mark.parametrize("is_grouped", [False, True])
def test_a_correction_changes_the_choice_and_not_the_weights(is_grouped: bool) -> None:
    """Sigmoids, expert 3 for every token, weights to sum to 2.5."""
    matrices = Matrices(TorchWithGroupedExperts() if is_grouped else TorchOperators())
    x = torch.randn(9, 8, generator=torch.Generator().manual_seed(1))
    corrected = Routing(1, False, is_sigmoid=True, correction=torch.tensor([0.0, 0, 0, 2, 0]))
    weight = torch.nn.functional.linear(x, matrices.router).sigmoid()[:, 3:4]
    chosen = matrices.experts(replace(corrected, sums_to_one=True, scale=2.5))(x)
    torch.testing.assert_close(chosen * weight / 2.5, matrices.experts(corrected)(x))


@pytest.mark.parametrize("size", [1, 2])
def test_stacked_experts_with_biases_and_a_clamped_gate(size: int) -> None:
    """The same on a device and on the host, alone and as the sum over two processes: biases of outputs count once."""
    generator = torch.Generator().manual_seed(2)
    gate_up, down = torch.randn(5, 12, 8, generator=generator), torch.randn(5, 8, 6, generator=generator)
    biases = torch.randn(5, 12, generator=generator), torch.randn(5, 8, generator=generator)
    gate, routing = ClampedGate(alpha=1.7, limit=0.8), Routing(2, sums_to_one=True)
    x = torch.randn(9, 8, generator=generator)

    def partial(operators: Operators, rank: int) -> torch.Tensor:
        matrices, own = Matrices(operators, Place(rank, size)), slice(rank * 6 // size, (rank + 1) * 6 // size)
        rows = torch.arange(12).view(2, 6)[:, own].flatten()
        experts = Experts.stacked(
            matrices,
            Linear.bind(operators, matrices.router),
            gate_up[:, rows].contiguous(),
            down[:, :, own].contiguous(),
            routing,
            ExpertOptions(biases[0][:, rows].contiguous(), biases[1], gate),
            summed_over=matrices.group if size > 1 else None,
        )
        assert experts.is_capturable == isinstance(operators, TorchWithGroupedExperts)
        return experts.partial(x)

    expected = torch.zeros(9, 8)
    for row, scores in enumerate(x @ Matrices(TorchOperators()).router.T):
        values, chosen = scores.topk(2)
        for weight, index in zip(values.softmax(0), chosen.tolist(), strict=True):
            gates, ups = (gate_up[index] @ x[row] + biases[0][index]).chunk(2)
            gates, ups = gates.clamp(max=0.8), ups.clamp(-0.8, 0.8)
            expected[row] += weight * (down[index] @ (gates * (1.7 * gates).sigmoid() * (ups + 1)) + biases[1][index])
    for operators in (TorchOperators(), TorchWithGroupedExperts()):
        total = sum((partial(operators, rank) for rank in range(size)), torch.zeros(9, 8))
        torch.testing.assert_close(total, expected, atol=1e-5, rtol=1e-5)


def test_stacked_experts_are_not_held_a_second_time() -> None:
    matrices = Matrices(TorchWithGroupedExperts())
    assert matrices.experts(Routing(2, sums_to_one=True))
    assert len(matrices.taken) == 3 * len(NAMES)
    assert matrices.most_held <= 2 * 3, "at most two experts while others are loaded"
    assert matrices.num_held() == 0


def test_more_experts_than_there_are_cannot_be_chosen_or_stacked() -> None:
    matrices = Matrices(TorchWithGroupedExperts())
    with pytest.raises(CheckpointError, match="6 of 5 experts cannot be chosen"):
        matrices.experts(Routing(6, sums_to_one=True))
    with pytest.raises(CheckpointError, match="5 experts in 2 groups, 1 chosen, do not fit"):
        matrices.experts(Routing(2, sums_to_one=True, groups=ExpertGroups(2, 1, 1)))
    with pytest.raises(CheckpointError, match="2 of 1 experts cannot be chosen"):
        matrices.experts(Routing(2, sums_to_one=True, groups=ExpertGroups(5, 1, 1)))
    many = [ExpertNames.projections(f"experts.{index}") for index in range(60_000)]
    with pytest.raises(CheckpointError, match=r"no tensor experts\.5\.down_proj\.weight"):
        matrices.experts(Routing(2, sums_to_one=True), many)
