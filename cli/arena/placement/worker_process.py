"""The worker process of one replica: its command line, on whichever machine it runs. Starts nothing."""

import sys

from pydantic import BaseModel, ConfigDict

from cli.arena.placement.placement import Replica
from wire.hosted_models import is_hosted

STOP_S = 35.0  #: a worker may continue the answers that it has begun for 30 s
BAD_SETTINGS, BAD_CHECKPOINT = 2, 3  #: exit codes of a worker that another start would not change
PORT_TAKEN = 5


class WorkerOrder(BaseModel):
    """What every machine is told of a replica. It has no secret: the worker token is in the machine's environment."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    replica: Replica
    controller_url: str
    options: tuple[str, ...] = ()  #: further flags of the worker, those of `agon up`


def worker_command(order: WorkerOrder, *, host: str, port: int, is_gpu_chosen: bool) -> tuple[str, ...]:
    """The command of the worker. `is_gpu_chosen`: the placement gives it its GPUs, so without any it computes on CPU;
    else it takes what it finds."""
    needs = order.replica.needs
    flags = ["--model", f"{order.replica.model}={order.replica.source}"]
    flags += ["--host", host, "--port", str(port), "--controller", order.controller_url]
    if not is_hosted(order.replica.source):
        if needs.gpus > 1:
            flags += ["--tensor-parallel", str(needs.gpus)]
        if needs.gpus == 0:
            flags += ["--threads", str(max(1, int(needs.cpus)))]
        if is_gpu_chosen:
            flags += ["--device", "cuda" if needs.gpus else "cpu"]
    # -P: a folder in the current directory that has the name of one of our packages must not be imported.
    return (sys.executable, "-P", "-m", "model_worker", *flags, *order.options)
