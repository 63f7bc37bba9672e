"""Alternating updates (AltUp, Baykal et al. 2023): several residual streams, of which the layer reads and writes one.
The others are predicted before the layer, and corrected after it, by small learned mixtures.

N = streams, T = tokens of the step.
"""

import torch

from engine.layers.linear import Linear
from engine.layers.norm import RMSNorm
from engine.layers.weights import WeightSource

_MIN_SQUARE = 1e-5


class AlternatingUpdates:
    """Prediction and correction of the streams around one layer."""

    def __init__(
        self, weights: WeightSource, name: str, hidden: int, num_streams: int, active: int, eps: float
    ) -> None:
        """Takes the tensors of that name. active: the stream that the layer reads."""
        self._num_streams = num_streams
        self._active = active
        self._norm = RMSNorm.load(weights, f"{name}.router_norm", hidden, eps)
        self._scale = 1.0 / hidden
        self._router = Linear.load(weights, f"{name}.modality_router", hidden, num_streams, bias=False)
        self._predict = Linear.load(weights, f"{name}.prediction_coefs", num_streams, num_streams**2, bias=False)
        self._correct = Linear.load(weights, f"{name}.correction_coefs", num_streams, num_streams, bias=False)

    def predict(self, streams: torch.Tensor) -> torch.Tensor:
        """[N, T, hidden] -> each stream plus a mixture of all, [N, T, hidden]."""
        factors = self._predict(self._modes(streams[self._active])).float()
        factors = factors.view(-1, self._num_streams, self._num_streams).transpose(0, 1)  # [N, T, N]
        predictions = streams.to(torch.float32, copy=True)
        for index, stream in enumerate(streams):
            predictions.addcmul_(factors[:, :, index, None], stream)
        return predictions.to(streams.dtype)

    def correct(self, predictions: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        """Adds to each of the predictions [N, T, hidden] its share of the difference between the layer's output
        [T, hidden] and the prediction for it. Overwrites and returns the predictions."""
        factors = self._correct(self._modes(output)).add_(1.0)  # [T, N]
        return predictions.addcmul_(output - predictions[self._active], factors.t()[:, :, None])

    def _modes(self, stream: torch.Tensor) -> torch.Tensor:
        """[T, hidden] -> [T, N], what factors depend on."""
        return self._router(self._norm(stream).mul_(self._scale)).float().tanh_().to(stream.dtype)


def magnitude(x: torch.Tensor) -> torch.Tensor:
    """Root mean square of each row in float32: [..., size] -> [..., 1]."""
    return x.float().square().mean(dim=-1, keepdim=True).sqrt()


def with_magnitude(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """x [..., size] with rows scaled to the root mean square `target` [..., 1]."""
    own = x.float().square().mean(dim=-1, keepdim=True).clamp(min=_MIN_SQUARE).sqrt()
    return (x * (target / own)).to(x.dtype)
