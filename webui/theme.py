"""The look of Gradio's own widgets, tied to the colours of tokens.css so that both themes have one source."""

from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from webui import texts
from webui.links import link_to
from webui.styles import HEAD, style_sheet

ASSETS = Path(__file__).parent / "assets"
_SANS = (
    "ui-sans-serif",
    "system-ui",
    "-apple-system",
    "Segoe UI",
    "Roboto",
    "Inter",
    "Helvetica Neue",
    "Arial",
    "sans-serif",
)
_MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "DejaVu Sans Mono", "monospace")


def root_meta() -> str:
    """The tag by which scripts know the path prefix."""
    return f'<meta name="agon-root" content="{link_to("")}">'


def build_theme() -> Any:
    """Neutral greys and system fonts: no font is loaded from another host."""
    theme = gr.themes.Base(primary_hue="slate", secondary_hue="slate", neutral_hue="slate", font=_SANS, font_mono=_MONO)
    both: dict[str, str] = {
        "body_background_fill": "var(--agon-paper)",
        "body_text_color": "var(--agon-ink)",
        "body_text_color_subdued": "var(--agon-muted)",
        "background_fill_primary": "var(--agon-surface)",
        "background_fill_secondary": "var(--agon-sunken)",
        "block_background_fill": "transparent",
        "block_border_width": "0px",
        "block_shadow": "none",
        "block_label_text_color": "var(--agon-muted)",
        "block_title_text_color": "var(--agon-muted)",
        "block_info_text_color": "var(--agon-muted)",
        "border_color_primary": "var(--agon-line)",
        "input_background_fill": "var(--agon-surface)",
        "input_border_color": "var(--agon-field-line)",
        "input_border_color_focus": "var(--agon-focus)",
        "input_placeholder_color": "var(--agon-muted)",
        "input_shadow_focus": "none",
        "button_primary_background_fill": "var(--agon-ink)",
        "button_primary_background_fill_hover": "var(--agon-ink-soft)",
        "button_primary_text_color": "var(--agon-paper)",
        "button_secondary_background_fill": "var(--agon-surface)",
        "button_secondary_background_fill_hover": "var(--agon-sunken)",
        "button_secondary_text_color": "var(--agon-ink)",
        "button_secondary_border_color": "var(--agon-field-line)",
        "code_background_fill": "var(--agon-sunken)",
        "link_text_color": "var(--agon-link)",
        "link_text_color_hover": "var(--agon-link)",
        "link_text_color_visited": "var(--agon-link)",
        "link_text_color_active": "var(--agon-link)",
        "slider_color": "var(--agon-ink)",
    }
    has_dark_twin = {name for name in both if hasattr(theme, f"{name}_dark")}
    theme.set(**both, **{f"{name}_dark": both[name] for name in has_dark_twin})
    return theme


def head(server: str) -> str:
    """Scripts and meta tags of every page, inline: one request fewer, and no file to serve. `server`: the id of this
    process, which keeps the events of a page that it serves (peers.py)."""
    names = ("first_paint", "language", "connection", "events", "agon", "answers", "toast", "notices", "feedback")
    script = "".join((ASSETS / f"{name}.js").read_text(encoding="utf-8") for name in names)
    words = {
        "reconnecting": texts.RECONNECTING,
        "failed": texts.EVENT_FAILED,
        "close": texts.CLOSE,
        "copy": texts.COPY,
        "copied": texts.COPIED,
        "conversation": texts.THREAD_LABEL,
        **{f"answer-{side}": name for side, name in texts.ANSWER_OF_SIDE.items()},
    }
    metas = root_meta() + f'<meta name="agon-server" content="{server}">'
    metas += "".join(f'<meta name="agon-{name}" content="{escape(text)}">' for name, text in words.items())
    return (
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark">{metas}'
        f"<style>{style_sheet(HEAD)}</style><script>{script}</script>"
    )
