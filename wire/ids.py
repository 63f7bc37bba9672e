"""Ids of battles, workers and requests as types: a value of such a type has been checked, so it may go into a key of
the store or into a path.

A service makes one from a client's text at its border; `Keys` and the web UI's client accept nothing else. An id is a
word of letters, digits, "-" and "_": no separator of keys (":"), of paths ("/", "%") or of lines is part of it.
"""

import re
from typing import Any, Self

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

MAX_ID_CHARS = 64
_WORD = rf"[A-Za-z0-9_-]{{1,{MAX_ID_CHARS}}}"
_IS_WORD = re.compile(_WORD)


class _WordId(str):
    """A checked word. Its constructor raises ValueError for any other text, without quoting it. Fields of wire models
    may have it as their type."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        if _IS_WORD.fullmatch(text) is None:
            raise ValueError(f"an id has 1 to {MAX_ID_CHARS} letters, digits, - and _")
        return super().__new__(cls, text)

    @classmethod
    def parse(cls, value: object) -> Self | None:
        """`value` as an id, None if it is none: for values that a stranger may have written."""
        try:
            return cls(value) if isinstance(value, str) else None
        except ValueError:
            return None

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(cls, core_schema.str_schema(pattern=f"^{_WORD}$"))


class BattleId(_WordId):
    """Id of a battle: random, and a secret of its visitor until the vote."""

    __slots__ = ()


class ChatId(BattleId):
    """Id of a chat: random, and a secret of its visitor. To the code that runs turns a chat is a battle of one side."""

    __slots__ = ()


class ShareId(_WordId):
    """Id of a shared battle: random, known to those who have the link."""

    __slots__ = ()


class WorkerId(_WordId):
    """Id of a worker, which the controller derives from the worker's URL."""

    __slots__ = ()


class NoticeId(_WordId):
    """Id of a notice to visitors, which the controller draws."""

    __slots__ = ()


class Pseudonym(_WordId):
    """Keyed hash of a voter's identity."""

    __slots__ = ()
