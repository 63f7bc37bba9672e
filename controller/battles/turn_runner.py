"""The turns that run in this controller: starts them, stops them, and releases them when the controller shuts down.

Other controllers cannot reach a turn here directly; they write a request to stop into its battle in Redis.
"""

import asyncio
import logging
from collections.abc import Mapping

from controller.battles.battle_record import Battle, StoredTurn
from controller.battles.battle_store import BegunTurn, TurnStore
from controller.battles.shared_pace import SharedPace
from controller.battles.turn_progress import SideProgress
from controller.battles.turn_run import TurnRun
from controller.battles.turn_tools import TurnTools
from controller.battles.turn_writer import TurnWriter
from controller.workers.dispatch import Lane
from service_kit.logs import log_event, short
from wire.battles import Side
from wire.ids import BattleId

AT_ONCE = 1e6  #: characters a second

_logger = logging.getLogger(__name__)


class TurnRunner:
    """Owns the tasks of running turns. `flush_s` and `patience_s` are those of TurnWriter."""

    def __init__(self, store: TurnStore, tools: TurnTools, *, flush_s: float, patience_s: float) -> None:
        self._store = store
        self._tools = tools
        self._flush_s = flush_s
        self._patience_s = patience_s
        self._running: dict[str, tuple[TurnRun, asyncio.Task[None]]] = {}

    @property
    def num_running(self) -> int:
        """Turns that run in this controller now."""
        return len(self._running)

    def start(self, battle: Battle, begun: BegunTurn, asked: StoredTurn, lanes: dict[Side, Lane]) -> TurnRun:
        """Run a turn in a background task, which closes `lanes`. The arguments are those of TurnRun."""
        run = TurnRun(battle, begun, asked, self._writer(battle, begun), self._tools, lanes=lanes)
        self._run(run)
        self._tools.trails.note(begun.battle_id, "began", turn=begun.turn)
        log_event(_logger, "turn_began", battle=short(begun.battle_id), turn=begun.turn)
        return run

    def take_over(
        self,
        begun: BegunTurn,
        battle: Battle,
        asked: StoredTurn,
        progress: Mapping[Side, SideProgress],
        *,
        is_given_up: bool,
    ) -> None:
        """Run the rest of a turn that another controller began. The arguments are those of TurnRun."""
        # Text that waits goes on waiting, also where the setting was changed meanwhile.
        writer = self._writer(battle, begun, is_paced=any(side.waiting for side in progress.values()))
        self._run(TurnRun(battle, begun, asked, writer, self._tools, progress=progress, is_given_up=is_given_up))
        self._tools.metrics.failovers.labels("takeover").inc()
        age_ms = round(begun.age_s * 1000)
        self._tools.trails.note(begun.battle_id, "taken_over", turn=begun.turn, ms=age_ms)
        log_event(_logger, "turn_taken_over", battle=short(begun.battle_id), turn=begun.turn, age_ms=age_ms)

    def _writer(self, battle: Battle, begun: BegunTurn, *, is_paced: bool = False) -> TurnWriter:
        speed = self._tools.pace_of(battle)
        pace = SharedPace(speed or AT_ONCE, age_s=begun.age_s) if speed or is_paced else None
        return TurnWriter(
            self._store,
            begun,
            flush_s=self._flush_s,
            patience_s=self._patience_s,
            pace=pace,
            shows_thoughts=battle.names_are_known,
            sides=tuple(battle.sides),
        )

    def _run(self, run: TurnRun) -> None:
        task = asyncio.create_task(run.run())
        self._running[run.begun.owner] = (run, task)
        task.add_done_callback(lambda _: self._running.pop(run.begun.owner, None))

    def stop(self, battle_id: BattleId) -> None:
        """Stop the turn of a battle at once if it runs here. Another controller reads the request from the store."""
        for run, _ in self._running.values():
            if run.begun.battle_id == battle_id:
                run.stop()

    async def close(self) -> None:
        """Release all running turns, so that other controllers go on with them at once; return when that is written."""
        await asyncio.gather(*(_ended(task) for _, task in list(self._running.values())))


async def _ended(task: "asyncio.Task[None]") -> None:
    """Cancel once and wait: the cancelled turn still writes its release."""
    task.cancel()
    await asyncio.wait((task,))
