"""`python -m model_worker.engine_process FD`: the engine in a process of its own, which its worker starts."""

import sys

from engine.engine_process.child import serve_parent
from model_worker.logs import LOGGED
from service_kit.logs import configure_logging
from service_kit.telemetry import switch_telemetry_off


def main() -> int:
    """Serve the worker until it ends; returns the exit code."""
    configure_logging(LOGGED)
    switch_telemetry_off()
    return serve_parent()


if __name__ == "__main__":
    sys.exit(main())
