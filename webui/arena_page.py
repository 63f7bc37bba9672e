"""What the anonymous and the named battle page have in common: the parts and the wiring of their events.

A mode is this plus two things: its introduction, and how it opens a battle (an Opening).
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import gradio as gr

from webui import texts
from webui.client import ControllerUnreachable
from webui.components import PRIVATE, BattleParts, examples, intro, look_of, prompt, thread, vote_buttons
from webui.session import Seat, Session
from webui.turn import Turns
from wire.battles import CreateBattle, Mode, Outcome
from wire.errors import ApiError

Updates = AsyncGenerator[list[Any], None]

#: From the values of the page's settings to a request, or to a sentence that says what is missing.
Opening = Callable[..., CreateBattle | str]

#: Gradio encrypts what it keeps in the browser with a key that it makes anew at every start; a fixed one lets a battle
#: survive a restart of this service. Nothing secret is stored: the id of the visitor's own battle.
STORAGE_SECRET = "agon-battle-id"


def battle_parts(mode: Mode, title: str, lead: str, *, settings: Callable[[], None] | None = None) -> BattleParts:
    """Lay the page out: introduction or conversation in the flow, everything to act with in the dock at the bottom.

    `settings` adds its components to the introduction, which is shown until a battle begins."""
    seat = gr.State(Seat(Session(mode=mode)))
    stored_id = gr.BrowserState(None, storage_key=f"agon-{mode}-battle", secret=STORAGE_SECRET)
    with gr.Column(elem_classes=["agon-empty"]) as empty:
        intro(title, lead)
        if settings is not None:
            settings()
        example_buttons = examples()
    heads = gr.HTML("", elem_id="heads", apply_default_css=False)
    conversation = thread(columns=2)
    with gr.Column(elem_id="dock"):
        notice = gr.HTML("", elem_id="notice", apply_default_css=False)
        reveal = gr.HTML("", elem_id="reveal", apply_default_css=False)
        vote_bar, votes = vote_buttons()
        box = prompt(texts.PROMPT_FIRST)
        with gr.Row(elem_classes=["agon-tools"]):
            resume = gr.Button(texts.RESUME, visible=False, elem_id="resume", scale=0, min_width=0)
            regenerate = gr.Button(texts.REGENERATE, visible=False, elem_id="regenerate", scale=0, min_width=0)
            again = gr.Button(texts.ASK_AGAIN, visible=False, elem_id="again", scale=0, min_width=0)
            new = gr.Button(texts.NEW_BATTLE, visible=False, elem_id="new", scale=0, min_width=0)
    return BattleParts(
        seat=seat,
        stored_id=stored_id,
        thread=conversation,
        heads=heads,
        empty=empty,
        vote_bar=vote_bar,
        votes=votes,
        notice=notice,
        reveal=reveal,
        prompt=box,
        regenerate=regenerate,
        again=again,
        new=new,
        resume=resume,
        examples=example_buttons,
    )


def wire_battle(
    page: Any, parts: BattleParts, turns: Turns, mode: Mode, opening: Opening, opened_by: list[Any]
) -> None:
    """Bind every event of a battle page. `opened_by` are the components whose values `opening` takes."""

    async def known(seat: Seat[Session], stored_id: str | None, visitor: str) -> Session:
        """The session to act on. After a restart of this service the seat is empty, but the browser knows better."""
        if seat.value.battle_id is None and stored_id is not None:
            seat.value = await turns.restore(stored_id, visitor)
        return seat.value

    async def begin(
        request: gr.Request, content: str, seat: Seat[Session], stored_id: str | None, *settings: Any
    ) -> Updates:
        visitor = visitor_of(request)
        session = await known(seat, stored_id, visitor)
        if session.is_busy:  # what was typed meanwhile stays in the box
            yield parts.show_all(session)
            return
        order = opening(*settings)
        if isinstance(order, str):
            seat.value = session.ended(order, draft=content)
            yield parts.show_all(seat.value)
            return
        async with aclosing(turns.begin(session, content, order, visitor)) as sessions:
            async for session in sessions:
                seat.value = session
                yield parts.show_all(session, clears_box=session.is_busy)

    async def ask_again(request: gr.Request, seat: Seat[Session], stored_id: str | None, *settings: Any) -> Updates:
        """The last question, to a new battle: the old one failed."""
        session = await known(seat, stored_id, visitor_of(request))
        content = session.exchanges[-1].content if session.exchanges else ""
        async with aclosing(begin(request, content, seat, stored_id, *settings)) as updates:
            async for update in updates:
                yield update

    async def begin_again(request: gr.Request, seat: Seat[Session], stored_id: str | None) -> list[Any]:
        seat.value = turns.begin_again(await known(seat, stored_id, visitor_of(request)))
        return parts.show_all(seat.value)

    async def restore(request: gr.Request, seat: Seat[Session], stored_id: str | None) -> list[Any]:
        if stored_id is not None:
            seat.value = await turns.restore(stored_id, visitor_of(request))
        return parts.show_all(seat.value)

    async def follow(request: gr.Request, seat: Seat[Session]) -> Updates:
        try:
            async with aclosing(turns.follow(seat.value, visitor_of(request))) as sessions:
                async for session in sessions:
                    seat.value = session
                    yield parts.show_text(look_of(session))
        except Exception:
            seat.value = seat.value.ended(texts.STREAM_LOST, can_resume=True)
            raise

    def settle(seat: Seat[Session]) -> list[Any]:
        return parts.show_rest(seat.value, look_of(seat.value))

    def voting(outcome: Outcome) -> Callable[..., Updates]:
        async def vote(request: gr.Request, seat: Seat[Session], stored_id: str | None) -> Updates:
            visitor = visitor_of(request)
            session = await known(seat, stored_id, visitor)
            async with aclosing(turns.vote(session, outcome, visitor)) as sessions:
                async for session in sessions:
                    seat.value = session
                    yield parts.show_all(session)

        return vote

    async def stop(request: gr.Request, seat: Seat[Session]) -> Any:
        try:
            await turns.stop(seat.value, visitor_of(request))
        except ControllerUnreachable:
            return texts.UNREACHABLE
        except ApiError as error:
            return texts.failure(error.code)
        return gr.skip()

    def start_over(seat: Seat[Session]) -> list[Any]:
        seat.value = Session(mode=mode)
        return parts.show_all(seat.value)

    everything = [parts.thread, *parts.rest]
    place = [parts.seat, parts.stored_id]
    # A stream holds its slot for as long as the models talk, so no limit of its own: the controller has the limits.
    whole: dict[str, Any] = {"outputs": everything, "concurrency_limit": None, **PRIVATE}

    def then_follow(started: Any) -> None:
        followed = started.then(
            follow, inputs=[parts.seat], outputs=parts.text, concurrency_limit=None, trigger_mode="multiple", **PRIVATE
        )
        followed.then(settle, inputs=[parts.seat], outputs=parts.rest, **PRIVATE)

    asked = [parts.prompt.box.submit, parts.prompt.send.click]
    then_follow(gr.on(asked, begin, inputs=[parts.prompt.box, *place, *opened_by], **whole))
    for example in parts.examples:
        then_follow(example.click(begin, inputs=[example, *place, *opened_by], **whole))
    then_follow(parts.again.click(ask_again, inputs=[*place, *opened_by], **whole))
    then_follow(parts.regenerate.click(begin_again, inputs=place, **whole))
    then_follow(gr.on([page.load, parts.resume.click], restore, inputs=place, **whole))
    for outcome, button in parts.votes.items():
        button.click(voting(outcome), inputs=place, **whole)
    parts.prompt.stop.click(stop, inputs=[parts.seat], outputs=[parts.notice], concurrency_limit=None, **PRIVATE)
    parts.new.click(start_over, inputs=[parts.seat], outputs=everything, **PRIVATE)


def visitor_of(request: gr.Request) -> str:
    return request.client.host if request.client else "unknown"
