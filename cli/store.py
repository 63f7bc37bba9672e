"""`agon store check | repair | restore | reset | acl`: the store of a data directory and the journal beside it.

All but `check` and `acl` need a stopped arena. With AGON_REDIS_URL or REDIS_URL the store is that one, as for
`agon up`.
"""

import asyncio
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cli.arena.append_only import find_damage, repair, torn_bytes
from cli.arena.data_dir import DataDir, Running, default_data_dir
from cli.arena.embedded_redis import EmbeddedRedis, find_binary
from cli.arena.mend import damage_on_loading, new_set_aside
from cli.arena.store_server import FOLDER, copied_store, served_store
from cli.errors import CliError, DataDirInUse
from cli.external_store import external_store, problems_of
from cli.store_votes import compare, journals, read_source, read_store, restore_votes, rewrite_journal
from controller.store.permissions import acl_rule
from controller.store_address import StoreAddress, parse_address
from controller.store_config import StoreSettings
from controller.votes.vote_log import LogEntry

app = typer.Typer(add_completion=False, no_args_is_help=True, help="The store, and the journal of votes.")

DataDirFlag = Annotated[Path | None, typer.Option("--data-dir", help="The folder of `agon up`.")]
KeyPrefix = Annotated[str, typer.Option(envvar="AGON_KEY_PREFIX", help="Prefix of the arena's keys in the store.")]

_PREFIX = "agon:v1"


@app.command()
def check(data_dir: DataDirFlag = None, key_prefix: KeyPrefix = _PREFIX) -> None:
    """Read the store's files, every line of the journal, and compare all votes of both; of a store of your own ask
    its version, settings and replicas, too. Exit code 1 if something is wrong. The arena may run."""
    folder = DataDir(data_dir or default_data_dir())
    is_running = folder.running() is not None
    external = external_store()
    problems = _check_files(folder, is_running) if external is None else _check_server(external)
    problems += _check_journals(folder)
    if not problems:
        journalled = _journalled(folder)  # before the store, which is written first
        with _store_to_read(folder, is_running) as address:
            problems += _check_votes(journalled, asyncio.run(read_store(address, key_prefix)))
    for problem in problems:
        print(f"PROBLEM  {problem}")
    if problems:
        raise SystemExit(1)


@app.command("repair")
def repair_store(data_dir: DataDirFlag = None, key_prefix: KeyPrefix = _PREFIX) -> None:
    """Keep what can be read of damaged files, set the damaged ones aside, and restore the votes from the journal."""
    with _stopped(data_dir) as folder:
        if external_store() is None:
            binary = find_binary()
            damage = find_damage(folder.store) or damage_on_loading(folder.store, binary)
            done = repair(folder.store, damage, binary, new_set_aside(folder)) if damage else "files are whole"
            print(f"store    {done}")
        votes: list[LogEntry] = []
        for path in journals(_journal(folder)):
            kept, done = rewrite_journal(path, lambda: new_set_aside(folder))
            votes += kept
            print(f"journal  {done}")
        _restore(folder, key_prefix, votes, is_exact=True)


@app.command()
def restore(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", help="A journal, a file of `agon votes export`, or a copied folder of a store."
        ),
    ],
    data_dir: DataDirFlag = None,
    key_prefix: KeyPrefix = _PREFIX,
) -> None:
    """Add the votes of SOURCE that the store lacks, with their own ids. Votes on battles that it has stay as they
    are."""
    with _stopped(data_dir) as folder:
        if source.is_dir():
            with copied_store(_store_in(source), find_binary()) as url:
                address = parse_address(url)
                votes: Iterable[LogEntry] = asyncio.run(read_store(address, key_prefix)).values()
            _restore(folder, key_prefix, list(votes))
        else:
            _restore(folder, key_prefix, list(read_source(source)))


@app.command()
def reset(
    data_dir: DataDirFlag = None, yes: Annotated[bool, typer.Option("--yes", help="Really do it.")] = False
) -> None:
    """Begin anew: set store and journal aside, so that nothing brings the votes back. Nothing is deleted."""
    if external_store() is not None:
        raise CliError("the store is an external one: empty it yourself, then move the journal folder away.")
    with _stopped(data_dir) as folder:
        if not yes:
            raise CliError(f"this takes all votes out of {folder.path}; say --yes.")
        aside = new_set_aside(folder)
        for path in (folder.store / FOLDER, _journal(folder)):
            if path.exists():
                path.rename(aside / path.name)
        print(f"store and journal are in {aside}; the next `agon up` begins without votes")


@app.command()
def acl(
    key_prefix: KeyPrefix = _PREFIX,
    user: Annotated[str, typer.Option(help="Name of the user.")] = "agon",
) -> None:
    """Print the line of an ACL file that lets a user do what a controller does, and nothing else."""
    print(acl_rule(user, [key_prefix], password=None))


def _check_server(settings: StoreSettings) -> list[str]:
    line, problems = problems_of(settings)
    print(f"store    {line}")
    return [f"the store: {problem}." for problem in problems]


def _check_files(folder: DataDir, is_running: bool) -> list[str]:
    damage = find_damage(folder.store)
    if damage is not None:
        return [f"{damage}. `agon store repair` keeps what lies before it."]
    if is_running:
        print("store    running")
        return []
    if (refusal := damage_on_loading(folder.store, find_binary())) is not None:
        return [f"{refusal}. `agon store repair` sets them aside."]
    torn = torn_bytes(folder.store)
    print("store    files are whole" + (f", but for an unfinished write of {torn} bytes at the end" if torn else ""))
    return []


def _check_journals(folder: DataDir) -> list[str]:
    from controller.errors import JournalDamaged
    from controller.votes.journal.journal_file import scan

    found, problems = journals(_journal(folder)), []
    for path in found:
        try:
            seen = scan(path)
            torn = f", and an unfinished line of {seen.num_torn_bytes} bytes" if seen.num_torn_bytes else ""
            print(f"journal  {path.name}: {seen.num_votes} votes{torn}")
        except JournalDamaged as error:
            problems.append(str(error))
    if not found:
        print(f"journal  none in {_journal(folder)}")
    return problems


def _journalled(folder: DataDir) -> list[LogEntry]:
    return [entry for path in journals(_journal(folder)) for entry in read_source(path)]


def _check_votes(journalled: list[LogEntry], stored: dict[str, LogEntry]) -> list[str]:
    print(f"votes    {len(stored)} in the store")
    missing, changed = compare(journalled, stored)
    problems = []
    if missing:
        problems.append(f"{missing} votes of the journal are missing in the store; a controller brings them back.")
    problems += [f"vote {vote_id}: the store's record differs from the journal's" for vote_id in changed]
    return problems


def _restore(folder: DataDir, key_prefix: str, votes: list[LogEntry], *, is_exact: bool = False) -> None:
    """Bring back what the store lacks; with `is_exact` also what it has in another form."""
    with _store_to_write(folder) as address:
        num_restored, num_votes = asyncio.run(restore_votes(address, key_prefix, votes, are_exact=is_exact))
    print(f"votes    {num_restored} restored, {num_votes} in the store")


def _journal(folder: DataDir) -> Path:
    external = external_store()
    return folder.journal(None if external is None else external.redis_url)


def _store_in(source: Path) -> Path:
    """The folder that holds the append-only files: `source`, its parent, or its folder `store`."""
    for folder in (source, source / "store", source.parent):
        if (folder / FOLDER).is_dir():
            return folder
    raise CliError(f"{source} is no copy of a store: it has no {FOLDER}.")


@contextmanager
def _stopped(data_dir: Path | None) -> Iterator[DataDir]:
    folder = DataDir(data_dir or default_data_dir())
    folder.create()
    try:
        folder.lock(Running(os.getpid(), "agon store", ""))
    except DataDirInUse as error:
        raise CliError(f"{error} Stop it first.") from None
    try:
        yield folder
    finally:
        folder.unlock()


@contextmanager
def _store_to_read(folder: DataDir, is_running: bool) -> Iterator[StoreAddress]:
    if (external := external_store()) is not None:
        yield external.store_address()
    elif is_running:
        yield parse_address(EmbeddedRedis(folder.store, find_binary()).url)
    else:
        with copied_store(folder.store, find_binary()) as url:
            yield parse_address(url)


@contextmanager
def _store_to_write(folder: DataDir) -> Iterator[StoreAddress]:
    if (external := external_store()) is not None:
        yield external.store_address()
    else:
        with served_store(folder.store, find_binary()) as url:
            yield parse_address(url)
