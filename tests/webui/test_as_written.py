"""Markdown of prompts and answers: what is escaped and what is kept."""

import pytest

from webui.as_written import as_written


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("Use <div> and </p>.", "Use &lt;div> and &lt;/p>."),
        ("<!-- note --> <script>x()</script>", "&lt;!-- note --> &lt;script>x()&lt;/script>"),
        ("a < b, 1<2, x <- y", "a < b, 1<2, x <- y"),
        ("![p](http://elsewhere/p.png)!", "\\![p](http://elsewhere/p.png)!"),
        ("<https://example.org>", "<https://example.org>"),
    ],
)
def test_tags_and_images_become_text(text: str, markdown: str) -> None:
    assert as_written(text) == markdown


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("so $a<b$ and $x$.", "so \\(a&lt;b\\) and \\(x\\)."),
        ("($\\frac{1}{2}$)", "(\\(\\frac{1}{2}\\))"),
        ("$$a + b$$", "$$a + b$$"),
        ("from $5 to $6, US$5-$6, $7.50 and 8 $", "from $5 to $6, US$5-$6, $7.50 and 8 $"),
        ("echo $HOME $PATH, `$x$`", "echo $HOME $PATH, `$x$`"),
    ],
)
def test_formulas_between_dollars_are_told_from_prices(text: str, markdown: str) -> None:
    assert as_written(text) == markdown


@pytest.mark.parametrize(
    "text",
    [
        "```html\n<div>\n</div>\n```",
        "```\n<div>",
        "~~~\n<b>`\n~~~\n",
        "Say `<br>` or ``a ` <b>``.",
        "Like this:\n\n    <p>\n\tx <i>\n",
    ],
)
def test_code_stays_as_it_is(text: str) -> None:
    assert as_written(text) == text


def test_text_after_code_and_a_tick_without_its_partner_is_text() -> None:
    assert as_written("```\n<a>\n```\n<b>") == "```\n<a>\n```\n&lt;b>"
    assert as_written("a ` and <b>\n\nnew ` <i>") == "a ` and &lt;b>\n\nnew ` &lt;i>"


def test_a_long_text_without_an_end_takes_no_time() -> None:
    for piece in ("`", "``` ", "<", "![", "    x\n", "\n", "` a ", "$a ", "$"):
        text = piece * 20_000
        assert len(as_written(text)) >= len(text)
