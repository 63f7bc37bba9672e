"""The grouped product of experts against its reference, and its independence of neighbours."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from engine.kernels import reference
from engine.kernels.gpu import choose_experts as choosing
from engine.kernels.gpu import grouped_experts as grouping
from engine.kernels.gpu.choose_experts import choose_experts, order_by_expert
from engine.kernels.gpu.grouped_experts import _tiles_for, grouped_experts, num_tiles
from engine.kernels.gpu.operators import GpuOperators
from engine.kernels.operators import ClampedGate, ExpertGroups, ExpertOptions, Routing, TanhGelu
from engine.runner.warm_up import warm_up_steps
from tests.engine.kernels.gpu.closeness import DTYPES, assert_near

NAN = float("nan")


def matrices(
    num_experts: int, hidden: int, size: int, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """gate_up [E, 2 * I, hidden] and down [E, hidden, I]."""
    generator = torch.Generator().manual_seed(num_experts)
    gate_up = torch.randn(num_experts, 2 * size, hidden, generator=generator) / hidden**0.5
    down = torch.randn(num_experts, hidden, size, generator=generator) / size**0.5
    return gate_up.to(dtype).to(device), down.to(dtype).to(device)


def choices(num_tokens: int, num_experts: int, num_chosen: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Different random experts of each token, and weights."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.rand(num_tokens, num_experts, generator=generator).topk(num_chosen).indices
    return chosen.to(torch.int32), torch.rand(num_tokens, num_chosen, generator=generator)


@pytest.mark.first_minutes
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sums_to_one", [False, True])
def test_the_most_probable_experts_are_chosen(dtype: torch.dtype, sums_to_one: bool, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    for num_experts, num_chosen in ((1, 1), (5, 2), (8, 8), (60, 4), (130, 6)):
        scores = torch.randn(9, num_experts + 3, generator=generator).to(dtype).to(device)[:, 1 : num_experts + 1] * 3
        routing = Routing(num_chosen, sums_to_one)
        chosen, weights = choose_experts(scores, routing)
        expected, expected_weights = reference.choose_experts(scores, routing)
        assert torch.equal(chosen, expected)
        assert_near(weights, expected_weights)


#: (experts, chosen, groups): of equal size, and sizes and numbers of groups that are no powers of two
IN_GROUPS = [
    (8, 2, ExpertGroups(4, 2, 2)),
    (12, 3, ExpertGroups(4, 1, 1)),
    (60, 7, ExpertGroups(3, 2, 2)),
    (256, 8, ExpertGroups(8, 4, 2)),
    (6, 2, ExpertGroups(6, 3, 1)),
]


@pytest.mark.first_minutes
@pytest.mark.parametrize("is_sigmoid", [False, True])
@pytest.mark.parametrize(("num_experts", "num_chosen", "groups"), [(5, 2, None), (130, 6, None), *IN_GROUPS], ids=repr)
def test_experts_are_chosen_by_corrected_probabilities_and_in_the_best_groups(
    num_experts: int, num_chosen: int, groups: ExpertGroups | None, is_sigmoid: bool, device: torch.device
) -> None:
    generator = torch.Generator().manual_seed(num_experts)
    scores = (torch.randn(9, num_experts, generator=generator) * 3).to(device)
    scores[7] = 0.0
    scores[8, ::2] = NAN
    correction = torch.rand(num_experts, generator=generator).to(device)
    for added in (None, correction):
        routing = Routing(
            num_chosen,
            True,
            is_sigmoid=is_sigmoid,
            correction=added,
            groups=groups,
            scale=2.5,
            expert_scales=None if added is None else correction + 0.5,
        )
        chosen, weights = choose_experts(scores, routing)
        expected, expected_weights = reference.choose_experts(scores, routing)
        assert torch.equal(chosen, expected)
        assert_near(weights[:8], expected_weights[:8])
        assert chosen.sort().values.diff().gt(0).all()
        assert ((chosen >= 0) & (chosen < num_experts)).all()


@pytest.mark.parametrize(("num_experts", "num_chosen"), [(16, 2), (5, 3)])
def test_weights_are_shares_of_the_experts_near_by(num_experts: int, num_chosen: int, device: torch.device) -> None:
    scores = torch.randn(9, num_experts, generator=torch.Generator().manual_seed(0)).to(device)
    scores[7], scores[8] = scores[7] - 9.0, 0.0  # all negative; all equal
    for nearness in (0.02, 0.5, 3.0):
        routing = Routing(num_chosen, sums_to_one=False, nearness=nearness)
        chosen, weights = choose_experts(scores, routing)
        expected, expected_weights = reference.choose_experts(scores, routing)
        assert torch.equal(chosen, expected)
        assert_near(weights, expected_weights)


def test_any_scores_choose_different_experts_that_there_are(device: torch.device) -> None:
    """Ties, infinities and NaN, such as rows of padding may have: an index outside would read foreign memory."""
    rows = [[0.0] * 5, [NAN] * 5, [float("-inf")] * 5, [1.0, NAN, float("inf"), 1.0, float("-inf")], [2.0, 1, 2, 1, 2]]
    scores, routing = torch.tensor(rows, device=device), Routing(4, sums_to_one=True)
    chosen, weights = choose_experts(scores, routing)
    expected, _ = reference.choose_experts(scores, routing)
    assert torch.equal(chosen, expected)
    assert chosen.sort().values.diff().gt(0).all()
    assert ((chosen >= 0) & (chosen < 5)).all()
    assert weights[1].isnan().all()
    assert_near(weights[4].cpu(), torch.tensor([[2.0, 2, 2, 1]]).softmax(1)[0])


@pytest.mark.first_minutes
@pytest.mark.parametrize("num_tokens", [1, 7, 130, 700])
def test_choices_are_ordered_by_expert(num_tokens: int, device: torch.device) -> None:
    """With more and with less than 1,024 and 4,096 choices, which are read at once."""
    for num_chosen in (1, 2, 7):
        chosen = choices(num_tokens, 7, num_chosen)[0].to(device)
        chosen[chosen == 4] = 3  # one without tokens
        for ours, expected in zip(order_by_expert(chosen, 7), reference.order_by_expert(chosen, 7), strict=True):
            assert torch.equal(ours, expected)


@pytest.mark.first_minutes(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("num_tokens", "num_experts", "num_chosen", "hidden", "size"),
    [
        (1, 4, 2, 64, 32),
        (5, 4, 2, 40, 24),  # no multiple of a tile in any direction
        (17, 8, 2, 64, 48),
        (3, 60, 4, 72, 80),  # most experts without tokens
        (40, 5, 5, 48, 24),  # every expert for every token; tiles of 64 rows
        (70, 3, 1, 32, 40),  # more rows of an expert than a tile holds
        (150, 2, 1, 80, 72),  # tiles of 128 rows
    ],
)
def test_the_sum_of_the_chosen_experts_is_that_of_the_reference(
    dtype: torch.dtype,
    num_tokens: int,
    num_experts: int,
    num_chosen: int,
    hidden: int,
    size: int,
    device: torch.device,
) -> None:
    gate_up, down = matrices(num_experts, hidden, size, dtype, device)
    chosen, weights = (part.to(device) for part in choices(num_tokens, num_experts, num_chosen))
    rows = torch.randn(num_tokens, hidden + 8, generator=torch.Generator().manual_seed(1))
    x = rows.to(dtype).to(device)[:, 8:]
    ours = grouped_experts(x, chosen, weights, gate_up, down)
    assert_near(ours, reference.grouped_experts(x, chosen, weights, gate_up, down), num_roundings=3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("gate", [None, ClampedGate(alpha=1.7, limit=0.6), TanhGelu()])
@pytest.mark.parametrize(("has_gate_up_bias", "has_down_bias"), [(False, False), (True, False), (True, True)])
def test_experts_may_have_biases_and_another_gate(
    dtype: torch.dtype,
    gate: ClampedGate | TanhGelu | None,
    has_gate_up_bias: bool,
    has_down_bias: bool,
    device: torch.device,
) -> None:
    """Sizes that are no multiple of a tile; a row of NaN is not clamped to a number."""
    gate_up, down = matrices(4, 40, 24, dtype, device)
    chosen, weights = (part.to(device) for part in choices(6, 4, 2))
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(6, 40, generator=generator).to(dtype).to(device)
    x[3] = NAN
    gate_up_bias, down_bias = (torch.randn(4, size, generator=generator).to(device) for size in (48, 40))
    options = ExpertOptions(gate_up_bias if has_gate_up_bias else None, down_bias if has_down_bias else None, gate)
    ours = grouped_experts(x, chosen, weights, gate_up, down, options)
    theirs = reference.grouped_experts(x, chosen, weights, gate_up, down, options)
    assert ours[3].isnan().all()
    assert theirs[3].isnan().all()
    is_number = torch.arange(6) != 3
    assert_near(ours[is_number], theirs[is_number], num_roundings=3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("num_tokens", [1, 16, 17, 90])
def test_all_tokens_may_choose_the_same_experts(dtype: torch.dtype, num_tokens: int, device: torch.device) -> None:
    """As many tiles as the grid can need for one expert; the others have none."""
    gate_up, down = matrices(6, 32, 24, dtype, device)
    chosen = torch.tensor([[5, 2]], dtype=torch.int32, device=device).repeat(num_tokens, 1)
    weights = torch.full((num_tokens, 2), 0.5, device=device)
    x = torch.randn(num_tokens, 32, generator=torch.Generator().manual_seed(1)).to(dtype).to(device)
    ours = grouped_experts(x, chosen, weights, gate_up, down)
    assert_near(ours, reference.grouped_experts(x, chosen, weights, gate_up, down), num_roundings=3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_token_s_bits_do_not_depend_on_what_others_choose(dtype: torch.dtype, device: torch.device) -> None:
    """Alone, and beside others that send it to other places of other tiles; rows of NaN are padding."""
    gate_up, down = matrices(6, 64, 40, dtype, device)
    x = torch.randn(20, 64, generator=torch.Generator().manual_seed(1)).to(dtype).to(device)
    chosen, weights = (part.to(device) for part in choices(20, 6, 2))
    assert _tiles_for(20, 6, 2, 40, dtype, is_gated=True) == _tiles_for(1, 6, 2, 40, dtype, is_gated=True)
    together = grouped_experts(x, chosen, weights, gate_up, down)
    for row in (0, 7, 19):
        mine = slice(row, row + 1)
        assert torch.equal(grouped_experts(x[mine], chosen[mine], weights[mine], gate_up, down)[0], together[row])
    others = choices(20, 6, 2, seed=3)[0].to(device)
    others[7] = chosen[7]
    company = torch.full_like(x, NAN)
    company[7] = x[7]
    again = grouped_experts(company, others, weights, gate_up, down)
    assert torch.equal(again[7], together[7])
    assert again[8].isnan().all()


class Counted:
    """A kernel whose launches are noted."""

    def __init__(self, name: str, kernel: Any, launches: list[str]) -> None:
        self.name, self.kernel, self.launches = name, kernel, launches

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return partial(self._start, grid)

    def _start(self, grid: tuple[int, ...], *arguments: Any, **named: Any) -> None:
        self.launches.append(self.name)
        with _disable_current_modes():
            self.kernel[grid](*arguments, **named)


class Calls(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func._schema.name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("num_tokens", [1, 40])
def test_a_layer_is_five_launches_and_no_other_operator(
    monkeypatch: pytest.MonkeyPatch, num_tokens: int, device: torch.device
) -> None:
    """Whatever the number of experts; beside them the layer has the product of its router."""
    launches: list[str] = []
    for module, name in ((choosing, "_choose"), (choosing, "_order"), (grouping, "_multiply"), (grouping, "_add")):
        monkeypatch.setattr(module, name, Counted(name, getattr(module, name), launches))
    mix = GpuOperators().grouped_experts(*matrices(30, 32, 24, torch.float32, device), Routing(3, sums_to_one=True))
    x, scores = torch.randn(num_tokens, 32, device=device), torch.randn(num_tokens, 30, device=device)
    with Calls() as calls:
        mix(x, scores)
    assert launches == ["_choose", "_order", "_multiply", "_multiply", "_add"]
    assert calls.names == {"aten::empty", "aten::empty_like"}


def test_the_grid_has_a_tile_for_every_row_of_any_choice() -> None:
    """Even choices and ones that most tokens share."""
    for num_experts, num_chosen in ((1, 1), (4, 2), (8, 3), (16, 16)):
        for num_tokens in (1, 2, 15, 16, 17, 33, 100):
            for seed in range(20):
                skew = torch.rand(1, num_experts, generator=torch.Generator().manual_seed(seed)) * (seed % 5)
                scores = torch.rand(num_tokens, num_experts, generator=torch.Generator().manual_seed(seed)) + skew
                counts = scores.topk(num_chosen).indices.flatten().bincount(minlength=num_experts)
                needed = int((-(-counts // 16)).sum())
                assert needed <= num_tiles(num_tokens, num_experts, num_chosen, 16)
    assert num_tiles(1, 128, 8, 16) == 8
    assert num_tiles(16, 128, 8, 16) == 128
    assert num_tiles(17, 2, 1, 16) == 2


@pytest.mark.parametrize(("num_experts", "num_chosen"), [(8, 2), (16, 2), (60, 4), (128, 8)])
def test_warming_up_compiles_every_size_of_tiles(num_experts: int, num_chosen: int) -> None:
    """No request waits for a compiler: steps of any number of tokens have tiles that a step of the warm-up has."""
    for max_running, num_tokens, max_model_len in ((256, 8192, 4096), (8, 2048, 32_768), (64, 512, 100)):
        warm = {plan.num_tokens for plan in warm_up_steps(num_tokens, max_running, max_model_len, "full")}
        for is_gated in (True, False):
            tiles = partial(_tiles_for, num_outputs=768, dtype=torch.bfloat16, is_gated=is_gated)
            needed = {tiles(count, num_experts, num_chosen) for count in range(1, num_tokens + 1)}
            assert needed <= {tiles(count, num_experts, num_chosen) for count in warm}
