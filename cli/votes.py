"""`agon votes export | import`: the vote log of a running arena as JSON lines, in Agon's schema or the public one."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated

import httpx
import typer
from pydantic import ValidationError

from cli.arena.running_arena import admin_token, arena_client, check, controller_url
from cli.errors import CliError
from cli.lmsys_schema import from_arena_schema, to_arena_schema
from wire.entry_ids import LOG_START
from wire.votes import ImportReply, VoteRecord

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Export or import the vote log.")

_MAX_PIECE_BYTES = 4_000_000  #: size of one import request, far below the limit of the controller

Url = Annotated[str | None, typer.Option(help="The controller. Default: the arena of the data directory.")]
DataDirFlag = Annotated[
    Path | None, typer.Option("--data-dir", help="The folder in which `agon up` stored the admin token.")
]


class Schema(StrEnum):
    """The schema of exported and imported votes."""

    AGON = "agon"
    ARENA = "arena"


Format = Annotated[
    Schema,
    typer.Option("--format", help="agon: everything; arena: the schema of lmsys/chatbot_arena_conversations."),
]


@app.command("export")
def export_votes(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: standard output.")] = None,
    schema: Format = Schema.AGON,
    after: Annotated[str, typer.Option(help="Only votes after this vote id.")] = str(LOG_START),
    conversations: Annotated[bool, typer.Option(help="Include the conversations that are still stored.")] = False,
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Write the vote log, one JSON object per line, oldest first."""
    wants_texts = conversations or schema is Schema.ARENA
    num_votes = 0
    with _connect(url, data_dir) as client, _writer(output) as file:
        for line in read_log(client, after, conversations=wants_texts):
            if schema is Schema.ARENA:
                line = json.dumps(to_arena_schema(VoteRecord.model_validate_json(line)), ensure_ascii=False)
            file.write(line + "\n")
            num_votes += 1
    print(f"{num_votes} votes exported", file=sys.stderr)


@app.command("import")
def import_votes(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines; - for standard input.")],
    schema: Format = Schema.AGON,
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Append the votes of FILE to the log. Votes on battles that the log already has are skipped."""
    text = sys.stdin.read() if str(source) == "-" else _read(source)
    votes = list(parse_votes(text, schema))
    imported = skipped = 0
    with _connect(url, data_dir) as client:
        for piece in _pieces(votes):
            answer = check(
                client.post("/arena/votes/import", content=piece, headers={"Content-Type": "application/x-ndjson"})
            )
            reply = ImportReply.model_validate_json(answer.content)
            imported, skipped = imported + reply.imported, skipped + reply.skipped
    print(f"{imported} votes imported, {skipped} skipped because their battles were there already", file=sys.stderr)


def read_log(client: httpx.Client, after: str = LOG_START, *, conversations: bool = False) -> Iterator[str]:
    """The lines of the log as the controller streams them."""
    query = {"after": after, "conversations": "true" if conversations else "false"}
    with client.stream("GET", "/arena/votes", params=query) as answer:
        rest = b""
        for chunk in check(answer).iter_bytes():
            *lines, rest = (rest + chunk).split(b"\n")  # only \n ends a line: texts may hold any other break
            yield from (line.decode() for line in lines)


def parse_votes(text: str, schema: Schema) -> Iterator[VoteRecord]:
    """The votes of `text`, one per line; raises CliError with the number of a bad line."""
    parse: dict[Schema, Callable[[str, int], VoteRecord]] = {
        Schema.AGON: lambda line, number: VoteRecord.model_validate_json(line),
        Schema.ARENA: lambda line, number: from_arena_schema(json.loads(line), number),
    }
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield parse[schema](line, number)
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                where = ".".join(str(part) for part in first["loc"])
                hint = "; --format arena reads the public schema" if '"question_id"' in line else ""
                raise CliError(f"line {number} is not a vote: {where}: {first['msg']}{hint}") from None
            except ValueError as error:
                raise CliError(f"line {number} is not a vote: {error}") from None


def _pieces(votes: list[VoteRecord]) -> Iterator[bytes]:
    piece: list[bytes] = []
    size = 0
    for vote in votes:
        line = vote.model_dump_json(exclude_none=True).encode() + b"\n"
        if piece and size + len(line) > _MAX_PIECE_BYTES:
            yield b"".join(piece)
            piece, size = [], 0
        piece.append(line)
        size += len(line)
    if piece:
        yield b"".join(piece)


@contextmanager
def _connect(url: str | None, data_dir: Path | None) -> Iterator[httpx.Client]:
    with arena_client(controller_url(url, data_dir), admin_token(data_dir)) as client:
        yield client


@contextmanager
def _writer(path: Path | None) -> Iterator[IO[str]]:
    """Write to a temporary file and rename it, so that `path` is complete or absent."""
    if path is None:
        yield sys.stdout
        return
    partial = path.with_name(path.name + ".part")
    try:
        with open(partial, "w", encoding="utf-8") as file:
            yield file
        partial.replace(path)
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror}.") from None
    finally:
        partial.unlink(missing_ok=True)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"cannot read {path}: {error}.") from None
