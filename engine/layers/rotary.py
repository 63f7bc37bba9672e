"""Rotary position embedding (Su et al. 2021) in the half-split form of Llama, with the scalings of its versions.

Keys are rotated before they are cached, so the frequencies of a model are chosen once and hold for every length of a
sequence.
"""

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
    """Llama 3.1: frequencies of long waves are divided by `factor`, those of short waves kept, others blended. With
    equal bounds there are no others (Llama 4)."""

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


@dataclass(frozen=True)
class YarnScaling:
    """YaRN (Peng et al. 2023): frequencies that turn at most `beta_slow` times within the original context are divided
    by `factor`, those that turn `beta_fast` times or more are kept. Between them the blend is linear in the index of
    the pair of channels."""

    factor: float
    original_context: int
    beta_fast: float
    beta_slow: float
    is_truncated: bool  #: the bounds of the blend are whole indices
    amplitude: float  #: factor on rotated queries and keys


@dataclass(frozen=True)
class LongScaling:
    """LongRoPE (Ding et al. 2024): the frequency of each pair of channels is divided by a factor of its own."""

    factors: tuple[float, ...]
    amplitude: float  #: factor on rotated queries and keys


RotaryScaling = LinearScaling | Llama3Scaling | ProportionalScaling | YarnScaling | LongScaling | None


@dataclass(frozen=True)
class QueryScaling:
    """Queries grow with their position: by 1 + beta * log(1 + (position + offset) // original_context) (Llama 4)."""

    beta: float
    original_context: int
    offset: int = 0

    def at(self, positions: torch.Tensor) -> torch.Tensor:
        """positions [T] -> factors [T, 1, 1], float32."""
        periods = (positions + self.offset).div(self.original_context, rounding_mode="floor")
        return periods.float().log1p_().mul_(self.beta).add_(1.0)[:, None, None]


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
            keep = ((turns - low) / (high - low)).clamp(0.0, 1.0) if low < high else (turns >= low).float()
            return frequencies * keep + frequencies / factor * (1.0 - keep)
        case ProportionalScaling(share, factor):
            frequencies[int(share * num_channels // 2) :] = 0.0
            return frequencies / factor
        case YarnScaling():
            keep = 1.0 - _yarn_ramp(num_channels, base, scaling)
            return frequencies * keep + frequencies / scaling.factor * (1.0 - keep)
        case LongScaling(factors):
            return frequencies / torch.tensor(factors, dtype=torch.float32)


def _yarn_ramp(num_channels: int, base: float, scaling: YarnScaling) -> torch.Tensor:
    """The share of the divided frequency in that of each pair of channels, [num_channels / 2]."""

    def index_that_turns(times: float) -> float:
        return num_channels * math.log(scaling.original_context / (times * 2 * math.pi)) / (2 * math.log(base))

    first, last = index_that_turns(scaling.beta_fast), index_that_turns(scaling.beta_slow)
    if scaling.is_truncated:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, num_channels - 1)
    width = last - first if last != first else 0.001
    return ((torch.arange(num_channels // 2, dtype=torch.float32) - first) / width).clamp(0.0, 1.0)


class Rotary:
    """Computes the rotation of a step from its positions; without a table, so a long context costs no memory."""

    def __init__(
        self, num_channels: int, base: float, scaling: RotaryScaling, query_scaling: QueryScaling | None = None
    ) -> None:
        """num_channels: how many channels of a head rotate, from the first on."""
        self._frequencies = inverse_frequencies(num_channels, base, scaling)
        self._amplitude = scaling.amplitude if isinstance(scaling, YarnScaling | LongScaling) else 1.0
        self._query_scaling = query_scaling

    def at(self, positions: torch.Tensor) -> Rotation:
        """positions [T] -> cosines and sines of the step, [T, num_channels / 2]."""
        if self._frequencies.device != positions.device:
            self._frequencies = self._frequencies.to(positions.device)
        angles = positions[:, None] * self._frequencies  # in float32: the positions are converted on the way
        cos, sin = angles.cos(), angles.sin()
        if self._amplitude != 1.0:
            cos, sin = cos.mul_(self._amplitude), sin.mul_(self._amplitude)
        return Rotation(cos, sin, None if self._query_scaling is None else self._query_scaling.at(positions))
