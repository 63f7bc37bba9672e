"""Ids of log entries, such as "12-3": two decimal numbers, ordered as a pair.

A vote has MILLISECONDS-NUMBER, an event of a turn TURN-NUMBER. Clients hand ids back (Last-Event-ID, `after`), so a
service checks them before use.
"""

#: The position before the first entry of a log.
LOG_START = "0-0"
#: More than any id has. Redis answers a number of 64 bits or more with an error.
_MAX_DIGITS = 18


def is_entry_id(text: str) -> bool:
    """True if `text` has the form of an id, which the store then takes."""
    parts = text.split("-")
    return len(parts) == 2 and all(part.isascii() and part.isdecimal() and len(part) <= _MAX_DIGITS for part in parts)


def entry_order(entry_id: str) -> tuple[int, int]:
    """The sort key of a well-formed id: entries in the order in which they were appended."""
    first, _, second = entry_id.partition("-")
    return int(first), int(second)
