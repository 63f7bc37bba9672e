"""`agon why ID`: what happened to a battle, a chat or a request, from the store and from the logs of the services."""

import json
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cli.arena.data_dir import DataDir, default_data_dir
from cli.arena.running_arena import admin_token, arena_client, check, controller_url
from cli.errors import CliError
from cli.log_lines import LogLine, lines_of
from cli.votes import DataDirFlag, Url
from wire.trails import TrailEntry, TrailView

app = typer.Typer(add_completion=False)

_SHORT_CHARS = 8  #: of a conversation's id in logs
_UNSAID = {"time", "controller", "step", "request_id"}


@app.command()
def why(
    identifier: Annotated[
        str, typer.Argument(metavar="ID", help="Of a battle or a chat; or an X-Request-Id, for which logs are read.")
    ],
    logs: Annotated[
        list[Path] | None,
        typer.Option(help="A folder of logs; may be repeated. Default: that of the data directory."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Print the steps of a battle or chat, the log lines about it, and a sentence for each thing that went wrong."""
    folders = logs or [folder for folder in [DataDir(data_dir or default_data_dir()).logs] if folder.is_dir()]
    trail = _trail(identifier, url, data_dir)
    names = {identifier} if trail is None else {identifier[:_SHORT_CHARS], *_request_ids(trail.entries)}
    lines = [line for folder in folders for line in lines_of(folder, names)]
    if trail is None and not lines:
        raise CliError(f"no battle, chat or request {identifier!r} is known, and no log names it.")
    if as_json:
        shown = None if trail is None else trail.model_dump(mode="json", exclude_none=True)
        print(json.dumps({"trail": shown, "log": [asdict(line) for line in lines]}, indent=2))
        return
    if trail is not None:
        _print_head(trail)
    for at, text in sorted([*_steps(trail), *_logged(lines)]):
        print(f"  {at[11:23]}  {text}")
    if trail is not None:
        for cause in trail.causes or ("Nothing went wrong, and nothing took long.",):
            print(f"cause: {cause}")


def _trail(identifier: str, url: str | None, data_dir: Path | None) -> TrailView | None:
    """The conversation's steps; None if no conversation has this id."""
    with arena_client(controller_url(url, data_dir), admin_token(data_dir)) as client:
        answer = client.get(f"/arena/admin/trails/{identifier}")
        if answer.status_code == 404:
            return None
        return TrailView.model_validate_json(check(answer).content)


def _request_ids(entries: Iterable[TrailEntry]) -> set[str]:
    return {entry.request_id for entry in entries if entry.request_id is not None}


def _print_head(trail: TrailView) -> None:
    models = " and ".join(trail.models[side] for side in sorted(trail.models)) or "models that are no longer known"
    state = "expired" if trail.state is None else trail.state
    print(f"{trail.kind} {trail.conversation_id}: {models}, {trail.mode or ''} {state}".rstrip())
    if trail.outcome is not None:
        flags = ", ".join(flag.replace("_", " ") for flag in trail.flags)
        print(f"vote: {trail.outcome}, {f'not rated ({flags})' if flags else 'rated'}")


def _steps(trail: TrailView | None) -> Iterable[tuple[str, str]]:
    for entry in trail.entries if trail is not None else ():
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(entry.time)) + f".{round(entry.time % 1 * 1000):03d}Z"
        said = entry.model_dump(exclude_none=True, exclude=_UNSAID)
        fields = " ".join(f"{name}={value}" for name, value in said.items())
        yield at, f"{entry.step:<13} {fields}  [{entry.controller}]"


def _logged(lines: Iterable[LogLine]) -> Iterable[tuple[str, str]]:
    for line in lines:
        yield line.time, f"{'! ' if line.is_trouble else ''}{line.process}: {line.text}"
