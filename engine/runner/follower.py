"""Ranks 1 and up: load a shard of the model, then run every plan that rank 0 tells, until it tells the end or is gone.

`python -m engine.runner RANK SIZE PORT` is what the leader starts; under torchrun the process calls `follow` itself.
"""

import logging
import sys

from torch.distributed import Store  # type: ignore[attr-defined]

from engine.config import EngineConfig
from engine.errors import EngineError, RankLost
from engine.parallel.codec import Codec
from engine.parallel.collectives import TorchGroup
from engine.parallel.followers import leave_signals_to_leader, meet_leader, say_failed, say_ready
from engine.parallel.group import Place
from engine.parallel.sockets import keep_to_own_socket
from engine.runner.leader import CONFIG_KEY, END, plan_codec
from engine.runner.load import choose_device, load_runner

_log = logging.getLogger(__name__)


def follow(store: Store, place: Place, *, is_local: bool) -> None:
    """Returns when rank 0 has ended in order. Raises RankLost where it has gone, and whatever loading raises."""
    leave_signals_to_leader()
    config = Codec(EngineConfig).decode(store.get(CONFIG_KEY))
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
            runner.collect()  # nobody needs the output here
            num_in_flight -= 1
        runner.launch(plan)
        num_in_flight += 1
    runner.close()
    group.close()


def main() -> int:
    rank, size, port = map(int, sys.argv[1:])
    logging.basicConfig(format=f"rank {rank}: %(message)s", level=logging.WARNING)
    store = meet_leader(port)
    try:
        follow(store, Place(rank, size, local_rank=rank, local_size=size), is_local=True)
    except RankLost:  # whoever has gone, the leader finds the words for it
        return 1
    except EngineError as error:
        say_failed(store, rank, str(error))
        return 1
    except Exception as error:
        _log.exception("a process of tensor parallelism has died")
        say_failed(store, rank, repr(error))
        return 1
    return 0
