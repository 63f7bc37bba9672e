"""Loads the C++ operators for tests: for every instruction set of this machine, or one library with sanitizers."""

import os
from pathlib import Path

from engine.kernels.cpu.build import build, usable_instruction_sets
from engine.kernels.cpu.library import Library

#: Environment variable that test_sanitizers.py sets for operator tests under sanitizers.
SANITIZE = "AGON_TEST_SANITIZE"
#: Without -g reports name functions, not lines; undefined behaviour traps instead of being described. Both would double
#: the build's time.
_SANITIZERS = (
    "-fsanitize=address,undefined",
    "-fsanitize-undefined-trap-on-error",
    "-O0",
)

USABLE = usable_instruction_sets()[: 1 if SANITIZE in os.environ else None]


def library(instruction_set: str = USABLE[0], num_threads: int = 2) -> Library:
    """The library for an instruction set of USABLE, built if the cache does not have it."""
    path = build_with_sanitizers() if SANITIZE in os.environ else build(instruction_set)
    return Library(path, instruction_set, num_threads)


def build_with_sanitizers() -> Path:
    """The library with sanitizers. Where their runtime is preloaded the compiler has it, too, and takes twice as long:
    it is built before."""
    return build(USABLE[0], _SANITIZERS)
