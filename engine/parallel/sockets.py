"""Binds a rank to the cores of one NUMA node (socket), if the machine has several. Weights and pages lie on the node
whose core writes them first, so they are then in the memory beside the cores that read them. Linux. No torch."""

import os
from pathlib import Path

from engine.parallel.group import Place

_NODES = Path("/sys/devices/system/node")


def keep_to_own_socket(place: Place) -> None:
    """Bind the calling thread, and threads that it starts from now on. Does nothing on a machine with one node."""
    if hasattr(os, "sched_setaffinity"):
        cores = cores_of(place, frozenset(os.sched_getaffinity(0)))
        if cores is not None:
            os.sched_setaffinity(0, cores)


def cores_of(place: Place, allowed: frozenset[int], nodes: Path = _NODES) -> frozenset[int] | None:
    """The cores of a rank. None: no binding, since there is one node, or nodes and ranks cannot be divided evenly."""
    lists = sorted(nodes.glob("node[0-9]*/cpulist"), key=lambda file: int(file.parent.name.removeprefix("node")))
    by_node = [cores for file in lists if (cores := sorted(allowed & _parse(file.read_text())))]
    count, size, rank = len(by_node), place.local_size, place.local_rank
    if count < 2:
        return None
    if count % size == 0:
        first = rank * (count // size)
        return frozenset(core for node in by_node[first : first + count // size] for core in node)
    if size % count == 0:
        ranks = size // count  # of a node
        node, part = by_node[rank // ranks], rank % ranks
        if len(node) >= ranks:
            return frozenset(node[part::ranks])
    return None


def num_nodes(nodes: Path = _NODES) -> int:
    """NUMA nodes of this machine; 1 if the system does not tell."""
    return max(1, len(list(nodes.glob("node[0-9]*/cpulist"))))


def _parse(text: str) -> frozenset[int]:
    """ "0-3,8" -> 0, 1, 2, 3, 8."""
    cores: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return frozenset(cores)
