"""The Gradio components of a battle page, and the one place where a Look becomes Gradio's positional outputs.

While text streams, only two outputs are sent: an output costs Gradio about half a millisecond even if it is skipped.
"""

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

import gradio as gr

from webui import texts
from webui.battle.look import Look, look_of
from webui.battle.session import Session, bookmark_of
from webui.links import link_to
from webui.seats import STORAGE_SECRET, Seat
from webui.widgets import Prompt, examples, intro, prompt, thread
from wire.battles import Mode, Outcome

_ARROWS: dict[Outcome, str] = {"a": "left", "tie": "up", "both_bad": "down", "b": "right"}  #: agon.js votes by them
_VOTE_ORDER: tuple[Outcome, ...] = ("a", "tie", "both_bad", "b")


@dataclass(frozen=True)
class BattleParts:
    """The Gradio components of a battle page; handlers return values for `thread`, `text` or `rest`, in their order."""

    seat: gr.State
    bookmark: gr.BrowserState
    thread: gr.Chatbot
    heads: gr.HTML
    empty: gr.Column
    vote_bar: gr.Column
    votes: dict[Outcome, gr.Button]
    consent: gr.Checkbox
    notice: gr.HTML
    reveal: gr.HTML
    feedback: gr.HTML
    undo: gr.Button
    prompt: Prompt
    regenerate: gr.Button
    again: gr.Button
    new: gr.Button
    resume: gr.Button
    examples: list[gr.Button]

    @property
    def text(self) -> list[Any]:
        """Components that change with every piece of text."""
        return [self.thread, self.heads, self.notice]

    @property
    def rest(self) -> list[Any]:
        """Components that change when an answer, a turn or a battle begins or ends."""
        return [
            self.heads,
            self.bookmark,
            self.empty,
            self.vote_bar,
            self.notice,
            self.reveal,
            self.feedback,
            self.undo,
            self.prompt.box,
            self.prompt.send,
            self.prompt.stop,
            self.regenerate,
            self.again,
            self.new,
            self.resume,
        ]

    def show_text(self, look: Look) -> list[Any]:
        """Values of `text`."""
        return [list(look.thread), look.heads, look.notice]

    def show_rest(self, session: Session, look: Look, *, clears_box: bool = False) -> list[Any]:
        """Values of `rest`. `clears_box` empties the text box, unless the session puts unsent text into it."""
        box: dict[str, Any] = {"placeholder": look.placeholder, "interactive": look.can_type}
        if session.unsent_text is not None:
            box["value"] = session.unsent_text
        elif clears_box:
            box["value"] = ""
        # The heads are sent again with an addition: Gradio's page sometimes keeps an earlier value of them, and it does
        # not redraw a value that it has had before.
        return [
            f'{look.heads}<p class="agon-said">{escape(look.said)}</p>',
            bookmark_of(session).to_storage(),
            gr.update(visible=look.is_empty),
            gr.update(visible=look.votes_shown),
            look.notice,
            look.reveal,
            look.feedback,
            gr.update(visible=look.undo_shown),
            gr.update(**box),
            gr.update(visible=look.send_shown),
            gr.update(visible=look.stop_shown),
            gr.update(visible=look.regenerate_shown, value=look.regenerate_text),
            gr.update(visible=look.again_shown),
            gr.update(visible=look.new_shown),
            gr.update(visible=look.resume_shown),
        ]

    def show_end(self, session: Session, before: Session) -> list[Any]:
        """Values of `thread` and `rest`. The page shows the conversation of `before` already."""
        look = look_of(session)
        thread: Any = gr.skip() if session.exchanges == before.exchanges else list(look.thread)
        return [thread, *self.show_rest(session, look)]

    def show_all(self, session: Session, *, clears_box: bool = False) -> list[Any]:
        """Values of `thread` and `rest`."""
        look = look_of(session)
        return [list(look.thread), *self.show_rest(session, look, clears_box=clears_box)]


def battle_parts(mode: Mode, title: str, lead: str, *, settings: Callable[[], None] | None = None) -> BattleParts:
    """Create the page's components: introduction and conversation in the flow, controls in the dock at the bottom.

    `settings` adds its components to the introduction, which is shown until a battle begins."""
    seat = gr.State(Seat(Session(mode=mode)))
    bookmark = gr.BrowserState(None, storage_key=f"agon-{mode}-battle{link_to('')}", secret=STORAGE_SECRET)
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
        feedback = gr.HTML("", elem_id="feedback", apply_default_css=False)
        undo = gr.Button(texts.UNDO, visible=False, elem_id="undo", scale=0, min_width=0)
        vote_bar, votes, consent = vote_buttons()
        box = prompt(texts.PROMPT_FIRST)
        with gr.Row(elem_classes=["agon-tools"]):
            resume = gr.Button(texts.RESUME, visible=False, elem_id="resume", scale=0, min_width=0)
            regenerate = gr.Button(texts.REGENERATE, visible=False, elem_id="regenerate", scale=0, min_width=0)
            again = gr.Button(texts.ASK_AGAIN, visible=False, elem_id="again", scale=0, min_width=0)
            new = gr.Button(texts.NEW_BATTLE, visible=False, elem_id="new", scale=0, min_width=0)
    return BattleParts(
        seat=seat,
        bookmark=bookmark,
        thread=conversation,
        heads=heads,
        empty=empty,
        vote_bar=vote_bar,
        votes=votes,
        consent=consent,
        notice=notice,
        reveal=reveal,
        feedback=feedback,
        undo=undo,
        prompt=box,
        regenerate=regenerate,
        again=again,
        new=new,
        resume=resume,
        examples=example_buttons,
    )


def vote_buttons() -> tuple[gr.Column, dict[Outcome, gr.Button], gr.Checkbox]:
    """The vote bar, hidden until both answers are finished, its button for each outcome, and the visitor's consent to a
    release of the texts."""
    with gr.Column(visible=False, elem_id="votes") as bar:
        with gr.Row(elem_classes=["agon-votes"]):
            buttons = _vote_buttons()
        consent = gr.Checkbox(False, label=texts.CONSENT, container=False, elem_id="consent")
    return bar, buttons, consent


def _vote_buttons() -> dict[Outcome, gr.Button]:
    return {
        outcome: gr.Button(
            texts.VOTES[outcome],
            elem_id=f"vote-{_ARROWS[outcome]}",
            elem_classes=["agon-vote", f"agon-vote-{outcome}"],
            min_width=120,
        )
        for outcome in _VOTE_ORDER
    }
