"""Reads rows of prompts: log probabilities of the tokens after them, and sums of final hidden states. Rows are computed
in blocks, so that no step ever has the logits of a whole prompt. R = rows, H = hidden size, V = vocabulary.
"""

from collections.abc import Callable, Sequence

import torch

from engine.batch import ScheduledSequence
from engine.prompt_reading import RowsRead, TokenScore

#: Rows whose logits are computed at once: 32 MiB of float32 at 128k tokens.
ROWS_AT_ONCE = 64
#: Values are rounded to multiples of one over this before they are summed in float64. Such sums are exact below 2^23,
#: so they are the same in any order and with any chunking of the prompt.
_UNITS = 2.0**30


def any_read(sequences: Sequence[ScheduledSequence]) -> bool:
    """Whether a sequence of the step asks for anything of its rows."""
    return any(sequence.scored is not None or sequence.pooled is not None for sequence in sequences)


def read_rows(
    sequences: Sequence[ScheduledSequence], hidden: torch.Tensor, logits_of: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[RowsRead | None, ...]:
    """What the sequences of a step ask for; an empty tuple where none asks. hidden: final hidden states of all tokens
    of the step, [T, H]; logits_of: [R, H] -> [R, V]."""
    if not any_read(sequences):
        return ()
    read: list[RowsRead | None] = []
    start = 0
    for sequence in sequences:
        scored, pooled, rows = sequence.scored, sequence.pooled, hidden[start : start + len(sequence.token_ids)]
        if scored is not None:
            wanted = rows[scored.first_row : scored.first_row + len(scored.next_token_ids)]
            read.append(RowsRead(scores=_scores(wanted, scored.next_token_ids, scored.num_top, logits_of)))
        elif pooled is not None:
            wanted = rows[pooled.first_row : pooled.first_row + pooled.num_rows]
            read.append(RowsRead(total=tuple(sum_of_rows(wanted).tolist())))
        else:
            read.append(None)
        start += len(sequence.token_ids)
    return tuple(read)


def sum_of_rows(hidden: torch.Tensor) -> torch.Tensor:
    """hidden [R, H] -> [H] float64: the sum of its rows, each rounded to 2^-30."""
    total = torch.zeros(hidden.shape[1], dtype=torch.float64, device=hidden.device)
    for block in hidden.split(ROWS_AT_ONCE):
        total += block.to(torch.float64).mul_(_UNITS).round_().sum(dim=0)
    return total.div_(_UNITS)


def token_scores(
    chosen: Sequence[float], top_ids: Sequence[Sequence[int]], top: Sequence[Sequence[float]]
) -> list[TokenScore]:
    """One score for each row: of its token, and of its likeliest tokens."""
    rows = zip(chosen, top_ids, top, strict=True)
    return [TokenScore(logprob, tuple(zip(ids, values, strict=True))) for logprob, ids, values in rows]


def _scores(
    hidden: torch.Tensor,
    token_ids: Sequence[int],
    num_top: int,
    logits_of: Callable[[torch.Tensor], torch.Tensor],
) -> tuple[TokenScore, ...]:
    """hidden [R, H], token_ids [R] -> [R]. Log probabilities are those of the model itself, in float32."""
    scores: list[TokenScore] = []
    targets = torch.tensor(token_ids, device=hidden.device)[:, None]
    for block, wanted in zip(hidden.split(ROWS_AT_ONCE), targets.split(ROWS_AT_ONCE), strict=True):
        logprobs = logits_of(block).to(torch.float32).log_softmax(dim=-1)
        top = logprobs.topk(min(num_top, logprobs.shape[1]))
        chosen = logprobs.gather(1, wanted).squeeze(1)
        scores += token_scores(chosen.tolist(), top.indices.tolist(), top.values.tolist())
    return tuple(scores)
