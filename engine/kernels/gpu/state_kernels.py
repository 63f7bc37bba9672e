"""The kernels of recurrent layers on CUDA: in Triton, but for channel_delta and the gated norm. This module implements
the protocol StateKernels."""

from typing import Final

from engine.kernels.gpu.gated_delta import gated_delta
from engine.kernels.gpu.mamba import causal_conv, selective_scan
from engine.kernels.gpu.mamba2 import head_scan
from engine.kernels.reference.channel_delta import channel_delta
from engine.kernels.reference.gated_norm import gated_norm

__all__ = ["causal_conv", "channel_delta", "gated_delta", "gated_norm", "head_scan", "is_capturable", "selective_scan"]

#: Launches depend on the number of sequences and on the longest one alone. Not so channel_delta, whose layers say that
#: they cannot be captured (engine/layers/kimi_delta.py).
is_capturable: Final = True
