"""Log probabilities of the sampled token and of the k likeliest tokens of each row, in plain torch."""

import torch

from engine.kernels.step_kernels import SamplingWorkspace


def top_logprobs(
    logits: torch.Tensor,
    token_ids: torch.Tensor,
    chosen: torch.Tensor,
    top_ids: torch.Tensor,
    top: torch.Tensor,
    workspace: SamplingWorkspace | None = None,
) -> None:
    """Fills chosen [R] float32, top_ids [R, k] int64 and top [R, k] float32 from logits [R, V] and token_ids [R] int64,
    as StepKernels.top_logprobs defines. Natural logarithms; the workspace is not used."""
    logprobs = logits.to(torch.float32).log_softmax(dim=-1)
    chosen.copy_(logprobs.gather(1, token_ids[:, None].clamp(min=0)).squeeze(1))
    # A stable sort puts the first of equal logits first. Logits are sorted because different logits may have equal log
    # probabilities after rounding.
    order = logits.sort(dim=-1, descending=True, stable=True).indices[:, : top_ids.shape[1]]
    top_ids.copy_(order)
    top.copy_(logprobs.gather(1, order))
