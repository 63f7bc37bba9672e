"""Reads the environment variables that torchrun sets for its processes; no other module does. No torch."""

from collections.abc import Mapping

from engine.errors import NotDivisible
from engine.parallel.group import Place


def torchrun_place(environment: Mapping[str, str], size: int) -> Place | None:
    """This process's place; None: torchrun did not start it. Raises NotDivisible if torchrun has started another number
    of processes than `size`."""
    if "RANK" not in environment or "WORLD_SIZE" not in environment:
        return None
    started = int(environment["WORLD_SIZE"])
    if started != size:
        raise NotDivisible(f"torchrun has started {started} processes, tensor parallelism is to have {size}")
    return Place(
        rank=int(environment["RANK"]),
        size=started,
        local_rank=int(environment.get("LOCAL_RANK", environment["RANK"])),
        local_size=int(environment.get("LOCAL_WORLD_SIZE", started)),
    )
