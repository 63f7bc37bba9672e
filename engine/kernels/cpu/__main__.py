"""`python -m engine.kernels.cpu [--all | --usable]`: builds the C++ operators ahead of time, for this processor or for
every one. It runs without torch.

`--all` is for container images, which are built on one machine and run on others: at start the best library that the
processor supports is loaded. `--usable` is for the tests, which run with every library that this processor supports.
"""

import sys

from engine.errors import OperatorsUnavailable
from engine.kernels.cpu.build import best_instruction_set, build, instruction_sets, usable_instruction_sets


def main(arguments: list[str]) -> None:
    """Build, and print the path of each library. Exits with a message if a build fails."""
    try:
        match arguments:
            case []:
                names: tuple[str, ...] = (best_instruction_set(),)
            case ["--all"]:
                names = instruction_sets()
            case ["--usable"]:
                names = usable_instruction_sets()
            case _:
                raise SystemExit("usage: python -m engine.kernels.cpu [--all | --usable]")
        for name in names:
            print(build(name))
    except OperatorsUnavailable as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main(sys.argv[1:])
