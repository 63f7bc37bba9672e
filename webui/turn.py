"""What a visitor does in a battle, without the page: ask, regenerate, resume, stop, vote.

Every action is an async generator of sessions; the page shows each as it comes. Both battle pages use these and nothing
else. Model text is gathered for a short while before each new session, so that a page is updated about ten times a
second however fast the models are. Gradio is not known here.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TypeVar

from webui import texts
from webui.client import ControllerClient, ControllerUnreachable, StreamLost
from webui.session import BattleEvent, Session, from_view, standings
from wire.battles import CreateBattle, Outcome
from wire.errors import ApiError, ErrorCode
from wire.leaderboard import LeaderboardView

#: Overload that passes by itself: the page waits in line for this long before it gives the prompt back.
_WAITING_CODES = frozenset({ErrorCode.QUEUE_FULL, ErrorCode.NO_WORKER, ErrorCode.SHUTTING_DOWN})
_MAX_WAIT_S = 20.0
_QUICK_VOTE_S = 0.7  #: a vote that takes longer is announced; a quick one needs no words
_RATING_DELAYS_S = (0.2, 0.5, 1.0, 1.5)

T = TypeVar("T")
Sessions = AsyncGenerator[Session, None]
Events = AsyncGenerator[BattleEvent, None]


@dataclass(frozen=True, slots=True)
class Turns:
    """The actions, bound to a controller. Holds no visitor's state: sessions go in and come out."""

    client: ControllerClient
    update_interval_s: float
    #: A board that is at most a second old and shared by all visitors, for the ratings before a vote.
    known_board: Callable[[str], Awaitable[LeaderboardView]]

    async def ask(self, session: Session, content: str, opening: CreateBattle, visitor: str) -> Sessions:
        """One more turn; a new battle where there is none or the last one is over."""
        content = content.strip()
        if not content or session.is_busy:
            yield session
            return
        before = Session(mode=opening.mode) if session.battle_id is None or session.is_over else session
        current = before.asking(content)
        yield current
        try:
            if before.battle_id is None:
                deadline = time.monotonic() + _MAX_WAIT_S
                while current.battle_id is None:
                    try:
                        view = await self.client.create_battle(opening, visitor)
                    except ApiError as error:
                        if error.code not in _WAITING_CODES or time.monotonic() > deadline:
                            raise
                        yield replace(current, notice=texts.WAITING_FOR_ROOM)
                        await asyncio.sleep(error.retry_after_s or 1.0)
                        continue
                    opened = from_view(view)
                    before = replace(opened, mode=opening.mode)
                    current = replace(current, battle_id=view.id, names=opened.names, max_turns=view.max_turns)
                    yield current  # from now on a reloaded page finds the battle
            assert current.battle_id is not None
            number = len(current.exchanges)
            events = self.client.turn(current.battle_id, number, content, visitor)
            async with aclosing(self._follow(current, events)) as sessions:
                async for current in sessions:
                    yield current
        except (ApiError, ControllerUnreachable) as error:
            # The turn was not taken: what was typed goes back into the box.
            yield replace(before, notice=_sentence(error), draft=content, is_busy=False)
        except StreamLost:
            yield replace(current, notice=texts.STREAM_LOST, can_resume=True, is_busy=False)

    async def regenerate(self, session: Session, visitor: str) -> Sessions:
        """Answer the last turn again."""
        if session.battle_id is None or not session.is_votable:
            yield session
            return
        current = session.asking_again()
        yield current
        try:
            async with aclosing(self._follow(current, self.client.regenerate(session.battle_id, visitor))) as sessions:
                async for current in sessions:
                    # A refused regeneration leaves the answers that were there.
                    yield (
                        current if current.refusal_code is None else replace(session, refusal_code=current.refusal_code)
                    )
        except (ApiError, ControllerUnreachable) as error:
            yield replace(session, notice=_sentence(error))
        except StreamLost:
            yield replace(current, notice=texts.STREAM_LOST, can_resume=True, is_busy=False)

    async def restore(self, battle_id: str, visitor: str) -> Sessions:
        """What a reloaded page shows: the whole battle, and the rest of its stream if it is still running."""
        try:
            current = from_view(await self.client.battle(battle_id, visitor))
        except ApiError as error:
            gone = error.code in (ErrorCode.BATTLE_NOT_FOUND, ErrorCode.NOT_YOUR_BATTLE)
            yield Session() if gone else Session(notice=_sentence(error))
            return
        except ControllerUnreachable:
            yield Session(battle_id=battle_id, notice=texts.UNREACHABLE, can_resume=True)
            return
        if current.state == "voted" and current.names is not None:
            yield await self._with_standings(current, visitor)
            return
        if current.state != "streaming":
            yield current
            return
        current = replace(current, is_busy=True)
        yield current
        try:
            async with aclosing(self._follow(current, self.client.resume(battle_id, visitor))) as sessions:
                async for current in sessions:
                    yield current
        except ApiError:
            # The turn ended between the two requests; the view tells how.
            yield from_view(await self.client.battle(battle_id, visitor))
        except (ControllerUnreachable, StreamLost):
            yield replace(current, notice=texts.STREAM_LOST, can_resume=True, is_busy=False)

    async def stop(self, session: Session, visitor: str) -> None:
        """End both answers early. The stream itself then tells how they ended."""
        if session.battle_id is not None:
            await self.client.stop(session.battle_id, visitor)

    async def vote(self, session: Session, outcome: Outcome, visitor: str) -> Sessions:
        """Record the vote, show the names at once, then what the vote did to the ratings."""
        if session.battle_id is None or not session.is_votable:
            yield session
            return
        try:
            before = await self.known_board(visitor)
        except (ApiError, ControllerUnreachable):
            before = None
        voting = asyncio.ensure_future(self.client.vote(session.battle_id, outcome, visitor))
        await asyncio.wait([voting], timeout=_QUICK_VOTE_S)
        if not voting.done():
            yield replace(session, notice=texts.VOTING)
        try:
            reply = await voting
        except ControllerUnreachable:
            yield replace(session, notice=texts.VOTE_UNKNOWN)
            return
        except ApiError as error:
            if error.code is not ErrorCode.BATTLE_ALREADY_VOTED:
                yield replace(session, notice=_sentence(error))
                return
            async with aclosing(self.restore(session.battle_id, visitor)) as sessions:
                async for restored in sessions:
                    yield restored
            return
        revealed = session.revealed(reply.models, reply.outcome, is_rated=reply.rated)
        yield revealed
        for delay_s in _RATING_DELAYS_S:
            await asyncio.sleep(delay_s)
            try:
                after = await self.client.leaderboard(visitor)
            except (ApiError, ControllerUnreachable):
                continue
            if before is None or after.num_votes > before.num_votes or not reply.rated:
                break
        else:
            return  # the ratings are late; the next look at the board will tell
        assert revealed.names is not None
        yield replace(revealed, standings=standings(revealed.names, before, after))

    async def _with_standings(self, session: Session, visitor: str) -> Session:
        """Where the models of an earlier vote stand now."""
        assert session.names is not None
        try:
            return replace(session, standings=standings(session.names, None, await self.known_board(visitor)))
        except (ApiError, ControllerUnreachable):
            return session

    async def _follow(self, session: Session, events: Events) -> Sessions:
        async with aclosing(batches(events, self.update_interval_s)) as gathered:
            async for batch in gathered:
                session = session.after(batch)
                yield session


async def batches(events: AsyncGenerator[T, None], interval_s: float) -> AsyncGenerator[list[T], None]:
    """All events that arrived during one interval, together; the first one without waiting."""
    queue: asyncio.Queue[T | Exception | None] = asyncio.Queue()

    async def read() -> None:
        try:
            async with aclosing(events):
                async for event in events:
                    queue.put_nowait(event)
            queue.put_nowait(None)
        except Exception as error:
            queue.put_nowait(error)

    reader = asyncio.create_task(read())
    try:
        while True:
            arrived = [await queue.get()]
            while not queue.empty():
                arrived.append(queue.get_nowait())
            end = arrived[-1]
            batch = [item for item in arrived if item is not None and not isinstance(item, Exception)]
            if batch:
                yield batch
            if isinstance(end, Exception):
                raise end
            if end is None:
                return
            await asyncio.sleep(interval_s)
    finally:
        reader.cancel()
        await asyncio.wait([reader])


def _sentence(error: ApiError | ControllerUnreachable) -> str:
    return texts.UNREACHABLE if isinstance(error, ControllerUnreachable) else texts.failure(error.code)
