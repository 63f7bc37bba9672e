"""What somebody wrote, as markdown that shows all of it: outside code every tag and every image is text.

A page renders answers and prompts as markdown, and markdown lets HTML through, of which the page then keeps little: a
`<div>` in a sentence would be gone. Images would be asked for from another host, which the page's content policy
forbids; what stays is a link.
"""

import re
from collections.abc import Sequence

#: What is code already: a fence up to its end (or, while it streams, up to the end of the text), a span, and lines that
#: are indented after an empty one.
_CODE = (
    r"(?P<code>^[ ]{0,3}(?P<fence>`{3,}|~{3,})[^\n]*(?:\n[\s\S]*?)??(?:^[ ]{0,3}(?P=fence)[`~]*[ \t]*$|\Z)"
    r"|(?<!`)(?P<ticks>`+)(?!`)[^`\n](?:[^\n]|\n(?!\n))*?(?<!`)(?P=ticks)(?!`)"
    r"|^[ \t]*\n(?:(?: {4}|\t)[^\n]*(?:\n|\Z))+)"
)
_TAG = r"<(?=[A-Za-z/!?])(?!https?://)"
_IMAGE = r"!(?=\[)"
#: A formula between single dollars as Pandoc reads it, so that prices stay prices: no blank inside the dollars, no
#: letter or digit behind. The page knows formulas by \( and \).
_FORMULA = r"(?<![\\$\w])\$(?P<formula>(?=\S)[^$\n]*[^\s$\\])\$(?![$\w])"


def as_written(text: str, *, keeps: Sequence[str] = ()) -> str:
    """`keeps` are names of tags that the page itself understands."""
    kept = "".join(rf"(?!/?{re.escape(name)}>)" for name in keeps)
    return re.sub(rf"{_CODE}|{_FORMULA}|(?P<tag>{_TAG}{kept})|{_IMAGE}", _shown, text, flags=re.MULTILINE)


def _shown(found: re.Match[str]) -> str:
    if found["code"] is not None:
        return found[0]
    if found["formula"] is not None:
        return "\\(" + found["formula"].replace("<", "&lt;") + "\\)"
    return "&lt;" if found["tag"] is not None else "\\!"
