"""What the anonymous and the named battle page have in common: the parts and the wiring of their events.

A mode is this plus two things: its introduction, and how it opens a battle (an Opening).
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import gradio as gr

from webui import texts
from webui.client import ControllerUnreachable
from webui.components import PRIVATE, BattleParts, examples, intro, prompt, thread, vote_buttons
from webui.session import Session
from webui.turn import Sessions, Turns
from wire.battles import CreateBattle, Mode, Outcome
from wire.errors import ApiError

Updates = AsyncGenerator[tuple[Any, ...], None]

#: From the values of the page's settings to a request, or to a sentence that says what is missing.
Opening = Callable[..., CreateBattle | str]

#: Gradio encrypts what it keeps in the browser with a key that it makes anew at every start; a fixed one lets a battle
#: survive a restart of this service. Nothing secret is stored: the id of the visitor's own battle.
STORAGE_SECRET = "agon-battle-id"


def battle_parts(
    mode: Mode, title: str, lead: str, *, max_prompt_chars: int, settings: Callable[[], None] | None = None
) -> BattleParts:
    """Lay the page out: introduction or conversation in the flow, everything to act with in the dock at the bottom.

    `settings` adds its components to the introduction, which is shown until a battle begins."""
    session = gr.State(Session(mode=mode))
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
        box = prompt(texts.PROMPT_FIRST, max_chars=max_prompt_chars)
        with gr.Row(elem_classes=["agon-tools"]):
            resume = gr.Button(texts.RESUME, visible=False, elem_id="resume", scale=0, min_width=0)
            regenerate = gr.Button(texts.REGENERATE, visible=False, elem_id="regenerate", scale=0, min_width=0)
            new = gr.Button(texts.NEW_BATTLE, visible=False, elem_id="new", scale=0, min_width=0)
    return BattleParts(
        session=session,
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
        new=new,
        resume=resume,
        examples=example_buttons,
    )


def wire_battle(
    page: Any, parts: BattleParts, turns: Turns, mode: Mode, opening: Opening, opened_by: list[Any]
) -> None:
    """Bind every event of a battle page. `opened_by` are the components whose values `opening` takes."""

    async def shown(sessions: Sessions, before: Session | None) -> Updates:
        async with aclosing(sessions) as following:
            async for session in following:
                yield parts.update(session, before)
                before = session

    async def known(session: Session, stored_id: str | None, visitor: str) -> tuple[Session, Session | None]:
        """The session to act on, and what the page shows of it. After a restart of this service Gradio's state is
        empty, but the browser still knows its battle."""
        if session.battle_id is not None or stored_id is None:
            return session, session
        async with aclosing(turns.restore(stored_id, visitor)) as restored:
            return await anext(restored), None

    async def ask(
        request: gr.Request, content: str, session: Session, stored_id: str | None, *settings: Any
    ) -> Updates:
        visitor = visitor_of(request)
        session, before = await known(session, stored_id, visitor)
        order = opening(*settings)
        if isinstance(order, str):
            yield parts.update(replace(session, notice=order, draft=content), before)
            return
        async with aclosing(shown(turns.ask(session, content, order, visitor), before)) as updates:
            async for update in updates:
                yield update

    async def regenerate(request: gr.Request, session: Session, stored_id: str | None) -> Updates:
        visitor = visitor_of(request)
        session, before = await known(session, stored_id, visitor)
        async with aclosing(shown(turns.regenerate(session, visitor), before)) as updates:
            async for update in updates:
                yield update

    def voting(outcome: Outcome) -> Callable[..., Updates]:
        async def vote(request: gr.Request, session: Session, stored_id: str | None) -> Updates:
            visitor = visitor_of(request)
            session, before = await known(session, stored_id, visitor)
            async with aclosing(shown(turns.vote(session, outcome, visitor), before)) as updates:
                async for update in updates:
                    yield update

        return vote

    async def restore(request: gr.Request, stored_id: str | None) -> Updates:
        if stored_id is None:
            yield parts.update(Session(mode=mode), None)
            return
        visitor = visitor_of(request)
        async with aclosing(shown(turns.restore(stored_id, visitor), None)) as updates:
            async for update in updates:
                yield update

    async def stop(request: gr.Request, session: Session) -> Any:
        try:
            await turns.stop(session, visitor_of(request))
        except ControllerUnreachable:
            return texts.UNREACHABLE
        except ApiError as error:
            return texts.failure(error.code)
        return gr.skip()

    def start_over(session: Session) -> tuple[Any, ...]:
        return parts.update(Session(mode=mode), session, is_streaming=False)

    # A stream holds its slot for as long as the models talk, so no limit of its own: the controller has the limits.
    stream: dict[str, Any] = {"outputs": parts.outputs, "concurrency_limit": None, **PRIVATE}
    gr.on(
        [parts.prompt.box.submit, parts.prompt.send.click],
        ask,
        inputs=[parts.prompt.box, parts.session, parts.stored_id, *opened_by],
        **stream,
    )
    for example in parts.examples:
        example.click(ask, inputs=[example, parts.session, parts.stored_id, *opened_by], **stream)
    parts.regenerate.click(regenerate, inputs=[parts.session, parts.stored_id], **stream)
    for outcome, button in parts.votes.items():
        button.click(voting(outcome), inputs=[parts.session, parts.stored_id], **stream)
    page.load(restore, inputs=[parts.stored_id], **stream)
    parts.resume.click(restore, inputs=[parts.stored_id], **stream)
    parts.prompt.stop.click(stop, inputs=[parts.session], outputs=[parts.notice], concurrency_limit=None, **PRIVATE)
    parts.new.click(start_over, inputs=[parts.session], outputs=parts.outputs, **PRIVATE)


def visitor_of(request: gr.Request) -> str:
    return request.client.host if request.client else "unknown"
