"""The About page: how the arena works, what is stored of a visitor's texts, and the operator's own terms, if any."""

from html import escape
from typing import Any

import gradio as gr

from webui import texts
from webui.widgets import header


def build(page: Any, terms: str | None) -> None:
    """Create the page's components."""
    header(texts.ABOUT_PATH)
    gr.HTML(render(terms), apply_default_css=False)


def render(terms: str | None) -> str:
    """The page as markup. `terms` is plain text; an empty line begins a paragraph."""
    sections = [_section(part["title"], part["paragraphs"]) for part in texts.ABOUT]
    if terms is not None:
        sections.append(_section(texts.TERMS_TITLE, [part for part in terms.split("\n\n") if part.strip()]))
    return f'<article class="agon-about"><h1>{texts.ABOUT_TITLE}</h1>{"".join(sections)}</article>'


def _section(title: str, paragraphs: list[str] | tuple[str, ...]) -> str:
    return f"<h2>{escape(title)}</h2>" + "".join(f"<p>{escape(paragraph.strip())}</p>" for paragraph in paragraphs)
