"""What the vote log lacks, and what it has wrong, by its journals. Pure: knows no store.

A vote is identified by its battle. Of two votes on one battle the older one stays. Votes never change, and every line
of a journal is covered by a hash, so a record of the log that differs from a journal's was changed on the store's disk.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from controller.votes.vote_log import LogEntry
from wire.entry_ids import entry_order

#: Gives the votes of one source. It may be called several times, in a thread.
Source = Callable[[], Iterable[LogEntry]]


class LoggedVote(NamedTuple):
    """A vote in the log: its id, and the hash of its record (in this process)."""

    vote_id: str
    digest: int


@dataclass(frozen=True)
class Differences:
    """`lacking`: by battle, the votes that must be in the log, in place of its own vote on the battle if it has one.
    `invented`: battles that no journal knows and whose vote in the log has the id of another one."""

    lacking: Mapping[str, LogEntry]
    invented: frozenset[str]


def logged_vote(entry: LogEntry) -> LoggedVote:
    """What is kept of an entry of the log for a comparison."""
    return LoggedVote(entry.vote_id, hash(entry.record))


def find_differences(
    sources: Sequence[Source], logged: Mapping[str, LoggedVote], *, are_exact: bool = True
) -> Differences:
    """Compare the log with `sources`. `are_exact`: their records are the log's own, byte by byte, as a journal's are;
    those of an export only bring votes back. Raises what a source raises."""
    doubtful: dict[str, LogEntry] = {}
    for entry in _all_entries(sources):
        chosen = doubtful.get(entry.battle_id)
        if chosen is not None:
            if _order(entry) < _order(chosen):
                doubtful[entry.battle_id] = entry
        elif _is_doubtful(entry, logged.get(entry.battle_id), are_exact):
            doubtful[entry.battle_id] = entry
    return _judge(doubtful, sources, logged, are_exact) if doubtful else Differences({}, frozenset())


def _is_doubtful(entry: LogEntry, known: LoggedVote | None, are_exact: bool) -> bool:
    if known is None or _order(entry) < entry_order(known.vote_id):
        return True
    has_same_record = known.digest == hash(entry.record)
    return are_exact and has_same_record != (entry.vote_id == known.vote_id)


def _judge(
    doubtful: Mapping[str, LogEntry], sources: Sequence[Source], logged: Mapping[str, LoggedVote], are_exact: bool
) -> Differences:
    ids = {entry.vote_id for entry in doubtful.values()}
    holders = {vote_id: battle for battle, (vote_id, _) in logged.items() if vote_id in ids}
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
        if battle in confirmed and known is not None and entry_order(known.vote_id) <= _order(entry):
            continue
        lacking[battle] = entry
    return Differences(lacking, frozenset(invented))


def _all_entries(sources: Iterable[Source]) -> Iterator[LogEntry]:
    for source in sources:
        yield from source()


def _order(entry: LogEntry) -> tuple[int, int]:
    return entry_order(entry.vote_id)
