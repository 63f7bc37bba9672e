"""Log probabilities of sampled tokens and of top tokens, in plain torch."""

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
    """As StepKernels.top_logprobs; the workspace is not used."""
    logprobs = logits.to(torch.float32).log_softmax(dim=-1)
    chosen.copy_(logprobs.gather(1, token_ids[:, None]).squeeze(1))
    # Stable, so that of equal logits the lowest id comes first. Logits are sorted, since unequal logits may have equal
    # log probabilities after rounding.
    order = logits.sort(dim=-1, descending=True, stable=True).indices[:, : top_ids.shape[1]]
    top_ids.copy_(order)
    top.copy_(logprobs.gather(1, order))
