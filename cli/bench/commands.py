"""`agon bench`: the typer app and its subcommands. `agon bench --model X` is `agon bench offline --model X`.

Files named after a subcommand measure, those with `_command` parse its options and show its results; options.py holds
the common options, tables.py the tables.
"""

from typing import Any

import typer
from typer.core import TyperGroup

from cli.bench.latency_command import latency
from cli.bench.offline_command import offline
from cli.bench.serving_command import serve


class _OfflineByDefault(TyperGroup):
    """Options without a subcommand are those of `offline`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] != "--help"):
            args = ["offline", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    add_completion=False,
    cls=_OfflineByDefault,
    help="Measure the engine, or a running server. Without a subcommand: offline.",
)
for command in (offline, latency, serve):
    app.command()(command)
