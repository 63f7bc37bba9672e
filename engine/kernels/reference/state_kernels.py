"""The kernels of recurrent layers in plain torch. This module implements the protocol StateKernels."""

from typing import Final

from engine.kernels.reference.channel_delta import channel_delta
from engine.kernels.reference.gated_delta import gated_delta
from engine.kernels.reference.gated_norm import gated_norm
from engine.kernels.reference.mamba import causal_conv, selective_scan
from engine.kernels.reference.mamba2 import head_scan

__all__ = ["causal_conv", "channel_delta", "gated_delta", "gated_norm", "head_scan", "is_capturable", "selective_scan"]

#: Sequences are grouped by their lengths on the host.
is_capturable: Final = False
