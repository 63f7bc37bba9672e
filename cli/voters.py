"""`agon voters invite | list | revoke`: the invitations of a running arena."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import httpx
import typer
from rich.console import Console
from rich.table import Table

from cli.arena.data_dir import DataDir, default_data_dir
from cli.arena.running_arena import admin_token, arena_client, check, controller_url
from cli.errors import CliError
from wire.invitations import VOTER_NAME, CreateInvitation, Invitation, InvitationList

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Invite voters, list and revoke invitations.")

DEFAULT_WEBUI_URL = "http://127.0.0.1:7860"

Name = Annotated[str, typer.Argument(help="Of the voter: letters, digits and . _ @ + -, at most 64.")]
Url = Annotated[str | None, typer.Option(help="The controller. Default: the arena of the data directory.")]
WebUi = Annotated[
    str | None, typer.Option("--webui", help="URL of the web UI, for links. Default: that of the data directory.")
]
DataDirFlag = Annotated[
    Path | None, typer.Option("--data-dir", help="The folder in which `agon up` stored the admin token.")
]


@app.command()
def invite(
    name: Name,
    cohort: Annotated[str | None, typer.Option(help="Group of voters; vote records hold it.")] = None,
    webui: WebUi = None,
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Print the link that makes a browser vote as NAME. A name that is invited already keeps its link."""
    _check_name(name)
    if cohort is not None:
        _check_name(cohort)
    with _connect(url, data_dir) as client:
        body = CreateInvitation(name=name, cohort=cohort).model_dump(exclude_none=True)
        answer = check(client.post("/arena/voters/invitations", json=body))
    invitation = Invitation.model_validate_json(answer.content)
    if cohort is not None and invitation.cohort != cohort:
        raise CliError(
            f"{name} is invited already, in {_cohort_words(invitation)}. Revoke the invitation to begin anew."
        )
    print(_link(invitation, webui, data_dir))


@app.command("list")
def list_invitations(
    links: Annotated[bool, typer.Option("--links", help="Print name and link of each one that holds.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    webui: WebUi = None,
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Show every invitation, also the revoked ones."""
    with _connect(url, data_dir) as client:
        answer = check(client.get("/arena/voters/invitations"))
    found = InvitationList.model_validate_json(answer.content)
    invitations = found.invitations
    if as_json:
        print(found.model_dump_json(indent=2))
        return
    if links:
        for invitation in invitations:
            if invitation.revoked is None:
                print(f"{invitation.name}\t{_link(invitation, webui, data_dir)}")
        return
    table = Table("name", "cohort", "invited", "revoked")
    for invitation in invitations:
        table.add_row(invitation.name, invitation.cohort or "", _day(invitation.created), _day(invitation.revoked))
    Console().print(table)


@app.command()
def revoke(name: Name, url: Url = None, data_dir: DataDirFlag = None) -> None:
    """End the invitation of NAME at once. Votes that were cast with it stay."""
    _check_name(name)
    with _connect(url, data_dir) as client:
        check(client.delete(f"/arena/voters/invitations/{name}"))
    print(f"{name} is not invited any more")


def _check_name(name: str) -> None:
    if re.fullmatch(VOTER_NAME, name) is None:
        raise CliError(f"{name!r} is no name: letters, digits and . _ @ + -, at most 64.")


def _cohort_words(invitation: Invitation) -> str:
    return "no cohort" if invitation.cohort is None else f"cohort {invitation.cohort}"


def _link(invitation: Invitation, webui: str | None, data_dir: Path | None) -> str:
    if webui is None:
        running = DataDir(data_dir or default_data_dir()).running()
        webui = running.webui_url if running else DEFAULT_WEBUI_URL
    return f"{webui.rstrip('/')}/join/{invitation.token}"


def _day(unix: int | None) -> str:
    return "" if unix is None else time.strftime("%Y-%m-%d %H:%M", time.gmtime(unix))


@contextmanager
def _connect(url: str | None, data_dir: Path | None) -> Iterator[httpx.Client]:
    with arena_client(controller_url(url, data_dir), admin_token(data_dir)) as client:
        yield client
