"""The tokens with which beams may go on: the likeliest ones of the whole vocabulary, and those that do not end the
output. Together they hold every continuation that a search can choose (engine/scheduling/beam_search.py).

The same numbers of tokens for every row, so that a row's do not depend on the other rows. R = rows, V = vocabulary.
"""

import math
from collections.abc import Sequence

import torch

from engine.batch import NO_TOKEN, SampledToken
from engine.sampling_params import MAX_LOGPROBS, MAX_SAMPLES

#: Enough for the widest search, and for the log probabilities that a request may ask for.
NUM_LIKELIEST = max(MAX_LOGPROBS, MAX_SAMPLES)
NUM_CANDIDATES = NUM_LIKELIEST + MAX_SAMPLES


def beam_candidates(logprobs: torch.Tensor, stop_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids [R, C] int64 and log probabilities [R, C] float32 of the NUM_LIKELIEST likeliest tokens, then of the
    MAX_SAMPLES likeliest that are no stop ids; fewer where the vocabulary is smaller.

    logprobs [R, V] float32, after biases and penalties; overwritten. stop_ids [R, N] int64; -1: padding. Waits for no
    device.
    """
    vocab_size = logprobs.shape[1]
    likeliest = logprobs.topk(min(NUM_LIKELIEST, vocab_size))
    is_padding = stop_ids < 0
    places = stop_ids.clamp(min=0)
    ends = logprobs.gather(1, places).masked_fill(~is_padding, float("-inf"))
    # Several entries may name one token: the smallest value stays, that of a stop id.
    logprobs.scatter_reduce_(1, places, ends, "amin")
    going_on = logprobs.topk(min(MAX_SAMPLES, vocab_size))
    return torch.cat((likeliest.indices, going_on.indices), 1), torch.cat((likeliest.values, going_on.values), 1)


def read_report(token_ids: Sequence[int], logprobs: Sequence[float]) -> SampledToken:
    """A row of `beam_candidates` as the step's output: each token once, the likeliest first; NO_TOKEN where it is not
    finite."""
    if not math.isfinite(logprobs[0]):
        return SampledToken(NO_TOKEN)
    first = min(NUM_LIKELIEST, len(token_ids))
    known = set(token_ids[:first])
    pairs = list(zip(token_ids, logprobs, strict=True))
    report = pairs[:first] + [pair for pair in pairs[first:] if pair[0] not in known]
    return SampledToken(token_ids[0], None, tuple(report))


def stop_ids_of(params: Sequence[frozenset[int]], vocab_size: int) -> list[list[int]]:
    """Rows of equal length for `beam_candidates`: the stop ids of each, padded with -1."""
    rows = [[token_id for token_id in sorted(ids) if token_id < vocab_size] for ids in params]
    widest = max(1, *map(len, rows))
    return [row + [-1] * (widest - len(row)) for row in rows]
