"""The choice of experts: the most probable ones of each token, and the choices of all tokens in the order of experts.

Both stay on the device. Nothing is added atomically: the order of the choices, too, is the same in every run.
T = tokens, E = experts, C = experts chosen for each token.
"""

import torch
import triton
import triton.language as tl

from engine.kernels.gpu.compilation import Compilation, Expectation
from engine.kernels.operators import Routing

#: Choices read at once: those of most decode steps; those of prompts.
_FEW_CHOICES, _MANY_CHOICES = 1024, 4096


@triton.jit
def _choose(
    scores_ptr,
    chosen_ptr,
    weights_ptr,
    scores_stride,
    NUM_EXPERTS: tl.constexpr,
    NUM_CHOSEN: tl.constexpr,
    SUMS_TO_ONE: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """Grid (T). scores [T, E] -> chosen experts [T, C], the most probable first, and their weights [T, C]."""
    row = tl.program_id(0).to(tl.int64)
    experts = tl.arange(0, BLOCK_E)
    is_expert = experts < NUM_EXPERTS
    scores = tl.load(scores_ptr + row * scores_stride + experts, mask=is_expert, other=float("-inf")).to(tl.float32)
    exponentials = tl.exp(scores - tl.max(scores, 0))
    probabilities = exponentials / tl.sum(exponentials, 0)
    # Finite, NaN too: so that an expert that is not taken yet is before all that are, and C different ones are chosen.
    ranks = tl.where(scores > -3e38, scores, -3e38)
    ranks = tl.where(is_expert, ranks, float("-inf"))
    places = tl.arange(0, BLOCK_C)
    chosen = tl.zeros((BLOCK_C,), tl.int32)
    weights = tl.zeros((BLOCK_C,), tl.float32)
    for place in tl.static_range(NUM_CHOSEN):
        best = tl.argmax(ranks, 0)
        is_best = experts == best
        chosen = tl.where(places == place, best, chosen)
        weights = tl.where(places == place, tl.sum(tl.where(is_best, probabilities, 0.0), 0), weights)
        ranks = tl.where(is_best, float("-inf"), ranks)
    if SUMS_TO_ONE:
        weights /= tl.sum(weights, 0)
    is_place = places < NUM_CHOSEN
    tl.store(chosen_ptr + row * NUM_CHOSEN + places, chosen, mask=is_place)
    tl.store(weights_ptr + row * NUM_CHOSEN + places, weights, mask=is_place)


@triton.jit(do_not_specialize=["num_choices"])
def _order(chosen_ptr, order_ptr, starts_ptr, num_choices, BLOCK: tl.constexpr):
    """Grid (E). Each program finds the choices of its expert: how many there are of those before, then their places."""
    expert = tl.program_id(0)
    places = tl.arange(0, BLOCK)
    before = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, num_choices, BLOCK):
        is_choice = first + places < num_choices
        chosen = tl.load(chosen_ptr + first + places, mask=is_choice, other=expert)
        before += (chosen < expert).to(tl.int32)
    start = tl.sum(before, 0)
    tl.store(starts_ptr + expert, start)
    for first in range(0, num_choices, BLOCK):
        is_choice = first + places < num_choices
        chosen = tl.load(chosen_ptr + first + places, mask=is_choice, other=-1)
        is_mine = (chosen == expert).to(tl.int32)
        tl.store(order_ptr + start + tl.cumsum(is_mine, 0) - 1, first + places, mask=is_mine != 0)
        start += tl.sum(is_mine, 0)


def choose_experts(scores: torch.Tensor, routing: Routing) -> tuple[torch.Tensor, torch.Tensor]:
    """scores [T, E], strided rows -> chosen [T, C] int32 and weights [T, C] float32, newly allocated.

    Of equal scores the first expert is chosen. A row with NaN has weights of NaN, and C different experts.
    """
    num_tokens, num_experts = scores.shape
    scores_stride, stride = scores.stride()
    assert stride == 1
    assert 0 < routing.num_chosen <= num_experts
    chosen = torch.empty((num_tokens, routing.num_chosen), dtype=torch.int32, device=scores.device)
    weights = torch.empty_like(chosen, dtype=torch.float32)
    if num_tokens:
        block = triton.next_power_of_2(num_experts)
        _choose[(num_tokens,)](
            scores,
            chosen,
            weights,
            scores_stride,
            NUM_EXPERTS=num_experts,
            NUM_CHOSEN=routing.num_chosen,
            SUMS_TO_ONE=routing.sums_to_one,
            BLOCK_E=block,
            BLOCK_C=triton.next_power_of_2(routing.num_chosen),
            num_warps=_num_warps(block),
        )
    return chosen, weights


def order_by_expert(chosen: torch.Tensor, num_experts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """chosen [T, C] int32, in [0, E) -> order [T * C] int32 and starts [E] int32, newly allocated.

    order holds the indices of the flattened choices, by expert and then ascending; those of an expert begin at its
    start.
    """
    assert chosen.dtype == torch.int32
    assert chosen.is_contiguous()
    num_choices = chosen.numel()
    order = torch.empty((num_choices,), dtype=torch.int32, device=chosen.device)
    starts = torch.empty((num_experts,), dtype=torch.int32, device=chosen.device)
    block, num_warps = (_FEW_CHOICES, 4) if num_choices <= _FEW_CHOICES else (_MANY_CHOICES, 8)
    _order[(num_experts,)](chosen, order, starts, num_choices, BLOCK=block, num_warps=num_warps)
    return order, starts


def _num_warps(block: int) -> int:
    """Four scores a thread, and one warp for up to 128 experts: the choices follow one another, and between threads of
    a warp they need no barrier."""
    return min(max(block // 128, 1), 8)


def shipped() -> list[Compilation]:
    """Configurations for Mixtral-8x7B, gpt-oss-20b and Qwen3-30B-A3B, and for decodes and prompts."""
    pointers = {"scores_ptr": "*bf16", "chosen_ptr": "*i32", "weights_ptr": "*fp32"}
    choose = [
        Compilation(
            name=f"choose_experts, bf16, {num_chosen} of {num_experts}",
            kernel=_choose,
            signature=pointers | {"scores_stride": "i32"},
            constants={
                "NUM_EXPERTS": num_experts,
                "NUM_CHOSEN": num_chosen,
                "SUMS_TO_ONE": True,
                "BLOCK_E": num_experts,
                "BLOCK_C": num_chosen,
            },
            divisible_by_16=frozenset(pointers) | strides,
            num_warps=_num_warps(num_experts),
            num_stages=3,
            # A row is a few hundred bytes: 16 to 64 bits a thread.
            expectation=Expectation(max_registers=64, has_wide_loads=False),
        )
        for num_experts, num_chosen, strides in (
            (8, 2, frozenset[str]()),
            (32, 4, frozenset({"scores_stride"})),
            (128, 8, frozenset({"scores_stride"})),
        )
    ]
    order = [
        Compilation(
            name=f"order_by_expert, {block:,} choices at once",
            kernel=_order,
            signature={"chosen_ptr": "*i32", "order_ptr": "*i32", "starts_ptr": "*i32", "num_choices": "i32"},
            constants={"BLOCK": block},
            divisible_by_16=frozenset({"chosen_ptr", "order_ptr", "starts_ptr"}),
            num_warps=num_warps,
            num_stages=3,
            # The number of choices need not be a multiple of four, so neither pass loads more than one at once.
            expectation=Expectation(max_registers=128, has_wide_loads=False),
        )
        for block, num_warps in ((_FEW_CHOICES, 4), (_MANY_CHOICES, 8))
    ]
    return choose + order
