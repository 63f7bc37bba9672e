"""Which operators a model runs on: C++ on CPU where it can be built, plain torch otherwise. Decided once, at load."""

import logging

import torch

from engine.errors import OperatorsUnavailable
from engine.kernels.cpu.build import best_instruction_set, build
from engine.kernels.cpu.library import Library
from engine.kernels.cpu.operators import CppOperators
from engine.kernels.operators import Operators
from engine.kernels.torch_operators import TorchOperators

_log = logging.getLogger(__name__)


def choose_operators(device: torch.device, dtype: torch.dtype, num_threads: int, *, allow_cpp: bool) -> Operators:
    """Builds the C++ operators if this machine has not done so yet."""
    if device.type != "cpu" or dtype not in (torch.float32, torch.bfloat16) or not allow_cpp:
        return TorchOperators()
    instruction_set = best_instruction_set()
    try:
        return CppOperators(Library(build(instruction_set), instruction_set, num_threads), dtype)
    except OperatorsUnavailable as error:
        _log.warning("%s; the slower torch operators serve instead", error)
        return TorchOperators()
