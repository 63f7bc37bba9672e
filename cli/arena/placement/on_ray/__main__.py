"""`python -m cli.arena.placement.on_ray ADDRESS NAMESPACE WANTED PLACED`: the placer, a child of `agon up`."""

import sys
from pathlib import Path

import ray

from cli.arena.placement.on_ray.placer import Placer


def main() -> None:
    """Runs until it is stopped, or until Ray's head or this machine's node is gone."""
    address, namespace, wanted, placed = sys.argv[1:]
    ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level="warning")
    Placer(Path(wanted), Path(placed)).run()


if __name__ == "__main__":
    main()
