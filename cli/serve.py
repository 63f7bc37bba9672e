"""`agon serve MODEL`: one OpenAI-compatible model server. It is a worker without a controller."""

import runpy
import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.errors import CliError
from cli.time_slices import ask_for_short_slices
from engine.model_files import is_gguf

app = typer.Typer(add_completion=False)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def serve(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A folder in Hugging Face layout, a GGUF file, a hub id, or, for a GGUF file of the hub, "
            "ORGANISATION/MODEL:Q4_K_M.",
        ),
    ],
    host: Annotated[str, typer.Option()] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8200,
) -> None:
    """Serve MODEL (or NAME=MODEL) behind /v1/chat/completions and /v1/completions.

    Every other flag goes to the worker unchanged: `agon worker --help` lists them.
    """
    source = model.partition("=")[2] or model
    path = Path(source).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise CliError(f"there is no file {source}.")
    elif source.startswith(("/", "./", "../", "~")) and not path.is_dir() and not is_gguf(path):
        raise CliError(f"there is no folder {source}.")
    ask_for_short_slices()
    sys.argv = ["agon serve", "--model", model, "--host", host, "--port", str(port), *context.args]
    runpy.run_module("model_worker", run_name="__main__", alter_sys=False)
