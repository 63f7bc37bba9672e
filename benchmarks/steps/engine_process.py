"""`python -m benchmarks.steps.engine_process FD`: the process of an engine on an idle device, started by served.py."""

import os
import sys

os.environ["TRITON_INTERPRET"] = "0"  # before Triton is imported

from benchmarks.steps.idle_device import IdleDevice
from benchmarks.steps.load import DEVICE_S, load_idle
from engine.engine_process.child import serve_parent

if __name__ == "__main__":
    sys.exit(serve_parent(lambda config: load_idle(config, IdleDevice(), DEVICE_S)[0]))
