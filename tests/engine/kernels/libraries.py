"""Loads the C++ operators for tests: for every instruction set of this machine, or one library with sanitizers."""

import os

from engine.kernels.cpu.build import INSTRUCTION_SETS, best_instruction_set, build
from engine.kernels.cpu.library import Library

#: Environment variable that test_sanitizers.py sets for operator tests under sanitizers.
SANITIZE = "AGON_TEST_SANITIZE"
#: Without -g, which a third of the build's time would go to: reports name functions, not lines.
_SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O0")

_ORDER = list(INSTRUCTION_SETS)
_USABLE = _ORDER[_ORDER.index(best_instruction_set()) :]
USABLE = _USABLE[:1] if SANITIZE in os.environ else _USABLE


def library(instruction_set: str = USABLE[0], num_threads: int = 2) -> Library:
    """The library for an instruction set of USABLE, built if the cache does not have it."""
    extra_flags = _SANITIZERS if SANITIZE in os.environ else ()
    return Library(build(instruction_set, extra_flags), instruction_set, num_threads)
