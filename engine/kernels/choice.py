"""The choice of a model's operators, made once when it is loaded: C++ on CPU if it can be built, Triton on CUDA, plain
torch otherwise."""

import importlib.util
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
    device: torch.device,
    dtype: torch.dtype,
    num_threads: int,
    *,
    allow_compiled: bool,
    has_int8_weights: bool = False,
    has_int4_weights: bool = False,
    is_batch_invariant: bool = False,
) -> Operators:
    """The fastest operators for the device. allow_compiled: C++ on CPU, built now if this machine has not built it yet,
    and Triton on CUDA; False: plain torch. num_threads: of the C++ operators. is_batch_invariant: a row's bits do not
    depend on the number of rows, on CUDA too.

    Raises OperatorsUnavailable if int8 or int4 weights, or batch invariance on CUDA, are asked for and compiled
    operators cannot serve.
    """
    rounded = "int8" if has_int8_weights else "int4" if has_int4_weights else None
    needs_triton = is_batch_invariant and device.type == "cuda"
    try:
        if not allow_compiled:
            raise OperatorsUnavailable("the torch operators were asked for")
        if device.type == "cpu":
            library = _cpp_library(dtype, num_threads)
            return CppOperators(library, dtype, has_int8_weights=has_int8_weights, has_int4_weights=has_int4_weights)
        return _triton_operators(
            has_int8_weights=has_int8_weights,
            has_int4_weights=has_int4_weights,
            is_batch_invariant=is_batch_invariant,
        )
    except OperatorsUnavailable as error:
        if rounded:
            raise OperatorsUnavailable(
                f"{rounded} weights need the C++ operators, or Triton's on CUDA: {error}"
            ) from error
        if needs_triton:
            raise OperatorsUnavailable(f"batch_invariant needs Triton's operators on CUDA: {error}") from error
        if allow_compiled:
            _log.warning("%s; the slower torch operators serve instead", error)
        return TorchOperators()


def _cpp_library(dtype: torch.dtype, num_threads: int) -> Library:
    if dtype not in (torch.float32, torch.bfloat16):
        raise OperatorsUnavailable(f"the C++ operators are not used for {dtype}")
    instruction_set = best_instruction_set()
    return Library(build(instruction_set), instruction_set, num_threads)


def _triton_operators(*, has_int8_weights: bool, has_int4_weights: bool, is_batch_invariant: bool) -> Operators:
    if importlib.util.find_spec("triton") is None:
        raise OperatorsUnavailable("Triton is not installed")
    from engine.kernels.gpu.operators import GpuOperators  # without Triton not importable

    return GpuOperators(
        has_int8_weights=has_int8_weights, has_int4_weights=has_int4_weights, is_batch_invariant=is_batch_invariant
    )
