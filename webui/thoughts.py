"""What a model thought, folded above its answer: markup for an answer's markdown and for pages that are only read."""

import re
from html import escape

from webui import texts

_LINE_END = re.compile(r"\r\n?|\n")


def folded(thoughts: str, element_id: str, *, is_thinking: bool = False) -> str:
    """A closed block of thoughts as plain text, in one line: markdown takes it as HTML up to the next empty line, and
    nothing in it as markup. The id is the block's own in the page, which remembers by it whether a visitor has opened
    it. `is_thinking`: the answer has not begun."""
    label = texts.THINKING if is_thinking else texts.THOUGHTS
    shown = _LINE_END.sub("&#10;", escape(thoughts))
    return (
        f'<details class="agon-thoughts" id="{element_id}"><summary>{escape(label)}</summary>'
        f'<div dir="auto">{shown}</div></details>'
    )
