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


def choose_operators(
    device: torch.device, dtype: torch.dtype, num_threads: int, *, allow_cpp: bool, has_int8_weights: bool = False
) -> Operators:
    """Builds the C++ operators if this machine has not done so yet.

    Raises OperatorsUnavailable where int8 weights are asked for and only the torch operators could serve.
    """
    try:
        if device.type != "cpu" or dtype not in (torch.float32, torch.bfloat16) or not allow_cpp:
            raise OperatorsUnavailable(f"the C++ operators are not used for {dtype} on {device}")
        instruction_set = best_instruction_set()
        library = Library(build(instruction_set), instruction_set, num_threads)
        return CppOperators(library, dtype, has_int8_weights=has_int8_weights)
    except OperatorsUnavailable as error:
        if has_int8_weights:
            raise OperatorsUnavailable(f"int8 weights need the C++ operators: {error}") from error
        if device.type == "cpu" and allow_cpp:
            _log.warning("%s; the slower torch operators serve instead", error)
        return TorchOperators()
