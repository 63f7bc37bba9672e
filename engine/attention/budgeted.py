"""Which tokens a layer with a budget keeps of a sequence, and in which slots: PyramidKV (arXiv 2406.02069), by torch.

Slot s lies in page s // page_tokens of the sequence's table. Up to the budget, token t has slot t. Of a longer prompt,
which one step computes, each key/value head keeps the observed tokens at its end, and those earlier tokens that they
attend to most: probabilities summed over the observed tokens and the query heads of the key head, then the largest
among neighbours, so that a token is kept with those around it. Of equal scores the earlier token is kept.

The first quarter of the slots is never overwritten: it holds the best tokens of a long prompt, or the first tokens of a
short one. The other slots are a ring: the other chosen tokens in order of their scores, the lowest first, then the
observed ones. Every later token takes the ring's next slot: so the least scored tokens go first, then the oldest. A
slot depends on position, prompt length and budget alone, hence nothing but pages is kept for a sequence, and copies,
swaps and forks of pages need no more. Keys keep the rotation of their own positions.

T = tokens of the step, P = tokens of a prompt, S = budget, H, K = query and key/value heads, D = head dimension.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F

from engine.attention.backend import AttentionShape, IntArray, StepLayout
from engine.attention.layout import TypeLayout
from engine.attention.stored_pages import StoredPages
from engine.memory.spec import OBSERVED_TOKENS

#: A token's score is the largest within that many tokens around it.
_POOLED_TOKENS = 7


@dataclass(frozen=True, slots=True)
class LongPrompt:
    """A prompt longer than the budget."""

    first_row: int  #: among the step's tokens
    num_tokens: int
    places: torch.Tensor  #: of its slots


@dataclass(frozen=True, slots=True)
class KeptTokens:
    """What the layers of one type store in a step."""

    budget: int
    rows: torch.Tensor | None  #: rows of the step's tokens that are stored as they are; None: all
    places: torch.Tensor  #: for those rows
    long_prompts: tuple[LongPrompt, ...]


def num_anchors(budget: int) -> int:
    """Leading slots that are never overwritten."""
    return budget // 4


def slots_of(positions: IntArray, prompt_lengths: IntArray, budget: int) -> IntArray:
    """The slot of each token, for all but the tokens of prompts longer than the budget."""
    anchors = num_anchors(budget)
    overflow = positions - np.maximum(prompt_lengths, budget)
    return np.where(positions < budget, positions, anchors + overflow % (budget - anchors))


def slots_read(layout: StepLayout, budget: int) -> StepLayout:
    """The step as if slots were positions: a single token reads all slots that are filled. Long prompts read their own
    activations and no slots."""
    return replace(layout, starts=np.where(layout.lengths == 1, np.minimum(layout.starts, budget - 1), layout.starts))


def keep_tokens(
    layout: StepLayout, table: IntArray, type_layout: TypeLayout, budget: int, stored: StoredPages
) -> KeptTokens:
    """Slots of the step's tokens. table [B, pages]: of this type."""
    assert layout.prompt_lengths is not None
    page_tokens = type_layout.layer_type.page_tokens
    is_long = (layout.lengths > 1) & (layout.starts + layout.lengths > budget)
    assert not layout.starts[is_long].any(), "a prompt longer than the budget is computed in one step"
    is_kept = np.repeat(~is_long, layout.lengths)
    sequences = np.repeat(np.arange(len(layout.lengths)), layout.lengths)[is_kept]
    slots = slots_of(layout.positions[is_kept], layout.prompt_lengths[sequences], budget)
    first_rows = np.cumsum(layout.lengths) - layout.lengths
    all_slots = np.arange(budget)
    long_prompts = [
        LongPrompt(
            int(first_rows[sequence]),
            int(layout.lengths[sequence]),
            stored.store_places(table[sequence, all_slots // page_tokens], all_slots % page_tokens),
        )
        for sequence in np.flatnonzero(is_long)
    ]
    return KeptTokens(
        budget,
        torch.from_numpy(np.flatnonzero(is_kept)) if long_prompts else None,
        stored.store_places(table[sequences, slots // page_tokens], slots % page_tokens),
        tuple(long_prompts),
    )


def store_kept(
    kept: KeptTokens,
    stored: StoredPages,
    layer_id: int,
    query: torch.Tensor,
    key_value: torch.Tensor,
    shape: AttentionShape,
) -> None:
    """Store what the layer keeps of the step's tokens. query [T, H, D] and key_value [T, 2, K, D], rotated."""
    if kept.rows is None:
        stored.store(layer_id, key_value, kept.places)
    elif len(kept.rows):
        stored.store(layer_id, key_value.index_select(0, kept.rows), kept.places)
    for prompt in kept.long_prompts:
        rows = slice(prompt.first_row, prompt.first_row + prompt.num_tokens)
        tokens = chosen_tokens(query[rows], key_value[rows, 0], kept.budget, shape.scale)
        index = tokens.t()[:, None, :, None].expand(-1, shape.num_parts, -1, shape.head_dim)
        stored.store(layer_id, key_value[rows].gather(0, index), prompt.places)


def chosen_tokens(query: torch.Tensor, keys: torch.Tensor, budget: int, scale: float) -> torch.Tensor:
    """query [P, H, D], keys [P, K, D] of a prompt of more than `budget` tokens -> [K, S]: the token of every slot."""
    num_tokens, num_kv_heads, head_dim = keys.shape
    num_earlier = num_tokens - OBSERVED_TOKENS
    observed = query[num_earlier:].float().view(OBSERVED_TOKENS, num_kv_heads, -1, head_dim).permute(1, 2, 0, 3)
    scores = observed.flatten(1, 2) @ keys.float().permute(1, 2, 0) * scale
    scores = scores.view(num_kv_heads, -1, OBSERVED_TOKENS, num_tokens)
    later = torch.ones(OBSERVED_TOKENS, num_tokens, dtype=torch.bool, device=keys.device).triu(num_earlier + 1)
    weights = scores.masked_fill_(later, float("-inf")).softmax(dim=-1)
    attention = weights[..., :num_earlier].sum(dim=(1, 2))
    pooled = F.max_pool1d(attention, _POOLED_TOKENS, stride=1, padding=_POOLED_TOKENS // 2)
    best = pooled.sort(dim=-1, descending=True, stable=True).indices[:, : budget - OBSERVED_TOKENS]
    anchors = num_anchors(budget)
    last = torch.arange(num_earlier, num_tokens, device=keys.device).expand(num_kv_heads, -1)
    return torch.cat((best[:, :anchors], best[:, anchors:].flip(-1), last), dim=-1)
