"""What counts as style in a markdown text."""

import pytest

from controller.votes.style_features import style_counts, without_code


def test_headers_lists_and_bold_are_counted() -> None:
    text = "# Title\n\nSome **bold** and __strong__ words.\n\n- one\n* two\n  + three\n1. four\n2) five\n\n### Sub\n"

    counts = style_counts(text, tokens=30)

    assert (counts.tokens, counts.headers, counts.lists, counts.bold) == (30, 2, 5, 2)


@pytest.mark.parametrize(
    "text",
    [
        "```python\n# no header\n- no item\n**no bold**\n```\n",
        "~~~\n# no header\n~~~",
        "````\n```\n# still code\n```\n````",
        "an open fence\n```\n# to the end\n- of the text",
        "inline `# no` and `**no**` code",
        "#hashtag, 3 * 4 * 5, a**b, -1, 2.5 and __init__ of x",
        "",
    ],
)
def test_code_and_arithmetic_are_no_style(text: str) -> None:
    counts = style_counts(text, tokens=0)

    assert (counts.headers, counts.lists) == (0, 0)
    assert counts.bold == (1 if "__init__" in text else 0)


def test_text_around_code_stays() -> None:
    assert without_code("before\n```\ncode\n```\nafter") == "before\n\nafter"
