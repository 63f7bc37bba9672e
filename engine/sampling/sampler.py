"""From logits to tokens, for all rows of a step at once. R = rows, V = vocabulary.

A row's token depends on its logits, its parameters, its seed and its output index only. Greedy rows cost one argmax;
no row is sorted as a whole unless its distribution is flat.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from engine.batch import SampledToken
from engine.sampling.filters import truncate
from engine.sampling.penalties import penalise, penalties_of
from engine.sampling.philox import uniform
from engine.sampling.rows import SamplingRow

__all__ = ["SamplingRow", "sample"]


def sample(
    logits: torch.Tensor,
    rows: Sequence[SamplingRow],
    eos_token_ids: frozenset[int],
    argmax: Callable[[torch.Tensor], torch.Tensor],
) -> list[SampledToken]:
    """logits [R, V] of any floating dtype; one token for each row. argmax: the fastest there is for these logits."""
    token_ids = argmax(logits)
    scores = logits
    penalised = penalties_of(rows, eos_token_ids, logits.shape[1], logits.device)
    if penalised is not None:
        index, penalties = penalised
        # The other rows' logits are the same in float32, and so are their tokens.
        scores = logits.to(torch.float32, copy=True)
        penalise(scores, index, penalties)
        token_ids[index] = scores[index].argmax(dim=-1)
    random_rows = [i for i, row in enumerate(rows) if not row.params.is_greedy]
    if random_rows:
        index = torch.tensor(random_rows, device=logits.device)
        token_ids[index] = _draw(scores[index].to(torch.float32), [rows[i] for i in random_rows])
    return _with_logprobs(logits, token_ids, rows)


def _draw(scores: torch.Tensor, rows: Sequence[SamplingRow]) -> torch.Tensor:
    """Inverse of the cumulative distribution at one uniform number for each row; sums in float64."""

    def column(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32, device=scores.device)

    params = [row.params for row in rows]
    # The maximum first, so that a tiny temperature gives minus infinity and not a NaN.
    scores = scores - scores.amax(dim=-1, keepdim=True)
    scores = scores / column([p.temperature for p in params])[:, None]
    if any(p.top_k or p.top_p < 1.0 or p.min_p for p in params):
        top_k = torch.tensor([p.top_k for p in params], device=scores.device)
        scores = truncate(scores, top_k, column([p.top_p for p in params]), column([p.min_p for p in params]))
    cumulative = scores.softmax(dim=-1).cumsum(dim=-1, dtype=torch.float64)
    seeds = np.array([row.seed for row in rows], dtype=np.uint64)
    counters = np.array([row.output_index for row in rows], dtype=np.uint64)
    numbers = torch.from_numpy(uniform(seeds, counters)).to(scores.device)
    # The first token whose cumulative mass exceeds the number, which is below 1: never a token without mass.
    targets = numbers[:, None] * cumulative[:, -1:]
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
