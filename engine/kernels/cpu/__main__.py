"""`python -m engine.kernels.cpu [--all]`: builds the C++ operators ahead of time, for this processor or for every one.

`--all` is for container images, which are built on one machine and run on others: at start the best library that the
processor supports is loaded.
"""

import sys

from engine.errors import OperatorsUnavailable
from engine.kernels.cpu.build import best_instruction_set, build, instruction_sets


def main(arguments: list[str]) -> None:
    """Build, and print the path of each library. Exits with a message if a build fails."""
    if arguments not in ([], ["--all"]):
        raise SystemExit("usage: python -m engine.kernels.cpu [--all]")
    try:
        for name in instruction_sets() if arguments else (best_instruction_set(),):
            print(build(name))
    except OperatorsUnavailable as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main(sys.argv[1:])
