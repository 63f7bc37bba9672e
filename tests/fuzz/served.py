"""`python -m tests.fuzz.served MODULE ARGUMENTS...`: a service as `python -m MODULE` runs it, with a probe on its loop.

Each line on standard input is answered by one line on standard output: what the probe has seen since the last one.
"""

import asyncio
import json
import os
import resource
import runpy
import sys
import time
from typing import Any

import uvicorn

TICK_S = 0.005
MOST_OF_IT = 0.8


class Probe:
    """Wakes up every TICK_S and notes by how much it was late.

    On a machine that others use, too, a late wake-up is mostly the kernel's scheduling. A stall of ours costs processor
    time: `stall_ms` is the time that the loop's own thread computed, or the whole delay where the process computed most
    of it (a thread that holds the interpreter's lock). `delay_ms` is every delay, whatever its reason.
    """

    def __init__(self) -> None:
        self._stall_s = self._delay_s = 0.0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(0, self._answer)
        while True:
            due, process_s, thread_s = time.monotonic() + TICK_S, time.process_time(), time.thread_time()
            await asyncio.sleep(TICK_S)
            delay_s = time.monotonic() - due
            self._delay_s = max(self._delay_s, delay_s)
            is_ours = time.process_time() - process_s > MOST_OF_IT * delay_s
            stall_s = delay_s if is_ours else min(delay_s, time.thread_time() - thread_s)
            self._stall_s = max(self._stall_s, stall_s)

    def _answer(self) -> None:
        if not os.read(0, 4096):
            asyncio.get_running_loop().remove_reader(0)
            return
        seen = {
            "stall_ms": round(self._stall_s * 1000, 1),
            "delay_ms": round(self._delay_s * 1000, 1),
            "rss_mb": round(_rss_mb(), 1),
            "descriptors": len(os.listdir("/proc/self/fd")),
            "tasks": len(asyncio.all_tasks()),
            "cpu_s": round(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]), 2),
        }
        self._stall_s = self._delay_s = 0.0
        print(json.dumps(seen), flush=True)


def _rss_mb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def main() -> None:
    module, sys.argv[1:] = sys.argv[1], sys.argv[2:]
    serve = uvicorn.Server.serve

    async def probed(self: uvicorn.Server, *args: Any, **kwargs: Any) -> None:
        probe = asyncio.create_task(Probe().run())
        try:
            await serve(self, *args, **kwargs)
        finally:
            probe.cancel()

    uvicorn.Server.serve = probed  # type: ignore[method-assign]  # the service is the real one, but for this task
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
