"""The frame of a page that is only read: header, style and theme, without Gradio.

Such a page is one answer of a few kilobytes. Its scripts keep the theme and the language that the visitor has chosen,
copy a conversation, let wide tables be scrolled by keyboard, save what the visitor says about the vote, and show the
notices of the operator.
"""

from functools import cache
from html import escape

from fastapi.responses import HTMLResponse

from webui import sentences, texts
from webui.languages import active
from webui.links import link_to
from webui.styles import OWN_PAGES, style_sheet
from webui.theme import ASSETS, root_meta
from webui.widgets import language_picker, theme_button


def page(title: str, body: str, *, status: int = 200, is_private: bool = True) -> HTMLResponse:
    """A whole page; `body` is markup. `is_private`: no cache may keep it."""
    links = "".join(
        f'<a href="{link_to(path)}">{escape(name)}</a>'
        for path, name in (*sentences.pages(), (texts.HISTORY_PATH, texts.HISTORY))
    )
    markup = (
        f'<!doctype html><html lang="{active()}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="robots" content="noindex">'
        f"<title>{escape(title)} &middot; {texts.BRAND}</title>"
        f"{root_meta()}<style>{_style()}</style><script>{_script()}</script></head>"
        f'<body><header><div><nav aria-label="{texts.BRAND}">'
        f'<a class="brand" href="{link_to("/")}">{texts.BRAND}</a>{links}</nav>'
        f'{language_picker()}{theme_button("theme")}</div></header><main>{body}</main><p id="said" role="status"></p>'
        "</body></html>"
    )
    return HTMLResponse(markup, status, {"Cache-Control": "no-store" if is_private else "no-cache"})


def sentence(text: str, status: int) -> HTMLResponse:
    """A page with one sentence."""
    return page(texts.HISTORY, f"<h1>{escape(texts.HISTORY)}</h1><p>{escape(text)}</p>", status=status)


@cache
def _style() -> str:
    return style_sheet(OWN_PAGES)


@cache
def _script() -> str:
    names = ("language", "history", "feedback", "notices")
    return "".join((ASSETS / f"{name}.js").read_text(encoding="utf-8") for name in names)
