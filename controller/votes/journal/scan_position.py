"""How far a journal has been checked, remembered in a small file beside it, so that a start reads only what came after.

The file is covered by a hash of itself, and the journal must have the remembered hash at the remembered place; in any
other case the whole journal is checked. Lines before the place are checked later, beside the work (follower.py).
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from wire.entry_ids import EntryId

SUFFIX = ".checked"


@dataclass(frozen=True)
class Scan:
    """What a journal says. `size` is the length in bytes up to the last complete line, `last_hash` the hash of that
    line, "" where there is none."""

    arena: str | None
    num_votes: int
    last_id: str
    last_hash: str
    size: int
    num_torn_bytes: int = 0


def position_file(journal: Path) -> Path:
    """The file that remembers how far `journal` has been checked."""
    return journal.with_name(journal.name + SUFFIX)


def remember(journal: Path, scan: Scan) -> None:
    """Keep `scan`, whose lines are on disk. A position that cannot be kept costs the next start a longer check."""
    values = {name: value for name, value in asdict(scan).items() if name != "num_torn_bytes"}
    target = position_file(journal)
    partial = target.with_name(target.name + ".part")
    try:
        partial.write_text(json.dumps({**values, "digest": _digest(values)}))
        partial.chmod(0o600)
        partial.replace(target)
    except OSError:
        forget(journal)


def recall(journal: Path, tail_of: bytes) -> Scan | None:
    """The remembered scan; None unless it is whole and the journal has, where it ends, `tail_of` with the remembered
    hash in place of `%s`. Raises OSError for the journal."""
    try:
        values = json.loads(position_file(journal).read_bytes())
        digest = values.pop("digest")
        EntryId(values["last_id"])
        scan = Scan(**values)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if digest != _digest(values) or scan.arena is None:
        return None
    tail = tail_of % scan.last_hash.encode()
    with open(journal, "rb") as file:
        file.seek(max(0, scan.size - len(tail)))
        return scan if file.read(len(tail)) == tail else None


def forget(journal: Path) -> None:
    """The next start checks the whole journal."""
    position_file(journal).unlink(missing_ok=True)


def _digest(values: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
