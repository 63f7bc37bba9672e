"""Short scheduler time slices for services, which shorten their wake-up latency while all cores are busy.

From Linux 6.12 on, a task that wakes up waits until the running task has used its time slice, some 3 ms, unless it has
requested shorter slices for itself (sched_setattr(2), sched_runtime). It gets the same CPU time, but earlier. Every hop
of a token waits so: worker, controller, store. Time to the first token that the controller adds (smol-135m, 2 cores,
medians of 30, two runs each): 8.9 and 7.5 ms, with short slices 5.3 and 2.8 ms. Older kernels ignore the request.
"""

import contextlib
import ctypes
import os
import platform
import struct

SLICE_NS = 100_000  #: the shortest that Linux accepts
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}  #: numbers of the system call
_RESET_ON_FORK = 1
#: struct sched_attr of 48 bytes: size, policy (0: the ordinary one), flags, nice, priority, runtime, deadline, period.
_ATTR = struct.Struct("=IIQiIQQQ")


def ask_for_short_slices(pid: int = 0) -> None:
    """Request short slices for the main thread of process `pid` (0: this process), which handles requests. Threads and
    processes that it starts later get default slices, because some of them compute. Does nothing where the system does
    not support it."""
    number = _SCHED_SETATTR.get(platform.machine())
    if number is None or platform.system() != "Linux":
        return
    with contextlib.suppress(OSError):  # the process has ended
        if os.sched_getscheduler(pid) != os.SCHED_OTHER:
            return  # another policy was set on purpose
        nice = os.getpriority(os.PRIO_PROCESS, pid)
        attr = _ATTR.pack(_ATTR.size, os.SCHED_OTHER, _RESET_ON_FORK, nice, 0, SLICE_NS, 0, 0)
        ctypes.CDLL(None).syscall(number, pid, attr, 0)
