"""The choice of experts: the most probable ones of each token, and the choices of all tokens in the order of experts.

Both stay on the device. Nothing is added atomically: the order of the choices, too, is the same in every run.
T = tokens, E = experts, C = experts chosen for each token.
"""

import torch
import triton
import triton.language as tl

from engine.kernels.gpu.dependent_launch import launch_options, wait_for_previous
from engine.kernels.operators import ExpertGroups, Routing

#: Choices read at once: those of most decode steps; those of prompts.
_FEW_CHOICES, _MANY_CHOICES = 1024, 4096


@triton.jit
def _in_best_groups(ranks, NUM_CHOSEN: tl.constexpr, NUM_SUMMED: tl.constexpr):
    """ranks [groups, experts of a group], minus infinity where there is no expert; so are, then, those of other groups
    than the best."""
    sums = tl.max(ranks, 1)
    if NUM_SUMMED == 2:
        places = tl.arange(0, ranks.shape[1])
        is_first = places[None, :] == tl.argmax(ranks, 1)[:, None]
        sums += tl.max(tl.where(is_first, float("-inf"), ranks), 1)
    groups = tl.arange(0, ranks.shape[0])
    is_best = tl.zeros((ranks.shape[0],), tl.int32)
    for _ in tl.static_range(NUM_CHOSEN):
        is_next = groups == tl.argmax(sums, 0)
        is_best = tl.where(is_next, 1, is_best)
        sums = tl.where(is_next, float("-inf"), sums)
    return tl.where((is_best != 0)[:, None], ranks, float("-inf"))


@triton.jit
def _choose(
    scores_ptr,
    correction_ptr,
    expert_scales_ptr,
    chosen_ptr,
    weights_ptr,
    scores_stride,
    scale,
    NUM_EXPERTS: tl.constexpr,
    NUM_CHOSEN: tl.constexpr,
    IS_SIGMOID: tl.constexpr,
    SUMS_TO_ONE: tl.constexpr,
    NUM_GROUPS: tl.constexpr,
    NUM_CHOSEN_GROUPS: tl.constexpr,
    NUM_SUMMED: tl.constexpr,
    NEARNESS: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_C: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (T). scores [T, E] -> chosen experts [T, C], the most probable first, and their weights [T, C].

    A block holds BLOCK_G groups of BLOCK_E experts, so that each group begins at a multiple of BLOCK_E.
    """
    wait_for_previous(WAITS)
    row = tl.program_id(0).to(tl.int64)
    GROUP_SIZE: tl.constexpr = NUM_EXPERTS // NUM_GROUPS
    places = tl.arange(0, BLOCK_G * BLOCK_E)
    experts = places
    is_expert = places < NUM_EXPERTS
    if NUM_GROUPS > 1:
        experts = places // BLOCK_E * GROUP_SIZE + places % BLOCK_E
        is_expert = (places // BLOCK_E < NUM_GROUPS) & (places % BLOCK_E < GROUP_SIZE)
    scores = tl.load(scores_ptr + row * scores_stride + experts, mask=is_expert, other=float("-inf")).to(tl.float32)
    if IS_SIGMOID:
        probabilities = 1.0 / (1.0 + tl.exp(-scores))
    else:
        exponentials = tl.exp(scores - tl.max(scores, 0))
        probabilities = exponentials / tl.sum(exponentials, 0)
    ranks = scores  # equal probabilities may have different scores
    if correction_ptr is not None:
        ranks = probabilities + tl.load(correction_ptr + experts, mask=is_expert, other=0.0)
    elif NUM_GROUPS > 1:
        ranks = probabilities
    # Finite, NaN too: so that an expert that is not taken yet is before all that are, and C different ones are chosen.
    ranks = tl.where(ranks > -1e38, ranks, -1e38)
    ranks = tl.where(is_expert, ranks, float("-inf"))
    if NUM_GROUPS > 1:
        by_group = _in_best_groups(tl.reshape(ranks, (BLOCK_G, BLOCK_E)), NUM_CHOSEN_GROUPS, NUM_SUMMED)
        ranks = tl.reshape(by_group, (BLOCK_G * BLOCK_E,))
    choices = tl.arange(0, BLOCK_C)
    chosen = tl.zeros((BLOCK_C,), tl.int32)
    weights = tl.zeros((BLOCK_C,), tl.float32)
    for choice in tl.static_range(NUM_CHOSEN):
        best = tl.argmax(ranks, 0)
        is_best = places == best
        expert = best
        if NUM_GROUPS > 1:
            expert = best // BLOCK_E * GROUP_SIZE + best % BLOCK_E
        chosen = tl.where(choices == choice, expert, chosen)
        if NEARNESS is None:
            weight = tl.sum(tl.where(is_best, probabilities, 0.0), 0)
        else:
            best_score = tl.sum(tl.where(is_best, scores, 0.0), 0)
            is_far = (best_score - scores) / tl.maximum(tl.abs(scores), best_score) > NEARNESS
            is_near = is_expert & (ranks > float("-inf")) & (is_far == 0)
            weight = 1.0 / tl.sum(tl.where(is_near, tl.exp(scores - best_score), 0.0), 0)
        weights = tl.where(choices == choice, weight, weights)
        ranks = tl.where(is_best, float("-inf"), ranks)
    if SUMS_TO_ONE:
        weights /= tl.sum(weights, 0) + 1e-20  # sigmoids of very low scores are all zero
    is_choice = choices < NUM_CHOSEN
    if expert_scales_ptr is not None:
        weights *= tl.load(expert_scales_ptr + chosen)
    tl.store(chosen_ptr + row * NUM_CHOSEN + choices, chosen, mask=is_choice)
    tl.store(weights_ptr + row * NUM_CHOSEN + choices, weights * scale, mask=is_choice)


@triton.jit(do_not_specialize=["num_choices"])
def _order(chosen_ptr, order_ptr, starts_ptr, num_choices, BLOCK: tl.constexpr, WAITS: tl.constexpr):
    """Grid (E). Each program finds the choices of its expert: how many there are of those before, then their places."""
    wait_for_previous(WAITS)
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

    Of equal ranks the first expert is chosen. C different experts are chosen for a row with NaN, too; a softmax makes
    its weights NaN.
    """
    num_tokens, num_experts = scores.shape
    scores_stride, stride = scores.stride()
    groups = routing.groups or ExpertGroups(1, 1, 1)
    group_size = num_experts // groups.count
    assert stride == 1
    assert group_size * groups.count == num_experts
    assert 0 < routing.num_chosen <= groups.num_chosen * group_size
    assert 0 < groups.num_chosen <= groups.count
    assert groups.num_summed in (1, 2)
    for factors in (routing.correction, routing.expert_scales):
        assert factors is None or factors.dtype == torch.float32
    chosen = torch.empty((num_tokens, routing.num_chosen), dtype=torch.int32, device=scores.device)
    weights = torch.empty_like(chosen, dtype=torch.float32)
    if num_tokens:
        block_g, block_e = triton.next_power_of_2(groups.count), triton.next_power_of_2(group_size)
        _choose[(num_tokens,)](
            scores,
            routing.correction,
            routing.expert_scales,
            chosen,
            weights,
            scores_stride,
            routing.scale,
            NUM_EXPERTS=num_experts,
            NUM_CHOSEN=routing.num_chosen,
            IS_SIGMOID=routing.is_sigmoid,
            SUMS_TO_ONE=routing.sums_to_one,
            NUM_GROUPS=groups.count,
            NUM_CHOSEN_GROUPS=groups.num_chosen,
            NUM_SUMMED=groups.num_summed,
            NEARNESS=routing.nearness,
            BLOCK_G=block_g,
            BLOCK_E=block_e,
            BLOCK_C=triton.next_power_of_2(routing.num_chosen),
            **launch_options(scores.device),
            num_warps=_num_warps(block_g * block_e),
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
    options = launch_options(chosen.device)
    block, num_warps = (_FEW_CHOICES, 4) if num_choices <= _FEW_CHOICES else (_MANY_CHOICES, 8)
    _order[(num_experts,)](chosen, order, starts, num_choices, BLOCK=block, **options, num_warps=num_warps)
    return order, starts


def _num_warps(block: int) -> int:
    """Four scores a thread, and one warp for up to 128 experts: the choices follow one another, and between threads of
    a warp they need no barrier."""
    return min(max(block // 128, 1), 8)
