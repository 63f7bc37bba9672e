"""What the log lacks by its journals, and that a log that was mended has no differences left."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from controller.votes.journal.comparison import Differences, find_differences, logged_vote
from controller.votes.vote_log import LogEntry


def _vote(battle: str, number: int, record: str = "") -> LogEntry:
    return LogEntry(f"{number}-0", battle, number, record or f"record of {battle}", None)


def _found(log: Sequence[LogEntry], *journals: Sequence[LogEntry], are_exact: bool = True) -> Differences:
    sources = [lambda journal=journal: journal for journal in journals]
    return find_differences(sources, {entry.battle_id: logged_vote(entry) for entry in log}, are_exact=are_exact)


ONE, TWO = _vote("one", 1), _vote("two", 2)
AGAIN = _vote("one", 5)  # the vote sent again, after the store had lost it


@pytest.mark.parametrize(
    ("log", "journals", "lacking", "invented"),
    [
        ([ONE, TWO], [[ONE, TWO]], [], []),
        ([ONE], [[ONE], [TWO]], [TWO], []),
        ([ONE, TWO], [[]], [], []),  # votes that no journal holds stay
        ([_vote("one", 1, "other"), TWO], [[ONE, TWO]], [ONE], []),  # the record was changed
        ([replace(ONE, vote_id="9-0"), TWO], [[ONE, TWO]], [ONE], []),  # the id was changed
        ([ONE, _vote("two", 1)], [[ONE], [TWO]], [TWO], []),
        ([_vote("eno", 1), TWO], [[ONE, TWO]], [ONE], ["eno"]),  # the battle was changed
        ([AGAIN], [[AGAIN], [ONE]], [], []),  # the younger one stays
        ([AGAIN], [[ONE]], [], []),  # also if no journal has it yet
        ([ONE], [[AGAIN]], [AGAIN], []),
        ([ONE], [[ONE], [AGAIN]], [AGAIN], []),
        ([ONE], [[AGAIN], [ONE]], [AGAIN], []),
        ([], [[ONE, AGAIN]], [AGAIN], []),
        ([AGAIN], [[ONE, AGAIN]], [], []),
        ([replace(ONE, time_ms=5)], [[ONE]], [ONE], []),  # the time was changed
    ],
)
def test_differences(
    log: list[LogEntry], journals: list[list[LogEntry]], lacking: list[LogEntry], invented: list[str]
) -> None:
    found = _found(log, *journals)
    assert (list(found.lacking.values()), sorted(found.invented)) == (lacking, invented)


def test_a_vote_that_came_back_under_another_id_is_known() -> None:
    """After the clock was set back two battles got one id; the second one that came back has the next free id."""
    other = _vote("other", 1)
    moved = LogEntry("1-1", "one", 1, ONE.record, None)
    assert not _found([other, moved], [other], [ONE]).lacking
    assert _found([other], [other], [ONE]).lacking == {"one": ONE}
    changed = LogEntry("1-1", "one", 1, "changed", None)
    assert _found([other, changed], [other], [ONE]).lacking == {"one": ONE}


def test_an_export_only_brings_votes_back() -> None:
    """Its records may be written in another way than the log's."""
    log = [_vote("one", 1, "written by another release")]
    assert _found(log, [ONE, TWO], are_exact=False).lacking == {"two": TWO}
    assert _found([_vote("else", 1)], [ONE], are_exact=False) == Differences({"one": ONE}, frozenset())
