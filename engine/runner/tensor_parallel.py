"""Loads a model with tensor parallelism: starts the follower processes, or joins those that torchrun has started."""

import logging
import os
from dataclasses import replace

from torch.distributed import Store, rendezvous  # type: ignore[attr-defined]

from engine.config import EngineConfig
from engine.errors import NotDivisible, RankLost
from engine.layers.weights import ShapesOnly
from engine.loader import find_model_folder, read_config
from engine.models.config_reader import ConfigReader
from engine.models.registry import architecture_of
from engine.parallel.codec import Codec
from engine.parallel.collectives import TorchGroup
from engine.parallel.followers import Followers
from engine.parallel.group import Place, Solo
from engine.parallel.sockets import keep_to_own_socket
from engine.parallel.torchrun import torchrun_place
from engine.runner.follower import follow
from engine.runner.leader import CONFIG_KEY, REVISION_KEY, Leader, explained
from engine.runner.load import LoadedModel, choose_device, load_runner, revision_of

_log = logging.getLogger(__name__)


def load_divided(config: EngineConfig) -> LoadedModel:
    """As load_runner, for config.tensor_parallel above 1. Raises NotDivisible, RankLost and CheckpointError.

    Under torchrun every process calls this. It returns in rank 0 only; the other ranks follow that one until it ends,
    and then raise SystemExit.
    """
    _refuse_what_cannot_be_divided(config)
    if follow_if_told_to(config):
        raise SystemExit(0)
    place = torchrun_place(os.environ, config.tensor_parallel)
    return _lead_own(config) if place is None else _lead(config, place, _torchrun_store(), None)


def follow_if_told_to(config: EngineConfig) -> bool:
    """If torchrun has started this process as rank 1 or above: follow rank 0 until it ends, then return True. Otherwise
    return False at once."""
    place = torchrun_place(os.environ, config.tensor_parallel)
    if place is None or place.rank == 0:
        return False
    follow(_torchrun_store(), place, is_local=_is_local(place), model=config.model)
    return True


def _torchrun_store() -> Store:
    """Where the processes meet. Raises RankLost if they do not, within minutes."""
    try:
        store: Store = next(rendezvous("env://"))[0]
    except RuntimeError as error:
        where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        raise RankLost(f"the processes of the model did not meet at {where}: {str(error).splitlines()[0]}") from None
    return store


def _is_local(place: Place) -> bool:
    return place.local_size == place.size


def _refuse_what_cannot_be_divided(config: EngineConfig) -> None:
    """Raises NotDivisible, before any process is started."""
    settings = ConfigReader(read_config(find_model_folder(config.model)))
    architecture = architecture_of(settings)
    if not architecture.is_divisible:
        raise NotDivisible(f"tensor parallelism of {architecture.name} is not supported")
    others = Solo(Place(size=config.tensor_parallel))
    architecture.build(settings, ShapesOnly(group=others))


def _lead_own(config: EngineConfig) -> LoadedModel:
    size = config.tensor_parallel
    choose_device(config.device, size - 1)  # raises before any process is started if there are too few devices
    followers = Followers(size, "engine.runner")
    try:
        return _lead(config, Place(size=size, local_size=size), followers.store, followers)
    except BaseException as error:
        reason = explained(error, followers) if isinstance(error, RankLost) else error
        followers.close()
        raise reason from error.__cause__


def _lead(config: EngineConfig, place: Place, store: Store, followers: Followers | None) -> LoadedModel:
    store.set(REVISION_KEY, revision_of(config))
    store.set(CONFIG_KEY, Codec(EngineConfig).encode(config).decode())
    if followers is not None:
        followers.wait_until_ready()
    device = choose_device(config.device, place.local_rank)
    if device.type == "cpu":
        keep_to_own_socket(place)
    group = TorchGroup(store, place, device, is_local=_is_local(place))
    if followers is not None:

        def on_loss(reason: str) -> None:
            _log.error("%s", reason)
            group.abort()

        followers.watch(on_loss)
    loaded = load_runner(config, group)
    leader = Leader(loaded.runner, group, followers)
    info = replace(
        loaded.info,
        device=f"{loaded.info.device} x {place.size}",
        operators=f"{loaded.info.operators}, {place.size} ranks",  # for the log and for metrics
    )
    return replace(loaded, runner=leader, info=info, is_alive=leader.is_alive)
