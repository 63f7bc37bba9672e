"""The C++ operators as the tests load them: for every instruction set of this machine, or one with sanitizers."""

import os

from engine.kernels.cpu.build import INSTRUCTION_SETS, best_instruction_set, build
from engine.kernels.cpu.library import Library

#: Set for the run of the operator tests under sanitizers (test_sanitizers.py).
SANITIZE = "AGON_TEST_SANITIZE"
_SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")

_ORDER = list(INSTRUCTION_SETS)
_USABLE = _ORDER[_ORDER.index(best_instruction_set()) :]
USABLE = _USABLE[:1] if SANITIZE in os.environ else _USABLE


def library(instruction_set: str = USABLE[0], num_threads: int = 2) -> Library:
    extra_flags = _SANITIZERS if SANITIZE in os.environ else ()
    return Library(build(instruction_set, extra_flags), instruction_set, num_threads)
