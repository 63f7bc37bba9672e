"""From logits to tokens, for all rows of a step at once. R = rows, V = vocabulary.

A row's token depends on its logits, its parameters, its seed and its output index only. Greedy rows cost one argmax. No
row is sorted as a whole unless its distribution is flat.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engine.batch import SampledToken, TokenMasks
from engine.kernels.operators import DrawFunction, Draws
from engine.sampling.filters import truncate
from engine.sampling.masks import forbid
from engine.sampling.penalties import penalise, penalties_of
from engine.sampling.philox import uniform
from engine.sampling.rows import SamplingRow

__all__ = ["SamplingRow", "sample"]


def sample(
    logits: torch.Tensor,
    rows: Sequence[SamplingRow],
    eos_token_ids: frozenset[int],
    argmax: Callable[[torch.Tensor], torch.Tensor],
    draw: DrawFunction | None = None,
    masks: TokenMasks | None = None,
) -> list[SampledToken]:
    """One token for each row of logits [R, V], of any floating dtype. argmax, draw: the operators' functions; None:
    draw in plain torch, which agrees with other implementations except for the rounding of sums. masks: what some rows
    may sample; applied before everything else, with rows as draws."""
    scores = logits
    if masks is not None and len(masks.draws):
        scores = logits.clone()
        forbid(scores, masks)
    token_ids = argmax(scores)
    penalised = penalties_of(rows, eos_token_ids, logits.shape[1], logits.device)
    if penalised is not None:
        index, penalties = penalised
        # For the other rows, sampling in float32 gives the same tokens.
        scores = scores.to(torch.float32, copy=scores is logits)
        penalise(scores, index, penalties)
        token_ids[index] = scores[index].argmax(dim=-1)
    random_rows = [i for i, row in enumerate(rows) if not row.params.is_greedy]
    if random_rows:
        index = torch.tensor(random_rows, device=logits.device)
        wanted = _draws(random_rows, [rows[i] for i in random_rows])
        token_ids[index] = draw(scores, wanted) if draw else _draw(scores[index].to(torch.float32), wanted)
    return _with_logprobs(logits, token_ids, rows)


def _draws(places: Sequence[int], rows: Sequence[SamplingRow]) -> Draws:
    """places: indices of the rows in the step's logits."""
    params = [row.params for row in rows]
    seeds = np.array([row.seed for row in rows], dtype=np.uint64)
    counters = np.array([row.output_index for row in rows], dtype=np.uint64)
    return Draws(
        np.array(places, dtype=np.int64),
        np.array([p.temperature for p in params], dtype=np.float32),
        np.array([p.top_k for p in params], dtype=np.int64),
        np.array([p.top_p for p in params], dtype=np.float32),
        np.array([p.min_p for p in params], dtype=np.float32),
        uniform(seeds, counters),
    )


def _draw(scores: torch.Tensor, wanted: Draws) -> torch.Tensor:
    """Inverse of the cumulative distribution at one uniform number per row; sums in float64."""

    def column(values: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(values).to(scores.device)

    # The maximum is subtracted first, so that a tiny temperature gives minus infinity and not NaN.
    scores = scores - scores.amax(dim=-1, keepdim=True)
    scores = scores / column(wanted.temperatures)[:, None]
    if wanted.top_k.any() or (wanted.top_p < 1.0).any() or wanted.min_p.any():
        scores = truncate(scores, column(wanted.top_k), column(wanted.top_p), column(wanted.min_p))
    cumulative = scores.softmax(dim=-1).cumsum(dim=-1, dtype=torch.float64)
    # The first token whose cumulative mass exceeds the number, which is below 1: never a token without mass.
    targets = column(wanted.numbers)[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, targets, right=True).squeeze(1).clamp_(max=scores.shape[1] - 1)


def _with_logprobs(logits: torch.Tensor, token_ids: torch.Tensor, rows: Sequence[SamplingRow]) -> list[SampledToken]:
    """Log probabilities are those of the model itself, before penalties, temperature and truncation."""
    tokens = [SampledToken(token_id) for token_id in token_ids.tolist()]
    asked = [i for i, row in enumerate(rows) if row.params.logprobs is not None]
    if not asked:
        return tokens
    index = torch.tensor(asked, device=logits.device)
    logprobs = logits[index].to(torch.float32).log_softmax(dim=-1)
    chosen = logprobs.gather(1, token_ids[index, None]).squeeze(1).tolist()
    counts = [rows[i].params.logprobs or 0 for i in asked]
    top = logprobs.topk(min(max(counts), logits.shape[1]))
    top_ids, top_values = top.indices.tolist(), top.values.tolist()
    for i, logprob, count, ids, values in zip(asked, chosen, counts, top_ids, top_values, strict=True):
        best = tuple(zip(ids[:count], values[:count], strict=True))
        tokens[i] = SampledToken(tokens[i].token_id, logprob, best)
    return tokens
