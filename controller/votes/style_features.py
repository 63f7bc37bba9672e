"""Counts of an answer's style for style-controlled ratings: tokens, headers, list items, bold. Pure.

Code is removed first, because `#` and `*` in code are not markdown.
"""

import re

from wire.votes import StyleCounts

_FENCED = re.compile(r"^(?P<fence>`{3,}|~{3,})[^\n]*\n.*?(?:^(?P=fence)[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)(`++).+?(?<!`)\1(?!`)")
_HEADER = re.compile(r"^ {0,3}#{1,6}[ \t]+\S", re.MULTILINE)
_LIST_ITEM = re.compile(r"^[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+\S", re.MULTILINE)
_BOLD = re.compile(r"\*\*(?=\S)(?:[^*\n]|\*(?!\*))+?(?<=\S)\*\*|__(?=\S)(?:[^_\n]|_(?!_))+?(?<=\S)__")


def style_counts(text: str, tokens: int) -> StyleCounts:
    """Counts of a markdown text. `tokens` comes from the model's tokenizer and is passed through."""
    prose = without_code(text)
    return StyleCounts(
        tokens=tokens,
        headers=len(_HEADER.findall(prose)),
        lists=len(_LIST_ITEM.findall(prose)),
        bold=len(_BOLD.findall(prose)),
    )


def without_code(text: str) -> str:
    """`text` without fenced blocks and inline code; an open fence reaches to the end."""
    return _INLINE.sub("", _FENCED.sub("", text))
