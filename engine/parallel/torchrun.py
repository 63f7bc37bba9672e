"""Reads the environment variables that torchrun sets for its processes; no other module does. No torch."""

import socket
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


def own_address_towards_master(environment: Mapping[str, str]) -> str:
    """The address of this machine that the machine of rank 0 sees. Raises NotDivisible where there is no way to it."""
    host, port = environment.get("MASTER_ADDR", "127.0.0.1"), int(environment.get("MASTER_PORT", "29500"))
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # chooses a route; no packet is sent
            return str(probe.getsockname()[0])
    except OSError as error:
        raise NotDivisible(f"the machine of rank 0, {host}, cannot be reached: {error.strerror}") from None
