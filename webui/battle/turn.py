"""The actions of a visitor in a battle, without the page: ask, regenerate, resume, stop, vote.

An action takes a session and yields new ones; the page shows each as it comes. Asking has two halves: `begin` changes
much of the page once or twice, `follow` changes only the text. Both battle pages use these actions and nothing else.
Events are batched for a short time before each new session, so that a page is updated about ten times a second however
fast the models are. This module does not know Gradio.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from webui import sentences, texts
from webui.answers import StreamEvent
from webui.batches import batches
from webui.battle.pending_votes import PendingVotes
from webui.battle.session import Bookmark, Choice, Session, from_view, standings
from webui.client import ControllerClient
from webui.controllers import ControllerUnreachable, is_elsewhere
from webui.ranking.words import card_facts
from webui.turn_streams import StreamLost
from webui.visitors import Visitor
from webui.waiting_line import MAX_WAIT_S, WAITING_CODES, Place
from wire.battles import SIDES, BattleState, BattleView, CreateBattle, Mode, Side
from wire.errors import ApiError, ErrorCode
from wire.ids import BattleId
from wire.leaderboard import LeaderboardView

#: `begin` waits so long where no controller could serve: workers come back some time after it.
_MAX_AWAY_S = 90.0
#: Another page has gone on with the battle.
_GONE_ON_CODES = frozenset({ErrorCode.BATTLE_BUSY, ErrorCode.STALE_TURN})
_GONE_CODES = frozenset({ErrorCode.BATTLE_NOT_FOUND, ErrorCode.NOT_YOUR_BATTLE})
_READ_DELAYS_S = (0.3, 0.7, 1.0, 2.0, 3.0)
_QUICK_VOTE_S = 0.7  #: a vote that takes longer shows a notice
_RATING_DELAYS_S = (0.2, 0.5, 1.0, 1.5)

T = TypeVar("T")
Sessions = AsyncGenerator[Session, None]


@dataclass(frozen=True, slots=True)
class Turns:
    """The actions, bound to a controller. Holds no visitor's state."""

    client: ControllerClient
    update_interval_s: float
    #: A board that is at most a second old and shared by all visitors, for the ratings before a vote.
    known_board: Callable[[Visitor], Awaitable[LeaderboardView]]
    pending_votes: PendingVotes
    max_prompt_chars: int = 8000

    async def begin(self, session: Session, content: str, opening: CreateBattle, visitor: Visitor) -> Sessions:
        """Show the prompt and find a battle for it: a new one if there is none or the last one is over. Ends with a
        session for `follow`, or with the prompt back in the box."""
        content = content.strip()
        if not content or session.is_busy:
            yield session
            return
        if len(content) > self.max_prompt_chars:
            yield session.ended(sentences.too_long(len(content), self.max_prompt_chars), unsent_text=content)
            return
        before = Session(mode=opening.mode) if session.battle_id is None or session.is_over else session
        current = before.asking(content)
        yield current
        began = time.monotonic()
        deadline = began + MAX_WAIT_S
        with ExitStack() as at_end:
            place: Place | None = None
            while current.battle_id is None:
                try:
                    view = await self.client.create_battle(opening, visitor)
                    current = replace(current, battle_id=view.id, names=from_view(view).names, max_turns=view.max_turns)
                    yield current  # from now on a reloaded page finds the battle
                    return
                except (ApiError, ControllerUnreachable) as error:
                    is_full = isinstance(error, ApiError) and error.code in WAITING_CODES
                    if is_elsewhere(error):
                        deadline = began + _MAX_AWAY_S
                    if not (is_full or is_elsewhere(error)) or time.monotonic() > deadline:
                        yield before.ended(_sentence(error), unsent_text=content)
                        return
                    wait_s = getattr(error, "retry_after_s", None) or 1.0
                if is_full and place is None:
                    place = at_end.enter_context(self.client.line.place())
                if place is None:
                    yield replace(current, notice=texts.ARENA_AWAY)
                    await asyncio.sleep(wait_s)
                    continue
                async with aclosing(place.wait(wait_s, deadline)) as heard:
                    async for num_before in heard:
                        yield replace(current, notice=sentences.waiting_in_line(num_before))

    def begin_again(self, session: Session) -> Session:
        """Answer the last turn again."""
        return session.asking_again() if session.is_votable else session

    async def take_up(self, bookmark: Bookmark, mode: Mode, visitor: Visitor) -> Session:
        """What a reloaded page shows. A prompt that the controller never got is sent by `follow`, or is put back into
        the box if its battle takes no turn any more."""
        if bookmark.battle_id is None:
            return Session(mode=mode, unsent_text=bookmark.asked)
        session = await self.restore(bookmark.battle_id, visitor)
        if bookmark.choice is not None:
            if session.state != "voted" and bookmark.choice.number not in (None, len(session.exchanges)):
                return replace(session, notice=texts.WENT_ON)
            return self.choose(session, bookmark.choice, visitor)
        if bookmark.asked is None or session.can_resume:
            return session
        if len(session.exchanges) >= bookmark.number > 0:
            if session.exchanges[bookmark.number - 1].content == bookmark.asked:
                return session
            # Another page's question has this number.
            return replace(session, notice=sentences.failure(ErrorCode.STALE_TURN), unsent_text=bookmark.asked)
        if session.battle_id is None or session.is_over or session.is_busy:
            return replace(session, unsent_text=bookmark.asked)
        return session.asking(bookmark.asked)

    async def restore(self, battle_id: BattleId, visitor: Visitor) -> Session:
        """The whole battle as the controller has it. `follow` resumes it if a turn is still running."""
        try:
            session = from_view(await self._read(battle_id, visitor))
        except (ApiError, ControllerUnreachable) as error:
            if isinstance(error, ApiError) and error.code in _GONE_CODES:
                return Session()
            return Session(battle_id=battle_id, notice=_sentence(error), can_resume=True)
        if session.state == "voted":
            with suppress(ApiError, ControllerUnreachable):  # another visitor's battle, or an older controller
                session = replace(session, feedback=await self.client.feedback(battle_id, visitor))
            return await self._with_standings(session, visitor)
        return session.resuming() if session.state == "streaming" else session

    async def _read(self, battle_id: BattleId, visitor: Visitor) -> BattleView:
        """The battle, read again for a while if no controller can answer."""
        for delay_s in _READ_DELAYS_S:
            try:
                return await self.client.battle(battle_id, visitor)
            except (ApiError, ControllerUnreachable) as error:
                if not is_elsewhere(error):
                    raise
            await asyncio.sleep(delay_s)
        return await self.client.battle(battle_id, visitor)

    async def follow(self, session: Session, visitor: Visitor) -> Sessions:
        """Send the pending request and follow its stream to the end."""
        if session.pending is None or session.battle_id is None:
            yield session
            return
        current = replace(session, pending=None, unsent_text=None)  # the page has shown it
        yield current
        try:
            async with aclosing(self._stream(session, session.battle_id, visitor)) as sessions:
                async for current in sessions:
                    yield current
        except (ApiError, ControllerUnreachable) as error:
            if isinstance(error, ApiError) and error.code in _GONE_ON_CODES and session.pending != "resume":
                asked = session.exchanges[-1].content if session.pending == "turn" else None
                async with aclosing(self._gone_on(session.battle_id, visitor, error.code, asked)) as sessions:
                    async for current in sessions:
                        yield current
            elif session.pending == "turn":
                # The turn was not taken: its text goes back into the box.
                untaken = replace(current, exchanges=current.exchanges[:-1], state=_state_without_turn(session))
                yield untaken.ended(_sentence(error), unsent_text=session.exchanges[-1].content)
            else:
                yield (await self.restore(session.battle_id, visitor)).ended(_sentence(error))
        except StreamLost:
            yield current.ended(texts.STREAM_LOST, can_resume=True)

    async def _gone_on(
        self, battle_id: BattleId, visitor: Visitor, code: ErrorCode, asked: str | None = None
    ) -> Sessions:
        """The battle, with which another page has gone on, to the end of the turn that runs. Then the prompt `asked` of
        this page goes back into the box, unless it is the one that was answered."""
        current = await self.restore(battle_id, visitor)
        async with aclosing(self.follow(current, visitor)) as sessions:
            async for current in sessions:
                yield current
        if asked is None:
            yield replace(current, notice=current.notice or texts.WENT_ON)
        elif code is ErrorCode.STALE_TURN:
            yield replace(current, notice=current.notice or sentences.failure(code), unsent_text=asked)
        elif not current.exchanges or current.exchanges[-1].content != asked:
            yield replace(current, unsent_text=asked)

    async def _stream(self, session: Session, battle_id: BattleId, visitor: Visitor) -> Sessions:
        """The session after each batch of events."""
        current = replace(session, pending=None)
        events = self._pending_events(session, battle_id, visitor)
        async with aclosing(batches(events, self.update_interval_s)) as gathered:
            async for batch in gathered:
                current = current.after(batch)
                if session.pending != "turn" and current.refusal_code is not None:
                    break
                yield current
            else:
                return
        # After a refused regeneration the battle still has its old answers: read it again.
        yield replace(await self.restore(battle_id, visitor), refusal_code=current.refusal_code)

    def _pending_events(
        self, session: Session, battle_id: BattleId, visitor: Visitor
    ) -> AsyncGenerator[StreamEvent, None]:
        match session.pending:
            case "regenerate":
                return self.client.regenerate(battle_id, len(session.exchanges), visitor)
            case "resume":
                return self.client.resume(battle_id, visitor)
            case _:
                content = session.exchanges[-1].content
                return self.client.turn(battle_id, len(session.exchanges), content, visitor)

    async def stop(self, session: Session, visitor: Visitor) -> None:
        """End both answers early; the stream tells how they ended."""
        if session.battle_id is not None:
            await self.client.stop(session.battle_id, visitor)

    def choose(self, session: Session, choice: Choice, visitor: Visitor) -> Session:
        """The visitor has clicked a vote: it can be taken back for a moment, and `finish_vote` tells how it ends."""
        if session.battle_id is None or not session.is_votable:
            return session
        choice = replace(choice, number=len(session.exchanges))
        self.pending_votes.choose(session.battle_id, choice, visitor)
        return replace(session, choice=choice, notice=None)

    def undo(self, session: Session, visitor: Visitor) -> Session:
        """Take the vote back, if it is not on its way."""
        if session.battle_id is None or session.choice is None:
            return session
        is_undone = self.pending_votes.undo(session.battle_id, visitor)
        return replace(session, choice=None) if is_undone else replace(session, notice=texts.VOTING)

    def send_now(self, session: Session, visitor: Visitor) -> None:
        """The visitor goes on to another battle: a vote that waits is sent."""
        if session.battle_id is not None and session.choice is not None:
            self.pending_votes.send_now(session.battle_id, visitor)

    async def finish_vote(self, session: Session, visitor: Visitor) -> Sessions:
        """Wait until the vote of this session is recorded, show the names at once, then the change of both ratings.
        Yields nothing if it is taken back."""
        if session.battle_id is None or session.choice is None:
            return
        voting = self.pending_votes.result(session.battle_id, visitor)
        if voting is None:  # its end is forgotten here; the controller knows it
            yield await self.restore(session.battle_id, visitor)
            return
        await asyncio.wait([voting], timeout=self.pending_votes.undo_s + _QUICK_VOTE_S)
        if not voting.done():
            yield replace(session, notice=texts.VOTING)
        battle_id, outcome, session = session.battle_id, session.choice.outcome, replace(session, choice=None)
        try:
            recorded = await asyncio.shield(voting)
        except ControllerUnreachable:
            yield replace(session, notice=texts.VOTE_UNKNOWN)
            return
        except ApiError as error:
            if error.code in (ErrorCode.STALE_TURN, ErrorCode.BATTLE_NOT_FINISHED):
                async with aclosing(self._gone_on(battle_id, visitor, error.code)) as sessions:
                    async for current in sessions:
                        yield current
                return
            if error.code is not ErrorCode.BATTLE_ALREADY_VOTED:
                yield replace(session, notice=_sentence(error))
                return
            now = await self.restore(battle_id, visitor)
            yield now if now.outcome == outcome else replace(now, notice=_sentence(error))
            return
        if recorded is None:
            return
        reply, before = recorded.reply, recorded.before
        revealed = session.revealed(reply.models, reply.outcome, is_rated=reply.rated, flags=reply.flags)
        yield revealed
        with_thoughts = await self._with_thoughts(revealed, battle_id, visitor)
        if with_thoughts is not revealed:
            yield (revealed := with_thoughts)
        for delay_s in _RATING_DELAYS_S:
            await asyncio.sleep(delay_s)
            try:
                after = await self.client.leaderboard(visitor)
            except (ApiError, ControllerUnreachable):
                continue
            if before is None or after.num_votes > before.num_votes or not reply.rated:
                break
        else:
            return  # the ratings are late; the leaderboard will show them
        assert revealed.names is not None
        # A vote that is not rated moves no rating: what differs since `before` is the work of other votes.
        since = before if reply.rated else None
        facts = await self._facts(revealed.names, after, visitor)
        yield replace(revealed, standings=standings(revealed.names, since, after), facts=facts)

    async def _with_thoughts(self, session: Session, battle_id: BattleId, visitor: Visitor) -> Session:
        """What the models of a battle thought, which its events did not tell while they were hidden."""
        if session.mode == "named":
            return session
        try:
            now = from_view(await self.client.battle(battle_id, visitor))
        except (ApiError, ControllerUnreachable):
            return session
        has_thoughts = any(exchange.side(side).thoughts for exchange in now.exchanges for side in SIDES)
        return replace(session, exchanges=now.exchanges) if has_thoughts else session

    async def _with_standings(self, session: Session, visitor: Visitor) -> Session:
        """Where the models of an earlier vote stand now."""
        if session.names is None:
            return session
        try:
            board = await self.known_board(visitor)
        except (ApiError, ControllerUnreachable):
            return session
        facts = await self._facts(session.names, board, visitor)
        return replace(session, standings=standings(session.names, None, board), facts=facts)

    async def _facts(
        self, names: tuple[str, str], board: LeaderboardView, visitor: Visitor
    ) -> dict[Side, tuple[str, ...]]:
        """What the cards of the board and of the workers say of both models; only of revealed ones."""
        try:
            served = {worker.model: worker.card for worker in await self.client.workers(visitor)}
        except (ApiError, ControllerUnreachable):
            served = {}
        return {
            side: card_facts(board.cards.get(name), served.get(name)) for side, name in zip(SIDES, names, strict=True)
        }


def _state_without_turn(session: Session) -> BattleState:
    return "answered" if len(session.exchanges) > 1 else "open"


def _sentence(error: ApiError | ControllerUnreachable) -> str:
    return texts.UNREACHABLE if isinstance(error, ControllerUnreachable) else sentences.failure(error.code)
