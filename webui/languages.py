"""The language in which the present request, or event of a page, is answered, and how a visitor's is chosen.

A language is a file of messages/. It is active in a context: of a request (visitor_language.py), of an event
(quiet_blocks.py), and of all tasks that these start. While the pages are built none is: their words are marks then,
which are replaced when a page is served (message_files.py).
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final

MESSAGES: Final = Path(__file__).parent / "messages"
LANGUAGES: Final = tuple(sorted(path.stem for path in MESSAGES.glob("*.toml")))
DEFAULT: Final = "en"
MARKS: Final = "marks"  #: instead of a language: every text is a mark that stands for it
COOKIE: Final = "agon-language"

_active: ContextVar[str] = ContextVar("language", default=DEFAULT)


def active() -> str:
    """The language of the present context, or MARKS."""
    return _active.get()


@contextmanager
def speaking(language: str) -> Generator[None, None, None]:
    """What happens inside happens in this language."""
    before = _active.set(language)
    try:
        yield
    finally:
        _active.reset(before)


def negotiated(chosen: str | None, accepted: str, default: str) -> str:
    """The language of a visitor: the one chosen on a page (the value of COOKIE), else the one that their browser likes
    best among ours (`accepted`: its Accept-Language header), else `default`."""
    if chosen in LANGUAGES:
        return chosen
    wishes = sorted(_wishes(accepted), key=lambda wish: -wish[1])  # stable: equals stay in the browser's order
    found = (default if tag == "*" else _base(tag) for tag, quality in wishes if quality > 0)
    return next((language for language in found if language in LANGUAGES), default)


def _wishes(accepted: str) -> Generator[tuple[str, float], None, None]:
    """Tags and qualities of an Accept-Language header; those that are none are left out."""
    for part in accepted[:1000].split(","):
        tag, _, parameter = part.partition(";")
        name, _, value = parameter.strip().partition("=")
        try:
            quality = float(value) if name.strip() == "q" else 1.0
        except ValueError:
            continue
        if tag.strip() and 0 <= quality <= 1:
            yield tag.strip(), quality


def _base(tag: str) -> str:
    """The language of a tag: "zh" of "zh-Hans-CN"."""
    return tag.partition("-")[0].lower()
