"""A page with one sentence, without scripts: errors, invitations, terms."""

from webui import texts
from webui.languages import active


def bare_page(sentence: str) -> str:
    """A page with one sentence and the way to the first page, as markup; `sentence` is markup, too."""
    return (
        f'<!doctype html><html lang="{active()}"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" '
        f'content="light dark"><title>{texts.BRAND}</title><body style="font:18px system-ui;margin:15vh auto;'
        f'max-width:32em;padding:0 16px"><p>{sentence}</p><p><a href="/">{texts.TO_BATTLE}</a></p>'
    )
