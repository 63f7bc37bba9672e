"""The texts of the message files by name, in the language that is active; and the marks that stand for them in a page.

Pages are built once, for visitors of all languages: a text is then a mark, its name between two characters of private
use, and becomes the text when the page is served.
"""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from webui.languages import DEFAULT, MARKS, MESSAGES, active

_BEGIN, _END = "\ue000", "\ue001"
_MARK: Final = re.compile(rf"{_BEGIN}([\w.-]+){_END}".encode())


def message(name: str) -> Any:
    """The text, or table or tuple of texts, of this name in the active language. Raises KeyError without one."""
    return texts_of(active())[name]


@cache
def texts_of(language: str) -> Mapping[str, Any]:
    """All texts of a language by name: what stands in its file, with tuples for lists."""
    if language == MARKS:
        return {name: _marked(name, value) for name, value in texts_of(DEFAULT).items()}
    with (MESSAGES / f"{language}.toml").open("rb") as file:
        return {name: _frozen(value) for name, value in tomllib.load(file).items()}


def flat(name: str, value: Any) -> dict[str, str]:
    """The single texts of a value of `texts_of` by their whole names: "VOTES.a", "EXAMPLES.0"."""
    if isinstance(value, str):
        return {name: value}
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    return {whole: text for key, part in items for whole, text in flat(f"{name}.{key}", part).items()}


def has_marks(body: bytes) -> bool:
    """Whether there is a mark in what is served."""
    return _MARK.search(body) is not None


def without_marks(body: bytes, language: str) -> bytes:
    """A page, or its configuration, in this language. Texts need no escapes in markup or JSON: a test sees to it."""
    texts = _texts_by_mark(language)
    return _MARK.sub(lambda found: texts.get(found[1], found[0]), body)


@cache
def _texts_by_mark(language: str) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for name, value in texts_of(language).items():
        found |= {whole.encode(): text.encode() for whole, text in flat(name, value).items()}
    return found


def _frozen(value: Any) -> Any:
    match value:
        case list():
            return tuple(_frozen(part) for part in value)
        case dict():
            return {key: _frozen(part) for key, part in value.items()}
        case str():
            return value
    raise TypeError(f"{value!r} in a message file is no text")


def _marked(name: str, value: Any) -> Any:
    match value:
        case tuple():
            return tuple(_marked(f"{name}.{index}", part) for index, part in enumerate(value))
        case dict():
            return {key: _marked(f"{name}.{key}", part) for key, part in value.items()}
    return f"{_BEGIN}{name}{_END}"
