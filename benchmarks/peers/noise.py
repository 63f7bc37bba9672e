"""How busy other processes kept the machine while a peer ran: the number of cores they used, from /proc."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

QUIET = 0.1  #: a row is quiet if other processes used fewer cores than this
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def machine_busy_s() -> float:
    """CPU seconds that all cores have been busy so far (time that a hypervisor took included)."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / _TICKS_PER_S  # without idle and waiting for a disk


def tree_busy_s(pid: int) -> float:
    """CPU seconds of a process and of its descendants, ended ones included."""
    return sum(_own_ticks(member) for member in process_tree(pid)) / _TICKS_PER_S


def process_tree(pid: int) -> list[int]:
    members = [pid]
    for member in members:
        try:
            tasks = list(Path(f"/proc/{member}/task").iterdir())
            members.extend(int(child) for task in tasks for child in (task / "children").read_text().split())
        except (OSError, ValueError):
            continue
    return members


def resident_bytes(pid: int) -> int:
    """Resident set of a process and its descendants; pages that they share count more than once."""
    total = 0
    for member in process_tree(pid):
        try:
            total += int(Path(f"/proc/{member}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError):
            continue
    return total


def proportional_bytes(pid: int) -> int:
    """Like resident_bytes, but a page that n processes have mapped counts 1 / n for each of them."""
    total = 0
    for member in process_tree(pid):
        try:
            lines = Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def _own_ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0
    return sum(int(field) for field in fields[11:15])  # user and system time, own and of children that have ended


@dataclass(frozen=True, slots=True)
class Noise:
    own_cores: float
    others_cores: float


class NoiseMeter:
    """with NoiseMeter(pid) as meter: ...; meter.noise()."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def __enter__(self) -> Self:
        self._started = (time.perf_counter(), machine_busy_s(), tree_busy_s(self._pid))
        return self

    def __exit__(self, *_: object) -> None:
        then, busy, own = self._started
        seconds = time.perf_counter() - then
        own = tree_busy_s(self._pid) - own
        others = max(0.0, machine_busy_s() - busy - own)
        self._noise = Noise(round(own / seconds, 3), round(others / seconds, 3))

    def noise(self) -> Noise:
        return self._noise


def wait_until_quiet(limit_s: float, threshold: float = 0.25) -> bool:
    """Sleep until all other processes use less than `threshold` cores, at most `limit_s` seconds."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        with NoiseMeter(os.getpid()) as meter:
            time.sleep(0.5)
        if meter.noise().others_cores < threshold:
            return True
    return limit_s == 0
