"""Parts of a layer whose output is multiplied by a number (Granite, Falcon-H1)."""

import torch

from engine.attention.backend import ForwardBatch
from engine.attention.rotation import Rotation
from engine.layers.mixer import Mixer, narrowed
from engine.layers.mlp import FeedForward


class ScaledMixer:
    """output_factor * mixer(input_factor * x)."""

    def __init__(self, mixer: Mixer, output_factor: float, input_factor: float = 1.0) -> None:
        self.is_capturable = getattr(mixer, "is_capturable", True)
        self._mixer = mixer
        self._output_factor = output_factor
        self._input_factor = input_factor

    def __call__(self, x: torch.Tensor, rotation: Rotation | None, batch: ForwardBatch) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]."""
        return self._mixer(self._scaled(x), rotation, batch).mul_(self._output_factor)

    def narrowed(self, x: torch.Tensor, rotation: Rotation | None, batch: ForwardBatch) -> torch.Tensor:
        """As NarrowingMixer.narrowed."""
        return narrowed(self._mixer, self._scaled(x), rotation, batch).mul_(self._output_factor)

    def _scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x if self._input_factor == 1.0 else x * self._input_factor


class ScaledFeedForward:
    """factor * part(x)."""

    def __init__(self, part: FeedForward, factor: float) -> None:
        self.is_capturable = getattr(part, "is_capturable", True)
        self._part = part
        self._factor = factor

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]."""
        return self._part(x).mul_(self._factor)
