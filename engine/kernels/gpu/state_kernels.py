"""The kernels of recurrent layers on CUDA: in Triton, but for the gated norm. This module implements the protocol
StateKernels."""

from typing import Final

from engine.kernels.gpu.gated_delta import channel_delta, gated_delta
from engine.kernels.gpu.mamba import causal_conv, selective_scan
from engine.kernels.gpu.mamba2 import head_scan
from engine.kernels.reference.gated_norm import gated_norm

__all__ = ["causal_conv", "channel_delta", "gated_delta", "gated_norm", "head_scan", "is_capturable", "selective_scan"]

#: Launches depend on the number of sequences and on the longest one alone.
is_capturable: Final = True
