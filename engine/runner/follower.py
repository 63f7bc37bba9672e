"""A follower process (rank 1 and above): loads its shard of the model, then runs every plan that rank 0 sends, until
rank 0 sends the end message or has gone.

The leader starts it as `python -m engine.runner RANK SIZE PORT`; under torchrun the process calls `follow` itself.
"""

import logging
import sys
from dataclasses import replace

from torch.distributed import Store  # type: ignore[attr-defined]

from engine.config import EngineConfig
from engine.errors import CheckpointError, EngineError, RankLost
from engine.parallel.codec import Codec
from engine.parallel.collectives import TorchGroup
from engine.parallel.followers import meet_leader, say_failed, say_ready
from engine.parallel.group import Place
from engine.parallel.processes import leave_signals_to_parent
from engine.parallel.sockets import keep_to_own_socket
from engine.runner.leader import CONFIG_KEY, END, REVISION_KEY, decode_masks, plan_codec
from engine.runner.load import choose_device, load_runner, revision_of

_log = logging.getLogger(__name__)


def follow(store: Store, place: Place, *, is_local: bool, model: str | None = None) -> None:
    """Follow rank 0 until it ends in order. `model`: the checkpoint on this machine; None: where rank 0 has it. Raises
    RankLost if rank 0 has gone, and what load_runner raises."""
    leave_signals_to_parent()
    config = Codec(EngineConfig).decode(store.get(CONFIG_KEY))
    if model is not None:
        config = replace(config, model=model)
        _compare_checkpoint(config, store.get(REVISION_KEY).decode())
    device = choose_device(config.device, place.local_rank)
    say_ready(store, place.rank)
    if device.type == "cpu":
        keep_to_own_socket(place)
    group = TorchGroup(store, place, device, is_local=is_local)
    runner = load_runner(config, group).runner
    codec = plan_codec()
    num_in_flight = 0
    while (message := group.hear()) != END:
        plan = codec.decode(message)
        if num_in_flight == runner.max_in_flight:
            runner.collect()  # its output is used by rank 0 only
            num_in_flight -= 1
        runner.launch(plan)
        if plan.needs_masks:
            runner.supply_masks(decode_masks(group.hear()))
        num_in_flight += 1
    runner.close()
    group.close()


def _compare_checkpoint(config: EngineConfig, revision: str) -> None:
    """Raises CheckpointError unless this machine has the checkpoint of rank 0: shards of two models make no model."""
    if (own := revision_of(config)) != revision:
        raise CheckpointError(
            f"{config.model} is another checkpoint (revision {own}) than the one of rank 0 (revision {revision})"
        )


def main() -> int:
    """The follower process; returns its exit code. Errors are sent to the leader, which reports them."""
    rank, size, port = map(int, sys.argv[1:])
    logging.basicConfig(format=f"rank {rank}: %(message)s", level=logging.WARNING)
    store = meet_leader(port)
    try:
        follow(store, Place(rank, size, local_rank=rank, local_size=size), is_local=True)
    except RankLost:  # the leader reports which process has gone
        return 1
    except EngineError as error:
        say_failed(store, rank, str(error))
        return 1
    except Exception as error:
        _log.exception("a process of tensor parallelism has died")
        say_failed(store, rank, repr(error))
        return 1
    return 0
