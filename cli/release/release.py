"""Writes a release: the votes of a log, the texts whose visitors have agreed, and the boards that follow from them.

The folder appears when it is complete: it is written beside its place, its own script recomputes the boards from the
files, and only a release that gives every digit of the boards is given its name.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Self

from cli.errors import CliError
from cli.release.card import CardFacts, make_card
from cli.release.notebook import make_notebook
from cli.release.pseudonyms import Pseudonyms
from cli.release.rows import (
    CONVERSATION_COLUMNS,
    VOTE_COLUMNS,
    ConversationRows,
    VoteRows,
    count_prompts,
)
from cli.release.scrubbing import Scrubber
from cli.release.tables import TwoFiles
from controller.votes.boards.board_view import fold_log
from ratings.options import FitOptions
from wire.leaderboard import LeaderboardView
from wire.log_records import LogRecord, id_of, parse_log_line
from wire.votes import VoteRecord

_CHECK_TIMEOUT_S = 3600.0
#: Fields of a board that the votes decide. The others are about the arena at that moment.
_CLAIMED = {
    *("board", "num_votes", "rows", "win_rate", "battle_count", "predicted", "coefficients", "anchor"),
    *("tie_points", "position_bias"),
}


@dataclass(frozen=True)
class Claim:
    """A board of the release and how it was fitted."""

    view: LeaderboardView
    options: FitOptions

    def as_json(self) -> dict[str, Any]:
        """The entry of boards.json."""
        view = self.view.model_dump(mode="json", include=_CLAIMED)
        return {"board": self.view.board, "options": asdict(self.options), "view": view}


@dataclass(frozen=True)
class ReleaseText:
    """What the card says that the votes do not."""

    title: str
    licence: str
    has_presidio: bool


@dataclass(frozen=True)
class Released:
    """What a release has become."""

    num_votes: int
    num_conversations: int
    num_same_prompt: int
    num_removed: dict[str, int]


class ReleaseLog:
    """The log of an arena in a private file that no name leads to, with its table; to be used in a with block.

    It is `lines` up to the entry `last_id`, or all of them. Entering the block reads it, and raises CliError if it has
    no votes or ends before `last_id`.
    """

    def __init__(self, lines: Iterable[bytes], *, last_id: str | None = None) -> None:
        self._lines = lines
        self._last_id = last_id
        self.num_same: Counter[str] = Counter()  #: conversations that may be released, by their first prompt
        self.num_agreed = 0  #: votes whose visitors agreed to a release

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._file = stack.enter_context(tempfile.TemporaryFile())
            self.votes = fold_log(self._spooled())
            if not self.votes.num_votes:
                raise CliError("the log has no votes.")
            if self._last_id not in (None, self.votes.last_vote_id):
                raise CliError(f"the log ends before {self._last_id}, up to which the board counts; try again.")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def entries(self) -> Iterator[VoteRecord]:
        """The votes, oldest first."""
        self._file.seek(0)
        for line in self._file:
            entry = parse_log_line(line)
            if isinstance(entry, VoteRecord):
                yield entry

    def _spooled(self) -> Iterator[LogRecord]:
        for line in self._lines:
            self._file.write(line + b"\n")
            entry = parse_log_line(line)
            if isinstance(entry, VoteRecord):
                count_prompts(self.num_same, entry)
                self.num_agreed += entry.consent is True
                yield entry.model_copy(update={"conversations": None})
            else:
                yield entry
            if id_of(entry) == self._last_id:
                return


def write_release(
    folder: Path, log: ReleaseLog, claims: Sequence[Claim], text: ReleaseText, key: bytes, scrubber: Scrubber
) -> Released:
    """Write the release into the new folder `folder`. Raises CliError, also if the files do not give the boards."""
    with _appearing(folder) as partial:
        rows = VoteRows(log.votes, tuple(dict.fromkeys(claim.view.board for claim in claims)), Pseudonyms(key))
        texts = ConversationRows(log.num_same, scrubber)
        with (
            TwoFiles(partial, "votes", VOTE_COLUMNS) as votes,
            TwoFiles(partial, "conversations", CONVERSATION_COLUMNS) as conversations,
        ):
            for position, vote in enumerate(log.entries()):
                row = rows.row(position, vote)
                votes.write(row)
                if (conversation := texts.row(row, vote)) is not None:
                    conversations.write(conversation)
        released = Released(
            num_votes=votes.num_rows,
            num_conversations=conversations.num_rows,
            num_same_prompt=texts.num_same_prompt,
            num_removed=dict(sorted(scrubber.num_removed.items())),
        )
        entries = [claim.as_json() for claim in claims]
        (partial / "boards.json").write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n", "utf-8")
        _write_code(partial)
        facts = CardFacts(
            title=text.title,
            licence=text.licence,
            has_presidio=text.has_presidio,
            votes=log.votes,
            num_agreed=log.num_agreed,
            num_conversations=released.num_conversations,
            num_same_prompt=released.num_same_prompt,
            num_removed=released.num_removed,
            views=tuple(claim.view for claim in claims),
        )
        (partial / "README.md").write_text(make_card(facts), "utf-8")
        _check(partial)
    return released


def _write_code(folder: Path) -> None:
    """The notebook, the same as a script, and the code of the fits."""
    script = resources.files("cli.release").joinpath("recompute_cells.py").read_text("utf-8")
    (folder / "recompute.py").write_text(script, "utf-8")
    (folder / "recompute.ipynb").write_text(make_notebook(script), "utf-8")
    code = folder / "code" / "ratings"
    code.mkdir(parents=True)
    for source in resources.files("ratings").iterdir():
        if source.name.endswith(".py"):
            (code / source.name).write_text(source.read_text("utf-8"), "utf-8")


def _check(folder: Path) -> None:
    """Recompute the boards from the files, as a stranger does."""
    done = subprocess.run(
        [sys.executable, "recompute.py"], cwd=folder, capture_output=True, text=True, timeout=_CHECK_TIMEOUT_S
    )
    if done.returncode != 0:
        raise CliError(f"the files of the release do not give its boards:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    for cache in folder.rglob("__pycache__"):
        shutil.rmtree(cache)


@contextmanager
def _appearing(folder: Path) -> Iterator[Path]:
    """A folder to write to, which gets its name at the end, or is removed."""
    if folder.exists():
        raise CliError(f"{folder} exists; a release goes into a new folder.")
    partial = folder.with_name(folder.name + ".part")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        partial.rename(folder)
    except OSError as error:
        raise CliError(f"cannot write {folder}: {error}.") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
