"""The components that pages are composed of, and how a session is shown.

`look_of` is a pure function from a session to a Look; only `BattleParts` turns a Look into Gradio's positional outputs.
While text streams, only two outputs are sent: an output costs Gradio about half a millisecond even if it is skipped.
Pages only bind events.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import gradio as gr

from webui import texts
from webui.as_written import as_written
from webui.ranking import words
from webui.session import Exchange, Session, SideAnswer, Standing, bookmark_of
from wire.battles import SIDES, Outcome, Side

_LATEX: list[dict[str, str | bool]] = [
    {"left": "$$", "right": "$$", "display": True},
    {"left": "\\[", "right": "\\]", "display": True},
    {"left": "\\(", "right": "\\)", "display": False},
]
_VOTE_ORDER: tuple[Outcome, ...] = ("a", "tie", "both_bad", "b")
PRIVATE: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}

#: Fits into one request (doors.py). A browser silently truncates longer text, so the limit of a question is far below
#: and its error is shown when it is sent.
_MAX_TYPED_CHARS = 100_000

Message = dict[str, str]


def header(path: str) -> gr.HTML:
    """The bar at the top of every page; the current page is marked visually and for screen readers."""
    links = "".join(
        f'<a href="{target}"{" aria-current=page" if target == path else ""}>{escape(name)}</a>'
        for target, name in texts.PAGES
    )
    return gr.HTML(
        f'<header class="agon-header"><a class="agon-brand" href="/">{_MARK}<span>{texts.BRAND}</span></a>'
        f'<nav aria-label="{texts.BRAND}">{links}</nav>'
        f'<button type="button" class="agon-theme" data-agon="theme" aria-label="{texts.THEME_TOGGLE}" '
        f'title="{texts.THEME_TOGGLE}">{_HALF_MOON}</button></header>',
        elem_id="agon-top",
        apply_default_css=False,
    )


_MARK = (
    '<svg viewBox="0 0 28 20" width="28" height="20" aria-hidden="true">'
    '<circle cx="10" cy="10" r="8" fill="none" stroke="var(--agon-a)" stroke-width="2.5"/>'
    '<circle cx="18" cy="10" r="8" fill="none" stroke="var(--agon-b)" stroke-width="2.5"/></svg>'
)
_HALF_MOON = (
    '<svg viewBox="0 0 20 20" width="18" height="18" aria-hidden="true">'
    '<circle cx="10" cy="10" r="7.25" fill="none" stroke="currentColor" stroke-width="1.5"/>'
    '<path d="M10 2.75a7.25 7.25 0 0 1 0 14.5z" fill="currentColor"/></svg>'
)


def thread(*, columns: Literal[1, 2]) -> gr.Chatbot:
    """The conversation. With two columns every prompt spans both and is followed by the answers A and B."""
    return gr.Chatbot(
        label=texts.THREAD_LABEL,
        show_label=False,
        container=False,
        height=None,
        autoscroll=False,
        layout="panel",
        buttons=["copy"],
        group_consecutive_messages=False,
        feedback_options=None,
        sanitize_html=True,
        allow_tags=False,
        latex_delimiters=_LATEX,
        reasoning_tags=[("<think>", "</think>")] if columns == 1 else None,
        elem_id="thread",
        elem_classes=["agon-thread", f"agon-columns-{columns}"],
    )


def intro(title: str, lead: str) -> gr.HTML:
    """Title and lead of a page, with a link to About."""
    return gr.HTML(
        f'<div class="agon-intro"><h1>{escape(title)}</h1><p>{escape(lead)} '
        f'<a href="{texts.ABOUT_PATH}">{texts.ABOUT_LINK}</a></p></div>',
        apply_default_css=False,
    )


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters in a closed accordion. While `own` is checked, no parameter is sent and every model uses its
    own."""

    own: gr.Checkbox
    temperature: gr.Slider
    top_p: gr.Slider
    max_tokens: gr.Slider

    @property
    def inputs(self) -> list[Any]:
        """The components whose values `open_named` and `sampling_options` take, in that order."""
        return [self.own, self.temperature, self.top_p, self.max_tokens]


def sampling() -> Sampling:
    """The sampling parameters; the sliders are visible while `own` is unchecked."""
    with gr.Accordion(texts.PARAMETERS, open=False, elem_classes=["agon-fold"]):
        own = gr.Checkbox(True, label=texts.OWN_PARAMETERS, container=False)
        with gr.Column(visible=False, elem_classes=["agon-sliders"]) as sliders:
            temperature = gr.Slider(0, 2, 0.7, step=0.05, label=texts.TEMPERATURE, info=texts.TEMPERATURE_INFO)
            top_p = gr.Slider(0.05, 1, 1, step=0.05, label=texts.TOP_P, info=texts.TOP_P_INFO)
            max_tokens = gr.Slider(16, 2048, 512, step=16, label=texts.MAX_TOKENS, info=texts.MAX_TOKENS_INFO)
    own.change(lambda uses_own: gr.update(visible=not uses_own), inputs=[own], outputs=[sliders], **PRIVATE)
    return Sampling(own, temperature, top_p, max_tokens)


def model_choice(label: str, elem_id: str) -> gr.Dropdown:
    """A choice of models, empty until the page requests their names: the configuration that every page is sent must
    hold no name. Any value is accepted, because only the controller knows the models."""
    return gr.Dropdown([], label=label, elem_id=elem_id, allow_custom_value=True, filterable=True)


def examples() -> list[gr.Button]:
    """Prompts to start with. The button's own text is the prompt."""
    gr.HTML(f'<h2 class="agon-eyebrow">{texts.EXAMPLES_LABEL}</h2>', apply_default_css=False)
    with gr.Row(elem_classes=["agon-examples"]):
        return [gr.Button(prompt, elem_classes=["agon-example"], min_width=200) for _, prompt in texts.EXAMPLES]


@dataclass(frozen=True)
class Prompt:
    """The text box at the bottom with its buttons."""

    box: gr.Textbox
    send: gr.Button
    stop: gr.Button


def prompt(placeholder: str) -> Prompt:
    """The text box with its Send and Stop buttons."""
    with gr.Row(elem_classes=["agon-prompt"]):
        box = gr.Textbox(
            label=texts.PROMPT_LABEL,
            show_label=False,
            container=False,
            placeholder=placeholder,
            lines=1,
            max_lines=8,
            max_length=_MAX_TYPED_CHARS,
            scale=1,
            elem_id="prompt",
            html_attributes=gr.InputHTMLAttributes(enterkeyhint="send", autocomplete="off"),
        )
        send = gr.Button(texts.SEND, variant="primary", elem_id="send", scale=0, min_width=84)
        stop = gr.Button(texts.STOP, elem_id="stop", visible=False, scale=0, min_width=84)
    return Prompt(box, send, stop)


@dataclass(frozen=True)
class Look:
    """Everything a battle page shows, by name. Each field is one output."""

    thread: tuple[Message, ...]
    heads: str
    said: str  #: for screen readers, when it is time to vote
    is_empty: bool
    votes_shown: bool
    notice: str
    reveal: str
    placeholder: str
    can_type: bool
    send_shown: bool
    stop_shown: bool
    regenerate_shown: bool
    again_shown: bool
    new_shown: bool
    resume_shown: bool


def look_of(session: Session) -> Look:
    """Everything that a battle page shows of `session`. Pure."""
    streaming = session.is_busy and session.state == "streaming"
    can_vote = session.is_votable and session.has_answers
    return Look(
        thread=messages(session.exchanges),
        heads=_heads(session),
        said=texts.BOTH_DONE + " " + texts.VOTE_HINT if can_vote else "",
        is_empty=not session.exchanges,
        votes_shown=can_vote,
        notice=_notice(session),
        reveal=_reveal(session),
        placeholder=_placeholder(session),
        can_type=not session.is_full or session.is_over,
        send_shown=not streaming,
        stop_shown=streaming,
        regenerate_shown=session.is_votable,
        again_shown=session.state == "aborted" and bool(session.exchanges),
        new_shown=bool(session.exchanges) and not session.is_busy,
        resume_shown=session.can_resume,
    )


def messages(exchanges: Sequence[Exchange]) -> tuple[Message, ...]:
    """The conversation as the Chatbot takes it: for each turn the prompt, then answer A and answer B."""
    found: list[Message] = []
    for exchange in exchanges:
        found.append({"role": "user", "content": as_written(exchange.content)})
        found.extend({"role": "assistant", "content": _answer_text(exchange.side(side))} for side in SIDES)
    return tuple(found)


def _answer_text(answer: SideAnswer) -> str:
    """An empty answer is drawn as a typing indicator; one that ended without text says so."""
    if answer.status == "failed":
        reason = f"**{texts.FAILED_SIDE}** {texts.failure(answer.error_code)}"
        return f"{as_written(answer.text)}\n\n{reason}" if answer.text else reason
    if not answer.text and answer.status in ("finished", "stopped"):
        return f"*({texts.STATUS[answer.status]})*"
    return as_written(answer.text)


def _heads(session: Session) -> str:
    """The strip with the name and status of both sides. It keeps its place while text streams."""
    if not session.exchanges:
        return ""
    cells = "".join(_head(session, side) for side in SIDES)
    return f'<div class="agon-heads">{cells}</div>'


def _head(session: Session, side: Side) -> str:
    answer = session.exchanges[-1].side(side)
    status = texts.CUT if answer.is_cut else texts.STATUS[answer.status]
    if session.is_interrupted and answer.status in ("waiting", "writing"):
        status = texts.RECONNECTING_SIDE
    name = session.name(side)
    named = f'<span class="agon-name">{escape(name)}</span>' if name is not None else ""
    shown_status = "" if session.state == "voted" and answer.status == "finished" else escape(status)
    chosen = " agon-chosen" if session.outcome == side else ""
    return (
        f'<div class="agon-head agon-side-{side}{chosen}"><span class="agon-chip">{texts.SIDE_NAME[side]}</span>'
        f'<div>{named}<span class="agon-status agon-{answer.status}">{shown_status}</span></div></div>'
    )


def _notice(session: Session) -> str:
    if session.state == "aborted":
        has_reason = any(session.exchanges[-1].side(side).status == "failed" for side in SIDES if session.exchanges)
        reason = "" if has_reason or session.failure_code is None else f"{texts.failure(session.failure_code)} "
        sentence = reason + texts.ABORTED
    elif session.state == "expired":
        sentence = texts.EXPIRED
    elif session.refusal_code is not None:
        sentence = texts.failure(session.refusal_code)
    elif session.notice is not None:
        sentence = session.notice
    elif session.is_votable and session.has_answers and session.stopped_turns and session.mode == "anonymous":
        helps = session.stopped_turns == (len(session.exchanges) - 1,)
        sentence = f"{words.STOPPED} {words.REGENERATE}" if helps else words.STOPPED
        return f'<p class="agon-notice" role="status">{escape(sentence)}</p>'
    else:
        return ""
    return notice(sentence)


def notice(sentence: str) -> str:
    """A sentence that needs the visitor's attention; screen readers announce it at once."""
    return f'<p class="agon-notice" role="alert">{escape(sentence)}</p>'


def _reveal(session: Session) -> str:
    if session.outcome is None or session.names is None:
        return ""
    plates = [_plate(session, side) for side in SIDES]
    verdict = escape(texts.VOTED[session.outcome])
    unrated = "" if session.is_rated else f'<p class="agon-unrated">{escape(words.not_rated(session.flags))}</p>'
    return (
        f'<section class="agon-reveal" aria-live="polite">{plates[0]}'
        f'<p class="agon-verdict">{verdict}</p>{plates[1]}</section>{unrated}'
    )


def _plate(session: Session, side: Side) -> str:
    chosen = " agon-chosen" if session.outcome == side else ""
    return (
        f'<div class="agon-plate agon-side-{side}{chosen}"><span class="agon-chip">{texts.SIDE_NAME[side]}</span>'
        f'<div><strong class="agon-name">{escape(session.name(side) or "")}</strong>'
        f'<span class="agon-standing">{_standing(session.standings.get(side))}</span></div></div>'
    )


def _standing(standing: Standing | None) -> str:
    if standing is None:
        return texts.RATING_PENDING
    change = ""
    if standing.is_new:
        change = f" {texts.NEW_TO_BOARD}"
    elif standing.change is not None:
        direction = "up" if standing.change > 0 else "down" if standing.change < 0 else "same"
        change = f' <b class="agon-{direction}">{standing.change:+.1f}</b>'
    place = texts.NO_RANK if standing.rank is None else texts.rank(standing.rank, standing.num_models)
    return f"<span>{standing.rating:.0f}{change}</span> <span>{escape(place)}</span>"


def _placeholder(session: Session) -> str:
    if session.is_over:
        return texts.PROMPT_AFTER
    if session.is_full:
        return texts.PROMPT_FULL
    return texts.PROMPT_NEXT if session.exchanges else texts.PROMPT_FIRST


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
    prompt: Prompt
    regenerate: gr.Button
    again: gr.Button
    new: gr.Button
    resume: gr.Button
    examples: list[gr.Button]

    @property
    def text(self) -> list[Any]:
        """Components that change with every piece of text."""
        return [self.thread, self.heads]

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
        return [list(look.thread), look.heads]

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
            gr.update(**box),
            gr.update(visible=look.send_shown),
            gr.update(visible=look.stop_shown),
            gr.update(visible=look.regenerate_shown),
            gr.update(visible=look.again_shown),
            gr.update(visible=look.new_shown),
            gr.update(visible=look.resume_shown),
        ]

    def show_all(self, session: Session, *, clears_box: bool = False) -> list[Any]:
        """Values of `thread` and `rest`."""
        look = look_of(session)
        return [list(look.thread), *self.show_rest(session, look, clears_box=clears_box)]


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
            elem_id=f"vote-{texts.VOTE_KEY_NAMES[outcome]}",
            elem_classes=["agon-vote", f"agon-vote-{outcome}"],
            min_width=120,
        )
        for outcome in _VOTE_ORDER
    }
