"""`agon leaderboard`: the live board, or the board computed from the vote log by the code of the controller."""

import csv
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, cast, get_args

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cli import counts
from cli.arena.running_arena import admin_token, arena_client, check, controller_url
from cli.errors import CliError
from cli.formats.log_files import read_entries
from cli.transfer.arena_log import read_log
from cli.votes import DataDirFlag, Url
from wire.leaderboard import FitModel, LeaderboardRow, LeaderboardView, Statement, Weighting
from wire.log_records import LogRecord, parse_log_line
from wire.model_cards import BoardCards
from wire.openai.models import ModelList

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
    board: Annotated[
        str, typer.Option(help="overall, decisive, multi_turn, named, code, lang_de ...: `boards` of --json.")
    ] = "overall",
    style_control: Annotated[
        bool, typer.Option(help="Adjust the ratings for length and formatting of the answers.")
    ] = False,
    min_votes: Annotated[int, typer.Option(min=0, help="A model with fewer votes gets no interval.")] = _MIN_VOTES,
    fit: Annotated[
        str, typer.Option(help="bradley_terry: a tie is half a win; rao_kupper: ties have their own probability.")
    ] = "bradley_terry",
    weighting: Annotated[
        str,
        typer.Option(
            help="votes: each counts one; propensity: as if all pairs had been drawn alike; voters: less for "
            "a voter who contradicts the others."
        ),
    ] = "votes",
    anchor: Annotated[
        str | None,
        typer.Option(envvar="AGON_BOARD_ANCHOR", help="Models whose mean rating is 1000, separated by commas."),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the rows as CSV.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the leaderboard as JSON.")] = False,
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Print the leaderboard."""
    if votes is not None and not recompute:
        raise CliError("--votes FILE goes with --recompute.")
    asked = {
        "board": board,
        "style_control": str(style_control).lower(),
        "min_votes": str(min_votes),
        "fit": _one_of("--fit", fit, get_args(FitModel)),
        "weighting": _one_of("--weighting", weighting, get_args(Weighting)),
        **({} if anchor is None else {"anchor": anchor}),
    }
    if votes is not None:
        view = _recompute(read_entries(votes), (), asked)
    elif recompute:
        with arena_client(controller_url(url, data_dir), admin_token(data_dir)) as client:
            if anchor is None:  # the arena may have one
                live = LeaderboardView.model_validate_json(
                    check(client.get("/arena/leaderboard", params={"board": board})).content
                )
                asked["anchor"] = ",".join(live.anchor)
            models = ModelList.model_validate_json(check(client.get("/v1/models")).content)
            cards = BoardCards.model_validate_json(check(client.get("/arena/models")).content)
            names = {model.id for model in models.data} | {card.model for card in cards.models}
            log = (parse_log_line(line) for line in read_log(client))
            view = _recompute(log, tuple(sorted(names)), asked)
    else:
        with arena_client(controller_url(url, data_dir), None) as client:
            answer = check(client.get("/arena/leaderboard", params=asked))
        view = LeaderboardView.model_validate_json(answer.content)
    if as_json:
        print(view.model_dump_json(indent=2))
    elif as_csv:
        _write_csv(view)
    else:
        Console().print(_table(view))
        for statement in view.statements:
            Console().print(_sentence(statement), highlight=False)


def _one_of(option: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise CliError(f"{option} must be one of {', '.join(choices)}.")
    return value


def _recompute(log: Iterable[LogRecord], models: tuple[str, ...], asked: dict[str, str]) -> LeaderboardView:
    from controller.votes.boards.board_view import BoardQuery, fold_log, view_of
    from controller.votes.boards.board_votes import offered_boards
    from ratings.errors import UnknownModelError

    votes = fold_log(log)
    query = BoardQuery(
        board=asked["board"],
        style_control=asked["style_control"] == "true",
        min_votes=int(asked["min_votes"]),
        fit=cast(FitModel, asked["fit"]),
        weighting=cast(Weighting, asked["weighting"]),
        anchor=tuple(sorted({name.strip() for name in asked.get("anchor", "").split(",")} - {""})),
    )
    try:
        view = view_of(query, votes, models=models, updated_at=time.time())
    except UnknownModelError as error:
        raise CliError(f"--anchor names {error.model!r}, which is not on this board.") from None
    if view is None:
        raise CliError(f"--board must be one of {', '.join(offered_boards(votes))}.")
    return view


def _write_csv(view: LeaderboardView) -> None:
    writer = csv.DictWriter(sys.stdout, list(LeaderboardRow.model_fields), lineterminator="\n")
    writer.writeheader()
    for row in view.rows:
        writer.writerow({**row.model_dump(), "flags": " ".join(row.flags)})


def _sentence(statement: Statement) -> str:
    """What the votes say of two neighbours."""
    above, below = escape(statement.above), escape(statement.below)
    if statement.is_decided:
        return f"{above} is above {below}."
    if statement.votes_needed is None:
        return f"{above} or {below}: undecided."
    return f"{above} or {below}: undecided; about {statement.votes_needed} more votes decide."


def _table(view: LeaderboardView) -> Table:
    style = ", style controlled" if view.style_controlled else ""
    anchor = f", anchored at {', '.join(map(escape, view.anchor))}" if view.anchor else ""
    table = Table(title=f"{view.board}{style}{anchor}: {counts.votes(view.num_votes)}", title_justify="left")
    for column in ("rank", "model", "rating", "95 % interval", "votes", "won", "lost", "tied", "notes"):
        table.add_column(column, justify="left" if column in ("model", "notes") else "right")
    for row in sorted(view.rows, key=lambda row: row.lower is None):  # those without a rank stand below the others
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
