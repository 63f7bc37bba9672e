"""Replicas as detached actors of Ray, seen from `agon up`: a Placement over two files. Imports no Ray.

`wanted.json` says what should run, and this process alone writes it; `placed.json` says how it is, and the placer
(placer.py) alone writes it. Either side may end and start again at any time.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from cli.arena.placement.groups import write_whole
from cli.arena.placement.placement import PlacementView, Replica, ReplicaView
from cli.arena.placement.worker_process import STOP_S, WorkerOrder

_STALE_S = 5.0
_POLL_S = 0.2


class Wanted(BaseModel):
    """Content of `wanted.json`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    orders: tuple[WorkerOrder, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Self:
        """The content; it is written before the placer starts."""
        return cls.model_validate_json(path.read_bytes())


class RayPlacement:
    """See Placement. `folder` is the arena's own, for the two files."""

    has_machines = True

    def __init__(self, folder: Path, controller_url: str, options: Sequence[str]) -> None:
        """`controller_url`: as the machines of the cluster reach it. `options`: further flags of every worker."""
        self.wanted_path = folder / "wanted.json"
        self.placed_path = folder / "placed.json"
        self._controller_url = controller_url
        self._options = tuple(options)
        self._wanted: tuple[Replica, ...] = ()

    def want(self, replicas: Sequence[Replica]) -> None:
        """See Placement."""
        self._wanted = tuple(replicas)
        orders = tuple(
            WorkerOrder(replica=replica, controller_url=self._controller_url, options=self._options)
            for replica in replicas
        )
        write_whole(self.wanted_path, Wanted(orders=orders).model_dump_json())

    def view(self) -> PlacementView:
        """See Placement. What the placer wrote last, with a `problem` where that was some time ago."""
        try:
            view = PlacementView.model_validate_json(self.placed_path.read_bytes())
        except (FileNotFoundError, ValidationError):
            view = PlacementView()
        listed = {replica.id for replica in view.replicas}
        missing = tuple(
            ReplicaView(id=replica.id, model=replica.model, state="waiting")
            for replica in self._wanted
            if replica.id not in listed
        )
        problem = None if self.is_fresh() else "Ray's head does not answer; nothing can be placed until it is back"
        return view.model_copy(update={"replicas": (*view.replicas, *missing), "problem": problem})

    async def end(self) -> None:
        """See Placement."""
        self.want(())
        give_up_at = time.monotonic() + 2 * STOP_S
        while self.is_fresh() and time.monotonic() < give_up_at:
            if not self.view().replicas:
                return
            await asyncio.sleep(_POLL_S)

    def is_fresh(self) -> bool:
        """Whether the placer has written lately."""
        try:
            return time.time() - self.placed_path.stat().st_mtime < _STALE_S
        except OSError:
            return False
