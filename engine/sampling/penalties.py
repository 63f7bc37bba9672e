"""Which logits of which rows are changed before anything is drawn, and how: in the form that the kernels take.

Repetition looks at prompt and output, presence and frequency at the output (as OpenAI and vLLM define them). End of
sequence and stop tokens are forbidden before min_tokens. Rows without any of this cost nothing.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from engine.kernels.step_kernels import Penalties
from engine.sampling.rows import SamplingRow


def penalties_of(
    rows: Sequence[SamplingRow], eos_token_ids: frozenset[int], vocab_size: int, device: torch.device
) -> tuple[torch.Tensor, Penalties] | None:
    """Indices [R] of the rows whose logits change, and the changes; None where there are none."""
    indices: list[int] = []
    entries: list[_Entries] = []
    for index, row in enumerate(rows):
        biases = _biases(row, eos_token_ids, vocab_size)
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


#: Token ids, their occurrences in the output, whether they occur in prompt or output, biases.
_Entries = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _biases(row: SamplingRow, eos_token_ids: frozenset[int], vocab_size: int) -> Mapping[int, float]:
    if row.output_index >= row.params.min_tokens:
        return row.params.logit_bias
    too_early = eos_token_ids.union(row.params.stop_token_ids)
    return {
        **row.params.logit_bias,
        **{token_id: float("-inf") for token_id in too_early if token_id < vocab_size},
    }


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
