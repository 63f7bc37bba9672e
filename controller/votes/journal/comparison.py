"""What the vote log lacks, and what it has wrong, by its journals. Pure: knows no store.

A vote is identified by its battle. Of two votes on one battle the younger one stays: it was taken because the store had
lost the older one before that was acknowledged (cast_vote.lua). Votes never change, and every line of a journal is
covered by a hash, so an entry of the log that differs from a journal's was changed on the store's disk.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from controller.votes.vote_log import LogEntry
from wire.entry_ids import entry_order

#: Gives the votes of one source. It may be called several times, in a thread.
Source = Callable[[], Iterable[LogEntry]]


class LoggedVote(NamedTuple):
    """A vote in the log: its id, its time, and the hash of its record (in this process)."""

    vote_id: str
    time_ms: int
    digest: int


@dataclass(frozen=True)
class Differences:
    """`lacking`: by battle, the votes that must be in the log, in place of its own vote on the battle if it has one.
    `invented`: battles that no journal knows and whose vote in the log has the id of another one."""

    lacking: Mapping[str, LogEntry]
    invented: frozenset[str]


def logged_vote(entry: LogEntry) -> LoggedVote:
    """What is kept of an entry of the log for a comparison."""
    return LoggedVote(entry.vote_id, entry.time_ms, hash(entry.record))


def find_differences(
    sources: Sequence[Source], logged: Mapping[str, LoggedVote], *, are_exact: bool = True
) -> Differences:
    """Compare the log with `sources`. `are_exact`: their records are the log's own, byte by byte, as a journal's are;
    those of an export only bring votes back. Raises what a source raises."""
    doubtful: dict[str, LogEntry] = {}
    for entry in _all_entries(sources):
        known = logged.get(entry.battle_id)
        if known is None or (are_exact and known != logged_vote(entry)):
            chosen = doubtful.get(entry.battle_id)
            if chosen is None or _order(chosen) < _order(entry):
                doubtful[entry.battle_id] = entry
    return _judge(doubtful, sources, logged, are_exact) if doubtful else Differences({}, frozenset())


def _judge(
    doubtful: Mapping[str, LogEntry], sources: Sequence[Source], logged: Mapping[str, LoggedVote], are_exact: bool
) -> Differences:
    ids = {entry.vote_id for entry in doubtful.values()}
    holders = {known.vote_id: battle for battle, known in logged.items() if known.vote_id in ids}
    watched = doubtful.keys() | set(holders.values())
    known_to_sources, confirmed = set(), set()
    for entry in _all_entries(sources):
        if entry.battle_id in watched:
            known_to_sources.add(entry.battle_id)
            if logged.get(entry.battle_id) == logged_vote(entry):
                confirmed.add(entry.battle_id)
    lacking, invented = {}, set()
    for battle, entry in doubtful.items():
        known, holder = logged.get(battle), holders.get(entry.vote_id, battle)
        if holder != battle and are_exact and holder not in known_to_sources:
            invented.add(holder)
        elif holder != battle and known is not None and known.digest == hash(entry.record):
            continue  # its id was taken when it came back, so it has another one
        if known is None or not _is_younger(known, entry, is_confirmed=battle in confirmed):
            lacking[battle] = entry
    return Differences(lacking, frozenset(invented))


def _is_younger(known: LoggedVote, entry: LogEntry, *, is_confirmed: bool) -> bool:
    """Whether the log's own vote was taken after `entry`. One that no source confirms may be a changed `entry`; two
    votes differ in their times as well as in their ids."""
    is_vote = is_confirmed or known.time_ms > entry.time_ms
    return is_vote and entry_order(known.vote_id) > _order(entry)


def _all_entries(sources: Iterable[Source]) -> Iterator[LogEntry]:
    for source in sources:
        yield from source()


def _order(entry: LogEntry) -> tuple[int, int]:
    return entry_order(entry.vote_id)
