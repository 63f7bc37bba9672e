"""Tethers a child process to its parent: `python tether.py PARENT_PID SIGNAL PROGRAM ARGS...` becomes PROGRAM, and the
kernel sends it SIGNAL when the parent dies, even by kill -9. Linux only; elsewhere PROGRAM runs untethered.

It is a program and not a preexec_fn, because Python code between fork and exec is unsafe. Standard library only.
"""

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Set the death signal, then become the program."""
    parent_pid, signal_number, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl failed")
        if os.getppid() != parent_pid:  # the parent died before prctl
            raise SystemExit(1)
    os.execv(program, sys.argv[3:])


if __name__ == "__main__":
    main()
