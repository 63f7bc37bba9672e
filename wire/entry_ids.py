"""Ids of log entries, such as "12-3": two decimal numbers, ordered as a pair.

A vote has MILLISECONDS-NUMBER, an event of a turn TURN-NUMBER. Clients hand ids back (Last-Event-ID, `after`), so a
service makes an EntryId of them before use, and the store reads after nothing else.
"""

import re
from typing import Self

#: More digits than any id has. Redis answers a number of 64 bits or more with an error.
_MAX_DIGITS = 18
_IS_ENTRY_ID = re.compile(rf"[0-9]{{1,{_MAX_DIGITS}}}-[0-9]{{1,{_MAX_DIGITS}}}")


class EntryId(str):
    """A checked id of an entry, which the store takes. Its constructor raises ValueError for any other text."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        if _IS_ENTRY_ID.fullmatch(text) is None:
            raise ValueError("an entry id has the form NUMBER-NUMBER")
        return super().__new__(cls, text)


#: The position before the first entry of a log.
LOG_START = EntryId("0-0")


def entry_order(entry_id: str) -> tuple[int, int]:
    """The sort key of a well-formed id: entries in the order in which they were appended."""
    first, _, second = entry_id.partition("-")
    return int(first), int(second)
