"""From logits to tokens, for all rows of a step at once. R = rows, V = vocabulary.

A row's token depends on its logits, its parameters, its seed and its output index only. Greedy rows cost one argmax. No
row is sorted as a whole unless its distribution is flat.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engine.batch import NO_TOKEN, SampledToken, TokenMasks
from engine.kernels.operators import DrawFunction, Draws, ForbidFunction
from engine.kernels.torch_operators import likeliest_tokens
from engine.sampling.allowed_tokens import allowed_tokens, forbid_others
from engine.sampling.beam_candidates import beam_candidates, read_report, stop_ids_of
from engine.sampling.filters import truncate
from engine.sampling.masks import forbid_tokens
from engine.sampling.penalties import penalise, penalties_of
from engine.sampling.philox import uniform
from engine.sampling.rows import SamplingRow
from engine.sampling.typical import draw_settings, is_typical, truncate_typical, typical_columns

__all__ = ["SamplingRow", "sample"]


def sample(
    logits: torch.Tensor,
    rows: Sequence[SamplingRow],
    eos_token_ids: frozenset[int],
    argmax: Callable[[torch.Tensor], torch.Tensor],
    draw: DrawFunction | None = None,
    forbid: ForbidFunction | None = None,
    masks: TokenMasks | None = None,
) -> list[SampledToken]:
    """One token for each row of logits [R, V], of any floating dtype; masks may change them. argmax, draw, forbid: the
    operators' functions; None: plain torch, which agrees with other implementations except for the rounding of sums.
    masks: what some rows may sample; applied before everything else, with rows as draws.

    NO_TOKEN for a row of which nothing can be sampled: its largest logit, after all changes, is NaN or infinite, or a
    log probability that it asks for is NaN. Minus infinity forbids a token."""
    scores = logits
    if masks is not None and len(masks.draws):
        if any([row.params.num_top_logprobs is not None for row in rows]):  # log probabilities are the model's own
            scores = logits.clone()
        (forbid or forbid_tokens)(scores, masks)
    token_ids = argmax(scores)
    sampled = [row.params.beam is None for row in rows]
    changed = [i for i, row in enumerate(rows) if sampled[i] and row.params.changes_logits_at(row.output_index)]
    if changed:
        # For the other rows, sampling in float32 gives the same tokens.
        scores = scores.to(torch.float32, copy=scores is logits)
        index = torch.tensor(changed, device=logits.device)
        values = scores[index]
        _change(values, [rows[i] for i in changed], eos_token_ids)
        scores[index] = values
        token_ids[index] = likeliest_tokens(values)
    random_rows = [i for i, row in enumerate(rows) if not row.params.is_greedy]
    if random_rows:
        is_finite = (token_ids >= 0).tolist()
        random_rows = [i for i in random_rows if is_finite[i]]
    if random_rows:
        index = torch.tensor(random_rows, device=logits.device)
        wanted = _draws(random_rows, [rows[i] for i in random_rows])
        token_ids[index] = draw(scores, wanted) if draw else _draw(scores[index].to(torch.float32), wanted)
    tokens = _with_logprobs(logits, token_ids, rows)
    if not all(sampled):
        _report_beams(tokens, logits, rows, eos_token_ids)
    return tokens


def _change(scores: torch.Tensor, rows: Sequence[SamplingRow], eos_token_ids: frozenset[int]) -> None:
    """Biases, penalties, forbidden tokens and typical-p on scores [R, V] float32, in place."""
    device = scores.device
    penalised = penalties_of(rows, eos_token_ids, scores.shape[1], device)
    if penalised is not None:
        penalise(scores, *penalised)
    params = [row.params for row in rows]
    allowed = allowed_tokens(params, scores.shape[1])
    if allowed is not None:
        forbid_others(scores, *(torch.from_numpy(array).to(device) for array in allowed))
    typical = [i for i, each in enumerate(params) if is_typical(each)]
    if typical:
        index = torch.tensor(typical, device=device)
        columns = typical_columns([params[i] for i in typical])
        scores[index] = truncate_typical(scores[index], *(torch.tensor(column, device=device) for column in columns))


def _report_beams(
    tokens: list[SampledToken], logits: torch.Tensor, rows: Sequence[SamplingRow], eos_token_ids: frozenset[int]
) -> None:
    """Replace the tokens of beams by what they may go on with. Biases and penalties change log probabilities, which are
    not normalised again, as in transformers."""
    beams = [i for i, row in enumerate(rows) if row.params.beam is not None]
    device, vocab_size = logits.device, logits.shape[1]
    logprobs = logits[torch.tensor(beams, device=device)].to(torch.float32).log_softmax(dim=-1)
    _change(logprobs, [rows[i] for i in beams], eos_token_ids)
    stop_ids = stop_ids_of([rows[i].params.stop_ids(eos_token_ids) for i in beams], vocab_size)
    candidates = beam_candidates(logprobs, torch.tensor(stop_ids, device=device))
    for i, *report in zip(beams, *(tensor.tolist() for tensor in candidates), strict=True):
        tokens[i] = read_report(*report)


def _draws(places: Sequence[int], rows: Sequence[SamplingRow]) -> Draws:
    """places: indices of the rows in the step's logits."""
    settings = [draw_settings(row.params) for row in rows]
    temperatures, top_k, top_p, min_p = zip(*settings, strict=True)
    seeds = np.array([row.seed for row in rows], dtype=np.uint64)
    counters = np.array([row.output_index for row in rows], dtype=np.uint64)
    return Draws(
        np.array(places, dtype=np.int64),
        np.array(temperatures, dtype=np.float32),
        np.array(top_k, dtype=np.int64),
        np.array(top_p, dtype=np.float32),
        np.array(min_p, dtype=np.float32),
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
    asked = [i for i, row in enumerate(rows) if row.params.beam is None and row.params.num_top_logprobs is not None]
    if not asked:
        return tokens
    index = torch.tensor(asked, device=logits.device)
    logprobs = logits[index].to(torch.float32).log_softmax(dim=-1)
    chosen = logprobs.gather(1, token_ids[index, None].clamp(min=0)).squeeze(1).tolist()
    counts = [rows[i].params.num_top_logprobs or 0 for i in asked]
    top = logprobs.topk(min(max(counts), logits.shape[1]))
    top_ids, top_values = top.indices.tolist(), top.values.tolist()
    for i, logprob, count, ids, values in zip(asked, chosen, counts, top_ids, top_values, strict=True):
        best = tuple(zip(ids[:count], values[:count], strict=True))
        tokens[i] = SampledToken(tokens[i].token_id if logprob == logprob else NO_TOKEN, logprob, best)
    return tokens
