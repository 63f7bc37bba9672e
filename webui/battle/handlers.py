"""What happens on each event of a battle page, anonymous or named.

A page adds two things: its introduction, and how it opens a battle (an Opening).
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import gradio as gr

from webui import sentences, texts
from webui.battle.look import look_of
from webui.battle.parts import BattleParts
from webui.battle.session import Choice, Session, from_storage
from webui.battle.turn import Turns
from webui.controllers import ControllerUnreachable
from webui.seats import Seat
from webui.visitors import Visitor, visitor_of
from webui.widgets import PRIVATE
from wire.battles import CreateBattle, Mode, Outcome
from wire.errors import ApiError

Updates = AsyncGenerator[list[Any], None]

#: Turns the values of the page's settings into a request, or into a sentence that says what is missing.
Opening = Callable[..., CreateBattle | str]


def wire_battle(
    page: Any, parts: BattleParts, turns: Turns, mode: Mode, opening: Opening, opened_by: list[Any]
) -> None:
    """Bind every event of a battle page. `opened_by` are the components whose values `opening` takes."""
    handlers = _BattleHandlers(parts, turns, mode, opening, has_settings=bool(opened_by))
    everything = [parts.thread, *parts.rest]
    place = [parts.seat, parts.bookmark]
    # A stream holds its event until the models have answered, so it has no limit of its own: the controller has limits.
    whole: dict[str, Any] = {"outputs": everything, "concurrency_limit": None, **PRIVATE}
    asked = [parts.prompt.box.submit, parts.prompt.send.click]
    started = [
        gr.on(asked, handlers.begin, inputs=[parts.prompt.box, *place, *opened_by], **whole),
        *(example.click(handlers.begin, inputs=[example, *place, *opened_by], **whole) for example in parts.examples),
        parts.again.click(handlers.ask_again, inputs=[*place, *opened_by], **whole),
        parts.regenerate.click(handlers.begin_again, inputs=place, **whole),
        gr.on([page.load, parts.resume.click], handlers.restore, inputs=place, **whole),
    ]
    started += [
        button.click(handlers.vote_for(outcome), inputs=[*place, parts.consent], **whole)
        for outcome, button in parts.votes.items()
    ]
    for event in started:
        followed = event.then(
            handlers.follow,
            inputs=[parts.seat],
            outputs=parts.text,
            concurrency_limit=None,
            trigger_mode="multiple",
            **PRIVATE,
        )
        followed.then(
            handlers.settle,
            inputs=[parts.seat],
            outputs=everything,
            concurrency_limit=None,
            trigger_mode="multiple",
            **PRIVATE,
        )
    parts.undo.click(handlers.undo, inputs=[parts.seat], outputs=parts.rest, concurrency_limit=None, **PRIVATE)
    parts.prompt.stop.click(
        handlers.stop, inputs=[parts.seat], outputs=[parts.notice], concurrency_limit=None, **PRIVATE
    )
    parts.new.click(handlers.start_over, inputs=[parts.seat], outputs=everything, **PRIVATE)


class _BattleHandlers:
    """What happens on each event of a battle page. Holds no visitor's state: a visitor's session is in their seat."""

    def __init__(self, parts: BattleParts, turns: Turns, mode: Mode, opening: Opening, *, has_settings: bool) -> None:
        self._parts = parts
        self._turns = turns
        self._mode = mode
        self._opening = opening
        self._has_settings = has_settings

    async def begin(
        self, request: gr.Request, content: str, seat: Seat[Session], stored: Any, *settings: Any
    ) -> Updates:
        visitor = visitor_of(request)
        session = await self._current(seat, stored, visitor)
        self._turns.send_now(session, visitor)
        if session.is_busy:  # text that was typed meanwhile stays in the box
            yield self._parts.show_all(session)
            return
        if session.can_resume and not session.exchanges:  # the battle could not be read again
            seat.value = session.ended(session.notice, unsent_text=content, can_resume=True)
            yield self._parts.show_all(seat.value)
            return
        order = self._opening(*settings)
        if isinstance(order, str):
            seat.value = session.ended(order, unsent_text=content)
            yield self._parts.show_all(seat.value)
            return
        async with aclosing(self._begin(session, content, order, seat, visitor)) as updates:
            async for update in updates:
                yield update

    async def _begin(
        self, session: Session, content: str, order: CreateBattle, seat: Seat[Session], visitor: Visitor
    ) -> Updates:
        async with aclosing(self._turns.begin(session, content, order, visitor)) as sessions:
            async for session in sessions:
                seat.value = session
                yield self._parts.show_all(session, clears_box=session.is_busy)

    async def ask_again(self, request: gr.Request, seat: Seat[Session], stored: Any, *settings: Any) -> Updates:
        """Send the last question to a new battle, because the old one failed."""
        session = await self._current(seat, stored, visitor_of(request))
        content = session.exchanges[-1].content if session.exchanges else ""
        async with aclosing(self.begin(request, content, seat, stored, *settings)) as updates:
            async for update in updates:
                yield update

    async def begin_again(self, request: gr.Request, seat: Seat[Session], stored: Any) -> list[Any]:
        seat.value = self._turns.begin_again(await self._current(seat, stored, visitor_of(request)))
        return self._parts.show_all(seat.value)

    async def restore(self, request: gr.Request, seat: Seat[Session], stored: Any) -> Updates:
        bookmark, visitor = from_storage(stored), visitor_of(request)
        order = None if self._has_settings else self._opening()
        new = Session(mode=self._mode)
        is_there = seat.value != new and not seat.value.can_resume  # the visitor was faster than the page
        lost = bookmark.asked if bookmark.battle_id is None and not is_there else None
        if lost is not None and isinstance(order, CreateBattle):
            # The page was lost before its battle was there: it is begun again, where no setting is lost with the page.
            async with aclosing(self._begin(new, lost, order, seat, visitor)) as updates:
                async for update in updates:
                    yield update
            return
        if not is_there:
            await seat.take(self._turns.take_up(bookmark, self._mode, visitor))
        async for update in seat.updates(self._parts.show_all):
            yield update

    async def follow(self, request: gr.Request, seat: Seat[Session]) -> Updates:
        try:
            async with aclosing(self._turns.follow(seat.value, visitor_of(request))) as sessions:
                async for session in sessions:
                    seat.value = session
                    yield self._parts.show_text(look_of(session))
        except Exception:
            seat.value = seat.value.ended(texts.STREAM_LOST, can_resume=True)
            raise

    async def settle(self, request: gr.Request, seat: Seat[Session]) -> Updates:
        """The end of what was begun, and of a vote that is waiting to be recorded."""
        shown = seat.value
        yield self._parts.show_end(shown, shown)
        async with aclosing(self._turns.finish_vote(shown, visitor_of(request))) as sessions:
            async for session in sessions:
                if seat.value is not shown:
                    break  # the visitor has gone on
                before, shown = shown, session
                seat.value = session
                yield self._parts.show_end(session, before)
        async for update in seat.updates(self._parts.show_all, shown):
            yield update

    def vote_for(self, outcome: Outcome) -> Callable[..., Any]:
        async def vote(request: gr.Request, seat: Seat[Session], stored: Any, has_consent: bool) -> list[Any]:
            visitor = visitor_of(request)
            session = await self._current(seat, stored, visitor)
            seat.value = self._turns.choose(session, Choice(outcome, has_consent), visitor)
            return self._parts.show_all(seat.value)

        return vote

    def undo(self, request: gr.Request, seat: Seat[Session]) -> list[Any]:
        session = self._turns.undo(seat.value, visitor_of(request))
        if session.choice is None:  # otherwise it is too late, and `settle` shows how the vote ends
            seat.value = session
        return self._parts.show_rest(session, look_of(session))

    async def stop(self, request: gr.Request, seat: Seat[Session]) -> Any:
        try:
            await self._turns.stop(seat.value, visitor_of(request))
        except ControllerUnreachable:
            return texts.UNREACHABLE
        except ApiError as error:
            return sentences.failure(error.code)
        return gr.skip()

    def start_over(self, request: gr.Request, seat: Seat[Session]) -> list[Any]:
        self._turns.send_now(seat.value, visitor_of(request))
        seat.value = Session(mode=self._mode)
        return self._parts.show_all(seat.value)

    async def _current(self, seat: Seat[Session], stored: Any, visitor: Visitor) -> Session:
        """The session to act on. After a restart of this service the seat is empty; the browser has its bookmark."""
        if seat.value == Session(mode=self._mode):
            await seat.take(self._turns.take_up(from_storage(stored), self._mode, visitor))
        return seat.value
