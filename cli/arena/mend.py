"""Mends the embedded store by itself, where no vote can be lost by that: the journal must be whole.

Called by the supervisor before it starts the store again after a start that failed. Without a whole journal it changes
nothing and says what to do.
"""

import time
from collections.abc import Callable
from pathlib import Path

from cli.arena.append_only import Damage, find_damage, repair
from cli.arena.data_dir import DataDir
from cli.arena.embedded_redis import StoreBinary
from cli.arena.store_server import loads
from cli.errors import StoreError


def mend(data_dir: DataDir, binary: StoreBinary, report: Callable[[str], None]) -> None:
    """Repair damaged append-only files, after a copy of everything. Raises StoreError if that might lose votes, or
    cannot be done."""
    try:
        damage = find_damage(data_dir.store) or damage_on_loading(data_dir.store, binary)
        if damage is None:
            return
        problem = why_not_whole(data_dir.journal())
        if problem is not None:
            raise StoreError(
                f"{damage}. {problem}, so votes may be missing afterwards: look with `agon store check`; "
                "`agon store repair` keeps what can be read."
            )
        report(f"{repair(data_dir.store, damage, binary, new_set_aside(data_dir))}. Votes come back from the journal.")
    except OSError as error:
        raise StoreError(f"the store's files cannot be read or repaired: {error.strerror}.") from None


def damage_on_loading(store: Path, binary: StoreBinary) -> Damage | None:
    """Damage that only the server notices: it refuses to load the files."""
    return None if loads(store, binary) else Damage("the store", "the server cannot load its files", None)


def new_set_aside(data_dir: DataDir) -> Path:
    """A new folder of the data directory for what a repair takes away. Nothing in it is ever deleted by us."""
    folder = data_dir.path / "set-aside"
    folder.mkdir(mode=0o700, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    number = 1
    while (path := folder / f"{stamp}-{number}").exists():
        number += 1
    path.mkdir(mode=0o700)
    return path


def why_not_whole(journal: Path) -> str | None:
    """Why votes cannot be restored from the journals in a folder; None if they can. Raises OSError."""
    from controller.errors import JournalDamaged
    from controller.votes.journal.journal_file import PATTERN, scan

    try:
        if not any([scan(path).arena for path in sorted(journal.glob(PATTERN))]):
            return "There is no journal"
    except JournalDamaged as error:
        return f"{error.path} is damaged, too"
    return None
