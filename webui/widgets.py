"""The components that every page is composed of. Pages only bind events."""

from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import gradio as gr

from webui import sentences, texts
from webui.languages import DEFAULT, LANGUAGES, speaking
from webui.links import link_to
from webui.message_files import texts_of

_LATEX: list[dict[str, str | bool]] = [
    {"left": "$$", "right": "$$", "display": True},
    {"left": "\\[", "right": "\\]", "display": True},
    {"left": "\\(", "right": "\\)", "display": False},
]
PRIVATE: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}

#: Fits into one request (doors.py). A browser silently truncates longer text, so the limit of a question is far below
#: and its error is shown when it is sent.
_MAX_TYPED_CHARS = 100_000


def header(path: str) -> gr.HTML:
    """The bar at the top of every page; the current page is marked visually and for screen readers."""
    return gr.HTML(header_markup(path), elem_id="agon-top", apply_default_css=False)


def header_markup(path: str, *, has_languages: bool = True) -> str:
    """The same for pages without Gradio."""
    pages = sentences.pages()
    links = "".join(
        f'<a href="{link_to(target)}"{" aria-current=page" if target == path else ""}>{escape(name)}</a>'
        for target, name in pages
    )
    # A page of conversations hides its introduction, title included, once one has begun.
    title = next((f'<h1 class="agon-said">{escape(name)}</h1>' for at, name in pages[:3] if at == path), "")
    return (
        f'<header class="agon-header"><a class="agon-brand" href="{link_to("/")}">{_MARK}<span>{texts.BRAND}</span></a>'
        f'{title}<nav aria-label="{texts.BRAND}">{links}</nav>'
        f"{language_picker() if has_languages else ''}{theme_button('agon-theme')}</header>"
    )


def theme_button(css_class: str) -> str:
    """The button that switches between light and dark."""
    return (
        f'<button type="button" class="{css_class}" data-agon="theme" aria-label="{texts.THEME_TOGGLE}" '
        f'title="{texts.THEME_TOGGLE}">{_HALF_MOON}</button>'
    )


def language_picker() -> str:
    """The choice of the language (assets/language.js), each by its own name."""
    entries = "".join(
        f'<li><button type="button" data-language="{language}" lang="{language}">'
        f"{texts_of(language)['LANGUAGE_NAME']}</button></li>"
        for language in LANGUAGES
    )
    return (
        f'<details class="agon-language"><summary aria-label="{texts.LANGUAGE}: {texts.LANGUAGE_NAME}" '
        f'title="{texts.LANGUAGE}">{_GLOBE}<span>{texts.LANGUAGE_NAME}</span></summary><ul>{entries}</ul></details>'
    )


_MARK = (
    '<svg viewBox="0 0 28 20" width="28" height="20" aria-hidden="true">'
    '<circle cx="10" cy="10" r="8" fill="none" stroke="var(--agon-a)" stroke-width="2.5"/>'
    '<circle cx="18" cy="10" r="8" fill="none" stroke="var(--agon-b)" stroke-width="2.5"/></svg>'
)
_GLOBE = (
    '<svg viewBox="0 0 20 20" width="18" height="18" aria-hidden="true" fill="none" stroke="currentColor" '
    'stroke-width="1.5"><circle cx="10" cy="10" r="7.25"/><ellipse cx="10" cy="10" rx="3.2" ry="7.25"/>'
    '<path d="M3 10h14"/></svg>'
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
        elem_id="thread",
        elem_classes=["agon-thread", f"agon-columns-{columns}"],
    )


def intro(title: str, lead: str) -> gr.HTML:
    """Title and lead of a page, with a link to About."""
    return gr.HTML(
        f'<div class="agon-intro"><h2>{escape(title)}</h2><p>{escape(lead)} '
        f'<a href="{link_to(texts.ABOUT_PATH)}">{texts.ABOUT_LINK}</a> &middot; '
        f'<a href="{link_to(texts.HISTORY_PATH)}">{texts.HISTORY}</a></p></div>',
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
        """The components whose values `own_sampling` takes, in that order."""
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
    """Prompts to start with: the button's own text. starter_prompts.py puts others in where they fit better."""
    with speaking(DEFAULT):
        prompts = texts.EXAMPLES
    gr.HTML(f'<h2 class="agon-eyebrow">{texts.EXAMPLES_LABEL}</h2>', apply_default_css=False)
    with gr.Row(elem_classes=["agon-examples"]):
        return [gr.Button(prompt, elem_classes=["agon-example"], min_width=200) for prompt in prompts]


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


def notice(sentence: str) -> str:
    """A sentence that needs the visitor's attention; screen readers announce it at once."""
    return f'<p class="agon-notice" role="alert">{escape(sentence)}</p>'
