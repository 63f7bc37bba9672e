"""A page with a heading and one sentence, without scripts: errors, invitations, terms.

Without a script it cannot know the theme that the visitor has chosen, so it follows the system's.
"""

from html import escape

from webui import texts
from webui.languages import active
from webui.links import link_to

#: Colours of tokens.css, each for light and dark.
_STYLE = (
    "html{color-scheme:light dark;background:light-dark(#faf9f6,#131519)}"
    "body{max-width:32em;margin:12vh auto;padding:0 16px;color:light-dark(#1d2026,#e8e6e1);"
    "font:18px/1.6 system-ui,sans-serif;overflow-wrap:anywhere}"
    "h1{font-size:26px;line-height:1.2}a{color:light-dark(#2458c5,#8db4ff)}"
    ":focus-visible{outline:2px solid light-dark(#2458c5,#8db4ff);outline-offset:2px}"
)


def bare_page(sentence: str, title: str = texts.BRAND) -> str:
    """A page with one sentence and the way to the first page, as markup; `sentence` is markup, too."""
    heading = escape(title)
    full_title = heading if title == texts.BRAND else f"{heading} - {texts.BRAND}"
    return (
        f'<!doctype html><html lang="{active()}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="robots" content="noindex">'
        f"<title>{full_title}</title><style>{_STYLE}</style></head><body><main><h1>{heading}</h1>"
        f'<p>{sentence}</p><p><a href="{link_to("/")}">{texts.TO_BATTLE}</a></p></main></body></html>'
    )
