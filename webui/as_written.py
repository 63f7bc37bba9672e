"""Escapes prompts and answers, so that their markdown shows every character: outside code, tags and images are text.

Pages render prompts and answers as markdown. Markdown passes HTML through, and the sanitizer then removes most of it: a
`<div>` in a sentence would disappear. An image would be loaded from another host, which the page's content policy
forbids; it is shown as a link instead.
"""

import re

#: Code: a fence up to its end (while it streams, up to the end of the text), a span, and indented lines after an empty
#: one.
_CODE = (
    r"(?P<code>^[ ]{0,3}(?P<fence>`{3,}|~{3,})[^\n]*(?:\n[\s\S]*?)??(?:^[ ]{0,3}(?P=fence)[`~]*[ \t]*$|\Z)"
    r"|(?<!`)(?P<ticks>`+)(?!`)[^`\n](?:[^\n]|\n(?!\n))*?(?<!`)(?P=ticks)(?!`)"
    r"|^[ \t]*\n(?:(?: {4}|\t)[^\n]*(?:\n|\Z))+)"
)
_TAG = r"<(?=[A-Za-z/!?])(?!https?://)"
_IMAGE = r"!(?=\[)"
#: A formula between single dollars by Pandoc's rule, which leaves prices alone: no blank inside the dollars, no letter
#: or digit after them. The page marks formulas with \( and \).
_FORMULA = r"(?<![\\$\w])\$(?P<formula>(?=\S)[^$\n]*[^\s$\\])\$(?![$\w])"


def as_written(text: str) -> str:
    """`text` as markdown that shows it as it was written."""
    return re.sub(rf"{_CODE}|{_FORMULA}|(?P<tag>{_TAG})|{_IMAGE}", _shown, text, flags=re.MULTILINE)


def _shown(found: re.Match[str]) -> str:
    if found["code"] is not None:
        return found[0]
    if found["formula"] is not None:
        return "\\(" + found["formula"].replace("<", "&lt;") + "\\)"
    return "&lt;" if found["tag"] is not None else "\\!"
