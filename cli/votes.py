"""`agon votes export | import | label | release`: the vote log of a running arena as JSON lines or Parquet, in Agon's
schema or a public one; its categories by a model; and the log as a data set for strangers."""

import json
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from cli import counts
from cli.arena.data_dir import secret_from_environment
from cli.arena.running_arena import admin_token, arena_client, controller_url
from cli.errors import CliError
from cli.formats.schemas import Schema, SourceSchema
from cli.transfer.arena_log import PATIENCE_S
from cli.transfer.exports import Export
from cli.transfer.imports import import_file
from cli.transfer.left_out import LeftOut
from wire.entry_ids import LOG_START

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Export, import, label or release the vote log.")

Url = Annotated[str | None, typer.Option(help="The controller. Default: the arena of the data directory.")]
DataDirFlag = Annotated[
    Path | None, typer.Option("--data-dir", help="The folder in which `agon up` stored the admin token.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")]
Patience = Annotated[
    float, typer.Option(min=0, help="Seconds without an answer of the arena after which the command gives up.")
]


@app.command("export")
def export_votes(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Default: standard output. A name with .parquet makes a Parquet file."),
    ] = None,
    schema: Annotated[
        Schema,
        typer.Option(
            "--format",
            help="agon: everything; arena: the schema of lmsys/chatbot_arena_conversations; arena-140k: that of "
            "lmarena-ai/arena-human-preference-140k.",
        ),
    ] = Schema.AGON,
    after: Annotated[str, typer.Option(help="Only votes after this vote id.")] = str(LOG_START),
    conversations: Annotated[bool, typer.Option(help="Include the conversations that are still stored.")] = False,
    as_json: AsJson = False,
    patience: Patience = PATIENCE_S,
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Write the vote log, one vote per line or row, oldest first. An export to a file that was interrupted goes on when
    the command is run again."""
    if as_json and output is None:
        raise CliError("--json prints where the votes go: name a file with --output.")
    address = controller_url(url, data_dir)
    with arena_client(address, admin_token(data_dir)) as client:
        export = Export(client, schema, after, conversations=conversations, patience_s=patience)
        num_votes = export.to_stream(sys.stdout.buffer) if output is None else export.to_file(output)
    print(f"{counts.votes(num_votes)} exported", file=sys.stderr)
    if as_json:
        print(json.dumps({"exported": num_votes, "file": str(output)}))


@app.command("import")
def import_votes(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="JSON lines, a JSON array, CSV or Parquet; - for JSON lines from standard input."
        ),
    ],
    schema: Annotated[
        SourceSchema,
        typer.Option(
            "--format",
            help="auto: tell it by the fields; agon: our own; arena, arena-140k: what names model_a, model_b and a "
            "winner (arenas, MT-bench, Kaggle); comparia, comparia-reactions; arena-hard; alpaca-eval; dpo. See "
            "docs/votes.md.",
        ),
    ] = SourceSchema.AUTO,
    skip_invalid: Annotated[
        bool,
        typer.Option(
            "--skip-invalid", help="Leave out lines that are no votes, and keep them in FILE.left-out.ndjson."
        ),
    ] = False,
    as_json: AsJson = False,
    patience: Patience = PATIENCE_S,
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Append the votes of FILE to the log. Votes on battles that the log already has are skipped, so an import may be
    repeated. One that was interrupted goes on where it was when the command is run again."""
    left_out = LeftOut(source) if skip_invalid else None
    with arena_client(controller_url(url, data_dir), admin_token(data_dir)) as client:
        done = import_file(client, source, schema, patience_s=patience, left_out=left_out)
    print(
        f"{done.imported} votes imported, {done.skipped} skipped because their battles were there already"
        + ("" if left_out is None else f", {left_out}"),
        file=sys.stderr,
    )
    if as_json:
        told: dict[str, object] = {"imported": done.imported, "skipped": done.skipped}
        if left_out is not None:
            file = str(left_out.path) if left_out.count else None
            told |= {"left_out": left_out.count, "first_lines": left_out.first_lines, "left_out_file": file}
        print(json.dumps(told))


@app.command("label")
def label_votes(
    model: Annotated[str, typer.Option(help="The model that labels.")],
    endpoint: Annotated[
        str | None,
        typer.Option(
            help="OpenAI-compatible server of the model. Default: the arena. AGON_LABEL_API_KEY is sent to it."
        ),
    ] = None,
    category: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=MEANING",
            help="A category of your own, beside code, maths and creative; may be given several times.",
        ),
    ] = None,
    parallel: Annotated[int, typer.Option(min=1, max=64, help="Conversations that are labelled at a time.")] = 4,
    as_json: AsJson = False,
    patience: Patience = PATIENCE_S,
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Ask a model for the categories of each voted conversation whose texts are there, and append its answers to the
    log, where they take the place of what the rules say. The same command again goes on with the votes since then."""
    from cli.labels import DEFINITIONS, Labeller, label_log

    definitions = {**DEFINITIONS, **dict(_category(text) for text in category or ())}
    address = controller_url(url, data_dir)
    server = (endpoint or address).rstrip("/").removesuffix("/v1")
    key = secret_from_environment("AGON_LABEL_API_KEY" if endpoint else "AGON_API_KEY")
    with (
        arena_client(address, admin_token(data_dir)) as arena,
        arena_client(server, key) as client,
    ):
        labeller = Labeller(client, model, definitions, patience)
        done = label_log(arena, labeller, parallel=parallel, patience_s=patience)
    print(
        f"{counts.votes(done.labelled)} labelled; {done.known} were before, {done.without_texts} have no texts,"
        f" {done.not_understood} answers were not understood",
        file=sys.stderr,
    )
    if as_json:
        print(json.dumps(vars(done)))


def _category(text: str) -> tuple[str, str]:
    name, _, meaning = text.partition("=")
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) or not meaning.strip():
        raise CliError("--category is NAME=MEANING, with a name of small letters, digits and underscores.")
    return name, meaning.strip()


@app.command("release")
def release_votes(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder for the files of the release.")],
    board: Annotated[list[str], typer.Option(help="A board to release; may be given several times.")] = ["overall"],  # noqa: B006
    style_control: Annotated[bool, typer.Option(help="The boards at equal style, too.")] = False,
    fit: Annotated[str, typer.Option(help="bradley_terry or rao_kupper.")] = "bradley_terry",
    weighting: Annotated[str, typer.Option(help="votes, propensity or voters.")] = "votes",
    min_votes: Annotated[int, typer.Option(min=0, help="A model with fewer votes gets no interval.")] = 30,
    votes: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="An exported log, with conversations, instead of a running arena's."),
    ] = None,
    anchor: Annotated[
        list[str] | None,
        typer.Option(help="A model of the anchor; may be given several times. Default: the arena's anchor."),
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(help="Keeps the key of the ids, so that the next release has the same ones. Default: a new key."),
    ] = None,
    presidio: Annotated[bool, typer.Option(help="Find personal data with Presidio, too (extra `presidio`).")] = False,
    title: Annotated[str, typer.Option(help="Title of the data card.")] = "Votes of a chat arena",
    licence: Annotated[str, typer.Option(help="Licence of the data, as the Hugging Face Hub names it.")] = "cc-by-4.0",
    as_json: AsJson = False,
    patience: Patience = PATIENCE_S,
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Write a data set for strangers: votes as Parquet and JSON lines, texts of visitors who agreed, without personal
    data, a data card, and a notebook that computes the boards from the files, equal to the live ones in every digit."""
    from cli.release.command import ReleaseWish, release

    wish = ReleaseWish(
        boards=tuple(dict.fromkeys(board)),
        styles=(False, True) if style_control else (False,),
        fit=fit,
        weighting=weighting,
        min_votes=min_votes,
        anchor=tuple(anchor or ()),
        title=title,
        licence=licence,
        has_presidio=presidio,
    )
    if votes is not None:
        done = release(folder, wish, key_file, votes, patience_s=patience)
    else:
        with arena_client(controller_url(url, data_dir), admin_token(data_dir)) as client:
            done = release(folder, wish, key_file, client, patience_s=patience)
    print(
        f"{done.num_votes} votes and {done.num_conversations} conversations released,"
        f" {sum(done.num_removed.values())} items of personal data removed; every board is recomputed and equal",
        file=sys.stderr,
    )
    if as_json:
        told = {"votes": done.num_votes, "conversations": done.num_conversations, "removed": dict(done.num_removed)}
        print(json.dumps({**told, "folder": str(folder)}))
