"""Votes that can still be taken back: each is sent some seconds after the click, also if its page was closed.

Until then nothing is recorded and no name is shown. The bookmark of the browser has the vote, too: a page that is
opened again after this service was killed sends it again, and the controller records one vote of a battle.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from webui.battle.session import Choice
from webui.client import ControllerClient
from webui.controllers import ControllerUnreachable, is_elsewhere
from webui.visitors import Visitor
from wire.battles import VoteReply
from wire.errors import ApiError
from wire.ids import BattleId
from wire.leaderboard import LeaderboardView

MOST_WAITING: Final = 10_000  #: beyond it votes are sent at once
KEPT_S: Final = 60.0  #: how long the end of a vote is known here
PATIENCE_S: Final = 600.0  #: a vote is sent again for so long while no controller can record it
RETRY_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """The answer of the controller, and the board just before: it tells by how much the vote moved the ratings."""

    reply: VoteReply
    before: LeaderboardView | None


Cast = Callable[[BattleId, Choice, Visitor], Awaitable[Recorded]]
_Key = tuple[BattleId, str]


class PendingVotes:
    """The votes of this process that are not recorded yet. `cast` sends one to the controller `undo_s` after the click,
    0 at once."""

    def __init__(self, cast: Cast, undo_s: float) -> None:
        self._cast = cast
        self.undo_s = undo_s
        self._votes: dict[_Key, _PendingVote] = {}
        self._is_closing = False

    def choose(self, battle_id: BattleId, choice: Choice, visitor: Visitor) -> None:
        """Begin to wait, unless a vote of this visitor on this battle waits already."""
        key = _key(battle_id, visitor)
        known = self._votes.get(key)
        if known is not None and known.task is not None and not known.task.done():
            return
        wait_s = self.undo_s if len(self._votes) < MOST_WAITING else 0.0
        vote = self._votes[key] = _PendingVote()
        vote.task = asyncio.create_task(self._send(vote, battle_id, choice, visitor, wait_s))
        vote.task.add_done_callback(lambda _: self._forget_later(key, vote))

    def undo(self, battle_id: BattleId, visitor: Visitor) -> bool:
        """Take the vote back; False if it is being sent, or was."""
        vote = self._votes.get(_key(battle_id, visitor))
        if vote is None or vote.is_sent or vote.is_undone:
            return False
        vote.is_undone = True
        vote.over.set()
        return True

    def send_now(self, battle_id: BattleId, visitor: Visitor) -> None:
        """End the wait of a vote: the visitor goes on to another battle."""
        vote = self._votes.get(_key(battle_id, visitor))
        if vote is not None:
            vote.over.set()

    def result(self, battle_id: BattleId, visitor: Visitor) -> "asyncio.Task[Recorded | None] | None":
        """The task that ends with the answer of the controller, or with None if the vote was taken back. None if no
        such vote waits."""
        vote = self._votes.get(_key(battle_id, visitor))
        return None if vote is None else vote.task

    async def close(self) -> None:
        """Send all at once, before this process ends."""
        self._is_closing = True
        votes = list(self._votes.values())
        for vote in votes:
            vote.over.set()
        await asyncio.gather(*(vote.task for vote in votes if vote.task is not None), return_exceptions=True)

    def _forget_later(self, key: _Key, vote: "_PendingVote") -> None:
        def forget() -> None:
            if self._votes.get(key) is vote:
                del self._votes[key]

        asyncio.get_running_loop().call_later(KEPT_S, forget)

    async def _send(
        self, vote: "_PendingVote", battle_id: BattleId, choice: Choice, visitor: Visitor, wait_s: float
    ) -> Recorded | None:
        try:
            async with asyncio.timeout(wait_s):
                await vote.over.wait()
        except TimeoutError:
            pass
        if vote.is_undone:
            return None
        vote.is_sent = True
        give_up_at = time.monotonic() + PATIENCE_S
        while True:  # the controller records a vote once, however often it is sent
            try:
                return await self._cast(battle_id, choice, visitor)
            except (ApiError, ControllerUnreachable) as error:
                if self._is_closing or not is_elsewhere(error) or time.monotonic() > give_up_at:
                    raise
            await asyncio.sleep(RETRY_S)


def casting(client: ControllerClient, known_board: Callable[[Visitor], Awaitable[LeaderboardView]]) -> Cast:
    """Votes through `client`. `known_board`: a board that is at most a second old and shared by all visitors."""

    async def cast(battle_id: BattleId, choice: Choice, visitor: Visitor) -> Recorded:
        try:
            before = await known_board(visitor)
        except (ApiError, ControllerUnreachable):
            before = None
        reply = await client.vote(
            battle_id, choice.outcome, visitor, has_consent=choice.has_consent, number=choice.number
        )
        return Recorded(reply, before)

    return cast


class _PendingVote:
    def __init__(self) -> None:
        self.task: asyncio.Task[Recorded | None] | None = None
        self.over = asyncio.Event()  #: ends the wait
        self.is_undone = False
        self.is_sent = False


def _key(battle_id: BattleId, visitor: Visitor) -> _Key:
    return battle_id, visitor.user or visitor.cookie or visitor.address
