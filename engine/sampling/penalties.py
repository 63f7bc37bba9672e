"""Penalties, biases, bad words and min_tokens on logits before sampling, for EagerRunner: the host lists the tokens
that rows have seen. In DeviceRunner the device counts them (engine/runner/device/changed_logits.py).

The repetition penalty counts prompt and output, presence and frequency penalties count the output (as OpenAI and vLLM
define them). End of sequence and stop tokens are forbidden before min_tokens. Rows without any of this cost nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.sampling.rows import SamplingRow
from engine.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class Penalties:
    """How logits of single tokens are changed before sampling; made by penalties_of. N = number of tokens of the row
    with most of them: tokens that the row has seen (prompt and output), and tokens with a bias."""

    token_ids: torch.Tensor  #: [R, N] int32; distinct in a row, -1: padding
    output_counts: torch.Tensor  #: [R, N] int32: how often the token occurs in the row's output
    is_seen: torch.Tensor  #: [R, N] bool: the token occurs in prompt or output
    biases: torch.Tensor  #: [R, N] float32; 0: none, -inf: forbidden
    repetition: torch.Tensor  #: [R] float32, 1: off; positive logits are divided by it, others multiplied
    presence: torch.Tensor  #: [R] float32, 0: off; subtracted from tokens that occur in the output
    frequency: torch.Tensor  #: [R] float32, 0: off; subtracted once for every occurrence in the output


def penalties_of(
    rows: Sequence[SamplingRow], eos_token_ids: frozenset[int], vocab_size: int, device: torch.device
) -> tuple[torch.Tensor, Penalties] | None:
    """Indices [R] of the rows whose logits change, and the changes; None: no row changes."""
    indices: list[int] = []
    entries: list[_Entries] = []
    for index, row in enumerate(rows):
        biases = biases_of(row.params, row.output_index, eos_token_ids, vocab_size, row.banned_token_ids)
        if biases or row.params.needs_history:
            indices.append(index)
            entries.append(_entries(row, biases))
    if not entries:
        return None
    widest = max(len(token_ids) for token_ids, *_ in entries)
    shape = (len(entries), widest)
    token_ids = np.full(shape, -1, dtype=np.int32)
    output_counts = np.zeros(shape, dtype=np.int32)
    is_seen = np.zeros(shape, dtype=np.bool_)
    biases_of_all = np.zeros(shape, dtype=np.float32)
    for place, (ids, counts, seen, values) in enumerate(entries):
        here = (place, slice(len(ids)))
        token_ids[here], output_counts[here], is_seen[here], biases_of_all[here] = ids, counts, seen, values
    params = [rows[index].params for index in indices]

    def column(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device)

    return torch.tensor(indices, dtype=torch.int64, device=device), Penalties(
        token_ids=torch.from_numpy(token_ids).to(device),
        output_counts=torch.from_numpy(output_counts).to(device),
        is_seen=torch.from_numpy(is_seen).to(device),
        biases=torch.from_numpy(biases_of_all).to(device),
        repetition=column([p.repetition_penalty for p in params]),
        presence=column([p.presence_penalty for p in params]),
        frequency=column([p.frequency_penalty for p in params]),
    )


def penalise(logits: torch.Tensor, rows: torch.Tensor, penalties: Penalties) -> None:
    """Apply penalties in place to logits [R', V] float32: biases, then repetition, then frequency and presence. rows
    [R] int64: row of logits for each row of the penalties, distinct."""
    is_real = penalties.token_ids >= 0
    which, place = is_real.nonzero(as_tuple=True)
    row, token = rows[which], penalties.token_ids[which, place].to(torch.int64)
    values = logits[row, token] + penalties.biases[which, place]
    repetition = penalties.repetition[which].where(penalties.is_seen[which, place], 1.0)
    values = torch.where(values > 0, values / repetition, values * repetition)
    counts = penalties.output_counts[which, place]
    values = values - penalties.frequency[which] * counts
    logits[row, token] = values - penalties.presence[which] * (counts > 0)


#: Token ids, their occurrences in the output, whether they occur in prompt or output, biases.
_Entries = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def biases_of(
    params: SamplingParams,
    output_index: int,
    eos_token_ids: frozenset[int],
    vocab_size: int,
    banned_token_ids: tuple[int, ...],
) -> Mapping[int, float]:
    """Biases by token id, for the output token of that index. -inf: the token is forbidden, before min_tokens or since
    it would complete one of the bad words. banned_token_ids: those that complete one of several tokens."""
    forbidden = {*banned_token_ids, *(word[0] for word in params.bad_words_ids if len(word) == 1)}
    if output_index < params.min_tokens:
        forbidden |= eos_token_ids.union(params.stop_token_ids)
    if not forbidden:
        return params.logit_bias
    return {**params.logit_bias, **{token_id: float("-inf") for token_id in forbidden if token_id < vocab_size}}


def _entries(row: SamplingRow, biases: Mapping[int, float]) -> _Entries:
    history = np.zeros(0, dtype=np.int64)
    if row.params.needs_history:
        assert row.history is not None, "a row with penalties brings its tokens"
        history = np.array(row.history, dtype=np.int64)
    output, output_counts = np.unique(history[len(history) - row.output_index :], return_counts=True)
    seen = np.unique(history)
    biased = np.fromiter(biases.keys(), np.int64, len(biases))
    token_ids = np.union1d(seen, biased)
    counts = np.zeros(len(token_ids), dtype=np.int32)
    counts[np.searchsorted(token_ids, output)] = output_counts
    values = np.zeros(len(token_ids), dtype=np.float32)
    values[np.searchsorted(token_ids, biased)] = np.fromiter(biases.values(), np.float32, len(biases))
    return token_ids, counts, np.isin(token_ids, seen), values
