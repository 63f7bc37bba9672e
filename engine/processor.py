"""What the processor can do, as the system tells it. No torch: `agon doctor` asks where there is none."""

from pathlib import Path


def cpu_flags() -> frozenset[str]:
    """Names of instruction set extensions as Linux writes them ("avx2"); empty where the system does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    found = (line.partition(":")[2].split() for line in lines if line.startswith("flags"))
    return frozenset(next(found, ()))
