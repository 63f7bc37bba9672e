"""`agon leaderboard`: the live board, or the board computed from the vote log by the code of the controller."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cli.arena.running_arena import admin_token, arena_client, check, controller_url
from cli.errors import CliError
from cli.votes import DataDirFlag, Schema, Url, parse_votes, read_log
from wire.leaderboard import LeaderboardRow, LeaderboardView
from wire.openai import ModelList
from wire.votes import VoteRecord

app = typer.Typer(add_completion=False)

_MIN_VOTES = 30


@app.command()
def leaderboard(
    recompute: Annotated[
        bool, typer.Option(help="Compute it from the whole vote log instead of asking the controller.")
    ] = False,
    votes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --recompute: an exported log; no arena is needed.")
    ] = None,
    board: Annotated[str, typer.Option(help="overall, decisive, multi_turn or named.")] = "overall",
    style_control: Annotated[
        bool, typer.Option(help="Adjust the ratings for length and formatting of the answers.")
    ] = False,
    min_votes: Annotated[int, typer.Option(min=0, help="A model with fewer votes gets no interval.")] = _MIN_VOTES,
    as_json: Annotated[bool, typer.Option("--json", help="Print the leaderboard as JSON.")] = False,
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Print the leaderboard."""
    if votes is not None and not recompute:
        raise CliError("--votes FILE goes with --recompute.")
    if votes is not None:
        view = _recompute(_votes_of_file(votes), (), board, style_control, min_votes)
    elif recompute:
        with arena_client(controller_url(url, data_dir), admin_token(data_dir)) as client:
            models = ModelList.model_validate_json(check(client.get("/v1/models")).content)
            log = (VoteRecord.model_validate_json(line) for line in read_log(client))
            names = tuple(sorted(model.id for model in models.data))
            view = _recompute(log, names, board, style_control, min_votes)
    else:
        query = {"board": board, "style_control": str(style_control).lower(), "min_votes": str(min_votes)}
        with arena_client(controller_url(url, data_dir), None) as client:
            answer = check(client.get("/arena/leaderboard", params=query))
        view = LeaderboardView.model_validate_json(answer.content)
    if as_json:
        print(view.model_dump_json(indent=2))
    else:
        Console().print(_table(view))


def _votes_of_file(path: Path) -> Iterator[VoteRecord]:
    try:
        return parse_votes(path.read_text(encoding="utf-8"), Schema.AGON)
    except OSError as error:
        raise CliError(f"cannot read {path}: {error.strerror}.") from None


def _recompute(
    votes: Iterator[VoteRecord], models: tuple[str, ...], board: str, style_control: bool, min_votes: int
) -> LeaderboardView:
    from controller.votes.leaderboard import fold_votes
    from controller.votes.vote_fold import BOARDS

    if board not in BOARDS:
        raise CliError(f"--board must be one of {', '.join(BOARDS)}.")
    return fold_votes(votes, board=board, models=models, min_votes=min_votes, style_control=style_control)


def _table(view: LeaderboardView) -> Table:
    style = ", style controlled" if view.style_controlled else ""
    table = Table(title=f"{view.board}{style}: {view.num_votes} votes", title_justify="left")
    for column in ("rank", "model", "rating", "95 % interval", "votes", "won", "lost", "tied", "notes"):
        table.add_column(column, justify="left" if column in ("model", "notes") else "right")
    for row in view.rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: LeaderboardRow) -> tuple[str, ...]:
    has_interval = row.lower is not None and row.upper is not None
    return (
        str(row.rank) if has_interval else "-",  # too few votes for one
        escape(row.model),
        f"{row.rating:.1f}",
        f"{row.lower:.1f} .. {row.upper:.1f}" if has_interval else "-",
        str(row.votes),
        str(row.wins),
        str(row.losses),
        str(row.ties),
        ", ".join(flag.replace("_", " ") for flag in row.flags),
    )
