"""What happens on each event of the Chat page."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import gradio as gr

from webui import texts
from webui.chat.page import ChatParts, chat_parts
from webui.chat.session import ChatSession, bookmark_of, from_storage
from webui.chat.turn import ChatTurns, sentence_of
from webui.client import ControllerClient
from webui.controllers import ControllerUnreachable
from webui.pages.side_by_side import ASK_AGAIN_S, own_sampling, served_models
from webui.seats import Seat
from webui.starter_prompts import StarterPrompts
from webui.visitors import Visitor, visitor_of
from webui.widgets import PRIVATE, header, notice
from wire.errors import ApiError

Updates = AsyncGenerator[list[Any], None]


def build(page: Any, turns: ChatTurns, client: ControllerClient, starters: StarterPrompts) -> None:
    """Create the page's components and bind their events."""
    header("/chat")
    parts = chat_parts()
    starters.bind(page, parts.examples)
    _wire_chat(page, parts, turns)
    _wire_models(page, parts, client)


def _wire_chat(page: Any, parts: ChatParts, turns: ChatTurns) -> None:
    """Bind everything that changes the conversation."""
    handlers = _ChatHandlers(parts, turns)
    everything = [parts.thread, *parts.rest]
    place = [parts.seat, parts.bookmark]
    chosen = [parts.model, *parts.parameters.inputs]
    # A stream holds its event until the model has answered, so it has no limit of its own: the controller has limits.
    whole: dict[str, Any] = {"outputs": everything, "concurrency_limit": None, **PRIVATE}
    asked = [parts.prompt.box.submit, parts.prompt.send.click]
    settings = [*place, parts.system, *chosen]
    started = [
        gr.on(asked, handlers.begin, inputs=[parts.prompt.box, *settings], **whole),
        *(example.click(handlers.begin, inputs=[example, *settings], **whole) for example in parts.examples),
        parts.retry.click(handlers.begin_again, inputs=[*place, *chosen], **whole),
        gr.on([page.load, parts.resume.click], handlers.restore, inputs=place, **whole),
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
    parts.prompt.stop.click(
        handlers.stop, inputs=[parts.seat], outputs=[parts.notice], concurrency_limit=None, **PRIVATE
    )
    parts.edit.click(handlers.edit, inputs=place, **whole)
    parts.new.click(handlers.begin_anew, inputs=place, **whole)
    parts.model.input(
        handlers.choose_model,
        inputs=[*place, parts.model],
        outputs=[parts.bookmark, parts.hint],
        concurrency_limit=None,
        **PRIVATE,
    )


class _ChatHandlers:
    """What happens on each event. Holds no visitor's state: a visitor's session is in their seat."""

    def __init__(self, parts: ChatParts, turns: ChatTurns) -> None:
        self._parts = parts
        self._turns = turns

    async def begin(
        self,
        request: gr.Request,
        content: str,
        seat: Seat[ChatSession],
        stored: Any,
        system_prompt: str | None,
        model: str | None,
        *parameters: Any,
    ) -> Updates:
        visitor = visitor_of(request)
        session = await self._current(seat, stored, visitor)
        if session.is_busy:  # text that was typed meanwhile stays in the box
            yield self._parts.show_all(session)
            return
        if session.can_resume and not session.exchanges:  # the chat could not be read again
            seat.value = session.ended(session.notice, unsent_text=content, can_resume=True)
            yield self._parts.show_all(seat.value)
            return
        if session.chat_id is None:
            session = replace(session, system_prompt=(system_prompt or "").strip())
        async with aclosing(self._begin(session, content, model, parameters, seat, visitor)) as updates:
            async for update in updates:
                yield update

    async def _begin(
        self,
        session: ChatSession,
        content: str,
        model: str | None,
        parameters: tuple[Any, ...],
        seat: Seat[ChatSession],
        visitor: Visitor,
    ) -> Updates:
        sampling = own_sampling(*parameters) if parameters else None
        async with aclosing(self._turns.begin(session, content, model, sampling, visitor)) as sessions:
            async for session in sessions:
                seat.value = session
                yield self._parts.show_all(session, clears_box=session.is_busy)

    async def begin_again(
        self, request: gr.Request, seat: Seat[ChatSession], stored: Any, model: str | None, *parameters: Any
    ) -> list[Any]:
        session = await self._current(seat, stored, visitor_of(request))
        seat.value = self._turns.begin_again(session, model, own_sampling(*parameters))
        return self._parts.show_all(seat.value)

    async def restore(self, request: gr.Request, seat: Seat[ChatSession], stored: Any) -> Updates:
        bookmark, visitor = from_storage(stored), visitor_of(request)
        is_there = seat.value != ChatSession() and not seat.value.can_resume  # the visitor was faster than the page
        if bookmark.chat_id is None and bookmark.asked is not None and not is_there:
            # The page was lost before its chat was there: it is begun again.
            new = ChatSession(model=bookmark.model, system_prompt=bookmark.system_prompt)
            async with aclosing(self._begin(new, bookmark.asked, bookmark.model, (), seat, visitor)) as updates:
                async for update in updates:
                    yield update
            return
        if not is_there:
            await seat.take(self._turns.take_up(bookmark, visitor))
        async for update in seat.updates(self._parts.show_all):
            yield update

    async def follow(self, request: gr.Request, seat: Seat[ChatSession]) -> Updates:
        try:
            async with aclosing(self._turns.follow(seat.value, visitor_of(request))) as sessions:
                async for session in sessions:
                    if session.model != seat.value.model:  # another one was chosen for the next question meanwhile
                        session = replace(session, model=seat.value.model)
                    seat.value = session
                    yield self._parts.show_text(seat.value)
        except Exception:
            seat.value = seat.value.ended(texts.CHAT_STREAM_LOST, can_resume=True)
            raise

    async def settle(self, seat: Seat[ChatSession]) -> Updates:
        """The end of what was begun."""
        async for update in seat.updates(self._parts.show_all):
            yield update

    async def stop(self, request: gr.Request, seat: Seat[ChatSession]) -> Any:
        try:
            await self._turns.stop(seat.value, visitor_of(request))
        except (ApiError, ControllerUnreachable) as error:
            return notice(sentence_of(error))
        return gr.skip()

    async def edit(self, request: gr.Request, seat: Seat[ChatSession], stored: Any) -> list[Any]:
        seat.value = (await self._current(seat, stored, visitor_of(request))).editing()
        return self._parts.show_all(seat.value)

    async def begin_anew(self, request: gr.Request, seat: Seat[ChatSession], stored: Any) -> list[Any]:
        visitor = visitor_of(request)
        seat.value = await self._turns.begin_anew(await self._current(seat, stored, visitor), visitor)
        shown = self._parts.show_all(seat.value)
        shown[1 + self._parts.rest.index(self._parts.system)] = gr.update(value="", interactive=True)
        return shown

    async def choose_model(
        self, request: gr.Request, seat: Seat[ChatSession], stored: Any, model: str | None
    ) -> list[Any]:
        """The choice outlives a reload, also before the next question."""
        session = await self._current(seat, stored, visitor_of(request))
        seat.value = replace(session, model=model or None)
        return [gr.skip() if session.is_busy else bookmark_of(seat.value).to_storage(), ""]

    async def _current(self, seat: Seat[ChatSession], stored: Any, visitor: Visitor) -> ChatSession:
        """The session to act on. After a restart of this service the seat is empty; the browser has its bookmark."""
        if seat.value == ChatSession():
            await seat.take(self._turns.take_up(from_storage(stored), visitor))
        return seat.value


def _wire_models(page: Any, parts: ChatParts, client: ControllerClient) -> None:
    """Fill the choice of models when the page is opened, and ask again until there is one. The model that was chosen
    before stays chosen; if it is not served now, the page says so."""

    async def fill(request: gr.Request, stored: Any) -> list[Any]:
        models = await served_models(client, visitor_of(request))
        chosen = from_storage(stored).model
        if isinstance(models, str):
            return [gr.skip() if chosen is None else gr.update(value=chosen), notice(models), gr.skip()]
        hint = "" if chosen is None or chosen in models else notice(texts.CHAT_MODEL_AWAY.format(model=chosen))
        return [gr.update(choices=list(models), value=chosen or models[0]), hint, gr.Timer(active=False)]

    timer = gr.Timer(ASK_AGAIN_S)
    outputs = [parts.model, parts.hint, timer]
    gr.on([page.load, timer.tick], fill, inputs=[parts.bookmark], outputs=outputs, concurrency_limit=None, **PRIVATE)
