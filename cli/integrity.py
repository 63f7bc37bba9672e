"""`agon integrity status | flag | unflag | run`: which votes are not rated and why, of a running arena or of a log."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

import httpx
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
from wire.judgements import CastJudgement, IntegrityView, Judgement
from wire.log_records import LogRecord, parse_log_line
from wire.votes import VoteFlag, VoteRecord

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Which votes are not rated, and why.")

Voter = Annotated[str | None, typer.Option(help="All votes of a voter: `voter` of its records in the log.")]
Cohort = Annotated[str | None, typer.Option(help="All votes of a cohort of invited voters.")]
Battles = Annotated[list[str] | None, typer.Option("--battle", help="The vote on a battle; may be repeated.")]
Flag = Annotated[str, typer.Option(help="Which flag.")]
Note = Annotated[str | None, typer.Option(help="The reason, for the log.")]
Cap = Annotated[int, typer.Option(min=0, help="0: none.")]


@app.command()
def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Print how many votes are not rated, and why."""
    with arena_client(controller_url(url, data_dir), admin_token(data_dir)) as client:
        view = IntegrityView.model_validate_json(check(client.get("/arena/integrity")).content)
    if as_json:
        print(view.model_dump_json(indent=2))
        return
    if view.judged_at is None:
        print("The judge has not finished a round yet.")
        return
    print(
        f"{counts.votes(view.num_votes)}, {view.num_rated} rated; "
        f"{view.voters_flagged} of {view.voters_judged} voters flagged"
    )
    for flag, count in sorted(view.unrated.items(), key=lambda item: -item[1]):
        print(f"  {count:>8}  {flag.replace('_', ' ')}")
    print("limits: " + ", ".join(f"{name.replace('_', ' ')} {limit:g}" for name, limit in view.rules.items()))


@app.command()
def flag(
    voter: Voter = None,
    cohort: Cohort = None,
    battle: Battles = None,
    flag: Flag = "withdrawn",
    note: Note = None,
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Take votes out of the ratings. They stay in the log."""
    _cast("flag", flag, voter, cohort, battle, note, url, data_dir)


@app.command()
def unflag(
    voter: Voter = None,
    cohort: Cohort = None,
    battle: Battles = None,
    flag: Flag = "anomalous_voter",
    note: Note = None,
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Take a flag back. The judge does not set it again."""
    _cast("unflag", flag, voter, cohort, battle, note, url, data_dir)


@app.command()
def run(
    votes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="An exported log; no arena is needed. Default: the arena's.")
    ] = None,
    surprise_limit: Annotated[float, typer.Option(min=1, help="Likelihood ratio against honest voting.")] = 1000,
    voter_cap: Cap = 100,
    address_cap: Cap = 300,
    prompt_cap: Cap = 50,
    probation_votes: Cap = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Print what the judge would append to a log with these limits. Changes nothing."""
    limits = surprise_limit, voter_cap, address_cap, prompt_cap, probation_votes
    if votes is not None:
        found = _found(read_entries(votes), *limits)
    else:
        with _connected(url, data_dir) as client:
            found = _found((parse_log_line(line) for line in read_log(client)), *limits)
    if as_json:
        print(json.dumps(found, indent=2))
    elif found:
        Console().print(_table(found))
    else:
        print("The rules find nothing that the log does not say already.")


def _cast(
    action: Literal["flag", "unflag"],
    flag: str,
    voter: str | None,
    cohort: str | None,
    battle: list[str] | None,
    note: str | None,
    url: str | None,
    data_dir: Path | None,
) -> None:
    if flag not in get_args(VoteFlag):
        raise CliError(f"--flag must be one of {', '.join(get_args(VoteFlag))}.")
    try:
        body = CastJudgement(
            action=action,
            flag=cast(VoteFlag, flag),
            voter=voter,
            cohort=cohort,
            battle_ids=tuple(battle or ()),
            note=note,
        )
    except ValueError:
        raise CliError("name one of --voter, --cohort and --battle (at most 1000 battles).") from None
    with _connected(url, data_dir) as client:
        answer = check(client.post("/arena/integrity/judgements", json=body.model_dump(exclude_none=True)))
    print(f"judgement {Judgement.model_validate_json(answer.content).judgement_id} is in the log")


def _found(
    log: Iterable[LogRecord],
    surprise_limit: float,
    voter_cap: int,
    address_cap: int,
    prompt_cap: int,
    probation_votes: int,
) -> list[dict[str, Any]]:
    """What the rules find, with the names that the log has."""
    from controller.votes.boards.board_view import fold_log
    from controller.votes.integrity.findings import Rules, judge_votes

    voters: list[str | None] = []

    def noted() -> Iterator[LogRecord]:
        for entry in log:
            if isinstance(entry, VoteRecord):
                voters.append(entry.voter)
            yield entry

    rules = Rules(surprise_limit, voter_cap, address_cap, prompt_cap, probation_votes)
    found: list[dict[str, Any]] = []
    for finding in judge_votes(fold_log(noted()), rules, since=0).findings:
        rows = finding.rows.tolist()
        about = f"cohort {finding.cohort}" if finding.cohort else counts.votes(len(rows))
        if finding.is_about_voter:
            about = f"voter {voters[rows[0]]}"
        surprise, number = finding.evidence.get("surprise"), finding.evidence.get("votes")
        found.append(
            {
                "do": finding.action,
                "flag": finding.flag,
                "about": about,
                "surprise": surprise,
                "votes": number,
                "how": finding.note,
            }
        )
    return found


def _table(found: list[dict[str, Any]]) -> Table:
    table = Table()
    for column in found[0]:
        table.add_column(column, justify="right" if column in ("surprise", "votes") else "left")
    for row in found:
        table.add_row(
            row["do"],
            row["flag"].replace("_", " "),
            escape(row["about"]),
            "-" if row["surprise"] is None else f"{row['surprise']:.3g}",
            "-" if row["votes"] is None else f"{row['votes']:.0f}",
            escape(row["how"] or "-"),
        )
    return table


@contextmanager
def _connected(url: str | None, data_dir: Path | None) -> Iterator[httpx.Client]:
    with arena_client(controller_url(url, data_dir), admin_token(data_dir)) as client:
        yield client
