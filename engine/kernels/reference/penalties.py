"""Logits of single tokens changed before anything is drawn, in plain torch."""

import torch

from engine.kernels.step_kernels import Penalties


def penalise(logits: torch.Tensor, rows: torch.Tensor, penalties: Penalties) -> None:
    is_real = (penalties.token_ids >= 0) & (rows >= 0)[:, None]
    which, place = is_real.nonzero(as_tuple=True)
    row, token = rows[which], penalties.token_ids[which, place].to(torch.int64)
    values = logits[row, token] + penalties.biases[which, place]
    repetition = penalties.repetition[which].where(penalties.is_seen[which, place], 1.0)
    values = torch.where(values > 0, values / repetition, values * repetition)
    counts = penalties.output_counts[which, place]
    values = values - penalties.frequency[which] * counts
    logits[row, token] = values - penalties.presence[which] * (counts > 0)
