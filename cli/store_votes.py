"""Votes of stores, journals and exports, for `agon store`. The controller's own code reads and restores them."""

import fcntl
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from cli.errors import CliError
from cli.store_client import connected
from controller.errors import JournalError
from controller.store.keys import Keys
from controller.store_address import StoreAddress
from controller.votes.journal.comparison import find_differences, logged_vote
from controller.votes.journal.journal_file import PATTERN, read_entries, salvage, scan, write_new
from controller.votes.journal.restore import LogRestorer
from controller.votes.vote_log import PIECE, LogEntry, VoteLog, stored
from wire.entry_ids import LOG_START, EntryId
from wire.log_records import id_of, key_of, parse_log_line

_BATTLE_TTL_S = 86_400.0  #: default of AGON_BATTLE_TTL_S


def journals(folder: Path) -> list[Path]:
    """The journals of a folder that have a beginning."""
    return sorted(path for path in folder.glob(PATTERN) if path.stat().st_size)


def read_source(path: Path) -> Iterator[LogEntry]:
    """The votes of a journal or of an export. Raises CliError with the number of a bad line."""
    try:
        with open(path, "rb") as file:
            first = file.readline()
        if first.startswith(b'{"journal":'):
            yield from read_entries(path)
        else:
            yield from _exported(path)
    except OSError as error:
        raise CliError(f"cannot read {path}: {error.strerror}.") from None
    except JournalError as error:
        raise CliError(str(error)) from None


def rewrite_journal(path: Path, set_aside: Callable[[], Path]) -> tuple[list[LogEntry], str]:
    """Write a damaged journal anew with its readable lines, and set the damaged one aside. Returns the readable votes
    and what was done. Raises CliError."""
    with open(path, "r+b") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CliError(f"a controller writes {path}; stop it first.") from None
        try:
            return list(read_entries(path)), f"{path.name}: {scan(path).num_votes} votes, whole"
        except JournalError:
            pass
        arena, votes, num_bad = salvage(path)
        aside = set_aside() / path.name
        path.rename(aside)
        if arena is not None:
            write_new(path, arena, votes)
        return votes, f"{path.name}: {len(votes)} votes kept, {num_bad} lines unreadable; the damaged file is {aside}"


async def read_store(address: StoreAddress, key_prefix: str) -> dict[str, LogEntry]:
    """All votes of a store, by battle. Raises CliError."""
    found: dict[str, LogEntry] = {}
    async with connected(address) as store:
        log = VoteLog(store, Keys(key_prefix))
        last_id: str = LOG_START
        while entries := (await log.state(last_id, PIECE)).entries:
            found.update({entry.battle_id: entry for entry in entries if not entry.is_damaged})
            last_id = entries[-1].vote_id
    return found


async def restore_votes(
    address: StoreAddress, key_prefix: str, votes: Iterable[LogEntry], *, are_exact: bool = False
) -> tuple[int, int]:
    """Add the votes that the store lacks; with `are_exact`, which is true of a journal's, also those that it has in
    another form. Returns how many, and how many it has then. Raises CliError."""
    async with connected(address) as store:
        keys = Keys(key_prefix)
        restorer = LogRestorer(store, keys, VoteLog(store, keys), battle_ttl_s=_BATTLE_TTL_S)
        restored = await restorer.restore([lambda: votes], are_exact=are_exact)
        return restored.num_restored, restored.state.length


def compare(journalled: Iterable[LogEntry], stored_votes: Mapping[str, LogEntry]) -> tuple[int, list[str]]:
    """How many journalled votes the store lacks, and ids of those that it has in another form."""
    logged = {battle: logged_vote(entry) for battle, entry in stored_votes.items()}
    lacking = find_differences([lambda: journalled], logged).lacking
    changed = [entry.vote_id for battle, entry in lacking.items() if battle in stored_votes]
    return len(lacking) - len(changed), changed


def _exported(path: Path) -> Iterator[LogEntry]:
    with open(path, encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                content = parse_log_line(line)
                entry_id = EntryId(id_of(content))
            except ValueError as error:
                reason = str(error).splitlines()[0]
                raise CliError(f"line {number} of {path} is neither a journal's nor an export's: {reason}") from None
            yield LogEntry(entry_id, key_of(content), round(content.time * 1000), stored(content), None)
