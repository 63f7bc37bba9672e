"""Rotary position embedding (Su et al. 2021) in the half-split form of Llama, with the scalings of its versions."""

import math
from dataclasses import dataclass

import torch

from engine.attention.rotation import Rotation


@dataclass(frozen=True)
class LinearScaling:
    """Positions divided by a factor."""

    factor: float


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1: frequencies of long waves are divided by `factor`, those of short waves kept, others blended."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True)
class ProportionalScaling:
    """Gemma 4: only the first `share` of the pairs of channels turn, with the frequencies that they have among all of
    them, divided by `factor`; the others have frequency 0."""

    share: float
    factor: float


RotaryScaling = LinearScaling | Llama3Scaling | ProportionalScaling | None


def inverse_frequencies(num_channels: int, base: float, scaling: RotaryScaling) -> torch.Tensor:
    """Radians per position of each pair of channels: [num_channels / 2], float32."""
    exponents = torch.arange(0, num_channels, 2, dtype=torch.float32) / num_channels
    frequencies = 1.0 / base**exponents
    match scaling:
        case None:
            return frequencies
        case LinearScaling(factor):
            return frequencies / factor
        case Llama3Scaling(factor, low, high, original_context):
            turns = original_context * frequencies / (2 * math.pi)  # full turns within the original context
            keep = ((turns - low) / (high - low)).clamp(0.0, 1.0)
            return frequencies * keep + frequencies / factor * (1.0 - keep)
        case ProportionalScaling(share, factor):
            frequencies[int(share * num_channels // 2) :] = 0.0
            return frequencies / factor


class Rotary:
    """Computes the rotation of a step from its positions; without a table, so a long context costs no memory."""

    def __init__(self, num_channels: int, base: float, scaling: RotaryScaling) -> None:
        """num_channels: how many channels of a head rotate, from the first on."""
        self._frequencies = inverse_frequencies(num_channels, base, scaling)

    def at(self, positions: torch.Tensor) -> Rotation:
        """positions [T] -> cosines and sines of the step, [T, num_channels / 2]."""
        if self._frequencies.device != positions.device:
            self._frequencies = self._frequencies.to(positions.device)
        angles = positions[:, None] * self._frequencies  # in float32: the positions are converted on the way
        return Rotation(angles.cos(), angles.sin())
