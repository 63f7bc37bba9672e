"""The choice of the attention backend of EagerRunner: C++ beside C++ operators, torch otherwise."""

import logging

import torch

from engine.attention.backend import AttentionBackend, AttentionShape
from engine.attention.cpp_backend import CppBackend, unsupported_reason
from engine.attention.torch_backend import TorchBackend
from engine.kernels.cpu.operators import CppOperators
from engine.kernels.cpu.scratch import Scratch
from engine.kernels.operators import Operators
from engine.memory.spec import PoolPlan

_log = logging.getLogger(__name__)


def choose_backend(
    operators: Operators,
    plan: PoolPlan,
    pool: torch.Tensor,
    shapes: tuple[AttentionShape, ...],
    dtype: torch.dtype,
    scratch: Scratch | None = None,
) -> AttentionBackend:
    """The fastest backend that supports the model. pool: bytes; shapes by layer id; dtype: of activations. scratch:
    shared with other models of the thread; None: the backend has its own."""
    if isinstance(operators, CppOperators):
        reason = unsupported_reason(plan, shapes, dtype)
        if reason is None:
            return CppBackend(plan, pool, shapes, dtype, operators.library, scratch or Scratch())
        _log.warning("attention runs on the slower torch backend: the C++ one does not take %s", reason)
    return TorchBackend(plan, pool, shapes, dtype)
