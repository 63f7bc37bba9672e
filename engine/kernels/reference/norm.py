"""RMS norm and layer norm of rows, fused with the addition of the residual update, in plain torch. R = rows."""

import torch


def rms_norm(stream: torch.Tensor, update: torch.Tensor | None, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMS norm (Zhang and Sennrich 2019). stream [R, size] becomes stream + update (in place, rounded to its dtype);
    returns its norm times weight [size]: [R, size], newly allocated, in the stream's dtype."""
    return _normed(_added(stream, update), weight, eps).to(stream.dtype)


def layer_norm(
    stream: torch.Tensor, update: torch.Tensor | None, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor:
    """Layer norm (Ba et al. 2016): as rms_norm, after the row's mean has been subtracted, plus bias [size]."""
    x = _added(stream, update)
    return (_normed(x - x.mean(dim=-1, keepdim=True), weight, eps) + bias.float()).to(stream.dtype)


def _added(stream: torch.Tensor, update: torch.Tensor | None) -> torch.Tensor:
    if update is not None:
        stream.copy_(stream.float() + update.float())
    return stream.float()


def _normed(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps) * weight.float()
