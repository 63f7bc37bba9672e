"""What `agon votes release` does: reads log and boards of an arena, or of a file, and has the release written."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from cli.arena.running_arena import check
from cli.errors import CliError
from cli.formats.log_files import read_lines
from cli.release.pseudonyms import release_key
from cli.release.release import Claim, Released, ReleaseLog, ReleaseText, write_release
from cli.release.scrubbing import Scrubber, presidio_finder
from cli.transfer.arena_log import read_log
from ratings.errors import UnknownModelError
from ratings.options import FitOptions
from wire.leaderboard import LeaderboardView


@dataclass(frozen=True)
class ReleaseWish:
    """What is to be released, and how its boards are fitted. `anchor`: none means that of the arena."""

    boards: tuple[str, ...]
    styles: tuple[bool, ...]
    fit: Any
    weighting: Any
    min_votes: int
    anchor: tuple[str, ...]
    title: str
    licence: str
    has_presidio: bool

    def options(self, style: bool, anchor: tuple[str, ...]) -> FitOptions:
        """The options of one board. Raises CliError."""
        try:
            return FitOptions(self.fit, style, self.weighting, anchor, self.min_votes)
        except ValueError as error:
            raise CliError(f"{error}.") from None


def release(
    folder: Path, wish: ReleaseWish, key_file: Path | None, source: httpx.Client | Path, *, patience_s: float
) -> Released:
    """Write a release of a running arena, or of an exported log, into `folder`. Raises CliError."""
    key = release_key(key_file)
    scrubber = Scrubber([presidio_finder()] if wish.has_presidio else ())
    text = ReleaseText(wish.title, wish.licence, wish.has_presidio)
    if isinstance(source, Path):
        with ReleaseLog(line.text for line in read_lines(source)) as log:
            return write_release(folder, log, list(_computed(wish, log)), text, key, scrubber)
    claims = list(_live(wish, source))
    lines = read_log(source, conversations=True, patience_s=patience_s)
    with ReleaseLog(lines, last_id=claims[0].view.last_vote_id) as log:
        return write_release(folder, log, claims, text, key, scrubber)


def _live(wish: ReleaseWish, client: httpx.Client) -> Iterator[Claim]:
    """The boards as the arena shows them, all up to the same vote."""
    last_id: str | None = None
    for board, style in _asked(wish):
        options = wish.options(style, wish.anchor)
        query = {"board": board, "style_control": str(style).lower(), "min_votes": str(wish.min_votes)}
        chosen = {"fit": (options.fit, "bradley_terry"), "weighting": (options.weighting, "votes")}
        query |= {name: value for name, (value, default) in chosen.items() if value != default}
        if wish.anchor:
            query["anchor"] = ",".join(wish.anchor)
        answer = check(client.get("/arena/leaderboard", params=query))
        view = LeaderboardView.model_validate_json(answer.content)
        if (view.fit, view.weighting, view.style_controlled) != (options.fit, options.weighting, style):
            raise CliError(f"the arena does not fit the board {board} so: {asdict(options)}.")
        if last_id not in (None, view.last_vote_id):
            raise CliError("a vote came between two boards; try again.")
        last_id = view.last_vote_id
        yield Claim(view, wish.options(style, view.anchor))


def _computed(wish: ReleaseWish, log: ReleaseLog) -> Iterator[Claim]:
    """The boards of a file, computed by the code of the controller."""
    from controller.votes.boards.board_view import BoardQuery, view_of

    for board, style in _asked(wish):
        options = wish.options(style, wish.anchor)
        query = BoardQuery(board, style, options.min_votes, options.fit, options.weighting, options.anchor)
        try:
            view = view_of(query, log.votes, updated_at=0.0)
        except UnknownModelError as error:
            raise CliError(f"{error}.") from None
        if view is None:
            raise CliError(f"there is no board {board!r} of these votes.")
        yield Claim(view, wish.options(style, view.anchor))


def _asked(wish: ReleaseWish) -> Iterator[tuple[str, bool]]:
    return ((board, style) for board in wish.boards for style in wish.styles)
