"""Ids of log entries, such as "12-3": two decimal numbers, ordered as a pair.

A vote has MILLISECONDS-NUMBER, an event of a turn TURN-NUMBER. Clients hand ids back (Last-Event-ID, `after`), so a
service checks them before use.
"""

#: The position before the first entry of a log.
LOG_START = "0-0"
MAX_EVENT_ID_CHARS = 24
MAX_VOTE_ID_CHARS = 32


def is_entry_id(text: str, max_chars: int) -> bool:
    """True if `text` has the form of an id and at most `max_chars` characters."""
    first, dash, second = text.partition("-")
    return bool(dash) and text.isascii() and first.isdecimal() and second.isdecimal() and len(text) <= max_chars


def entry_order(entry_id: str) -> tuple[int, int]:
    """The sort key of a well-formed id: entries in the order in which they were appended."""
    first, _, second = entry_id.partition("-")
    return int(first), int(second)
