"""Instruction set extensions of the processor, as the system reports them. No torch, because `agon doctor` runs without
it."""

from pathlib import Path


def cpu_flags() -> frozenset[str]:
    """Names of instruction set extensions as Linux writes them ("avx2"); empty where the system does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    found = (line.partition(":")[2].split() for line in lines if line.startswith("flags"))
    return frozenset(next(found, ()))
