"""The `agon` command: maps each command to a module, which is imported only when the command runs.

`agon --help` imports nothing heavy, so it answers at once. Each command module has its own typer app.
"""

import importlib
import importlib.metadata
import runpy
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """One command. `target` is a module with a typer `app`, or a service: a package that is run like `python -m target`
    and parses its own flags."""

    target: str
    summary: str
    is_service: bool = False


COMMANDS: dict[str, Command] = {
    "up": Command("cli.arena.up", "Start the whole arena on this machine: store, controller, workers, web UI."),
    "join": Command("cli.join", "Serve models of this machine in an arena that runs on another one."),
    "serve": Command("cli.serve", "Serve one model behind an OpenAI-compatible HTTP API."),
    "chat": Command("cli.chat", "Chat in the terminal with a model of a running controller or worker."),
    "plan": Command("cli.plan", "Print the page plan of a model and what requests of each length waste."),
    "leaderboard": Command("cli.leaderboard", "Print the leaderboard, live or recomputed from the vote log."),
    "models": Command("cli.models", "Add, remove, sleep and wake models of a running arena; model cards."),
    "cluster": Command("cli.cluster", "Machines that share the workers of an arena: join one, show all."),
    "store": Command("cli.store", "Check, repair or restore the store and the journal of votes beside it."),
    "integrity": Command("cli.integrity", "Which votes are not rated and why; flag votes or take flags back."),
    "voters": Command("cli.voters", "Invite voters, list and revoke invitations."),
    "votes": Command("cli.votes", "Export, import or release the vote log."),
    "bench": Command("cli.bench.commands", "Measure the engine (offline, latency), or load a running server (serve)."),
    "why": Command("cli.why", "What happened to a battle, chat or request: its steps, and what went wrong."),
    "top": Command("cli.top", "Watch a running arena: models, load, tokens/s, pool, queue, errors."),
    "doctor": Command("cli.doctor", "Check this machine and explain what is missing."),
    "controller": Command("controller", "Run one controller (its own flags; see --help).", is_service=True),
    "worker": Command("model_worker", "Run one model worker (its own flags; see --help).", is_service=True),
    "webui": Command("webui", "Run one web UI (its own flags; see --help).", is_service=True),
}


def help_text() -> str:
    """The text of `agon --help`."""
    width = max(len(name) for name in COMMANDS)
    rows = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "Usage: agon COMMAND [OPTIONS]",
            "",
            "A chat arena with its own inference engine: people talk to two models, vote, and get a ranking.",
            "",
            "Commands:",
            *rows,
            "",
            "`agon COMMAND --help` shows its options. `agon --version` prints the version.",
        ]
    )


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `agon` script. Failures raise SystemExit."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(help_text())
        return
    name, rest = arguments[0], arguments[1:]
    if name in ("-V", "--version"):
        print(f"agon {importlib.metadata.version('agon')}")
        return
    command = COMMANDS.get(name)
    if command is None:
        print(f"agon: there is no command {name!r}.\n\n{help_text()}", file=sys.stderr)
        raise SystemExit(2)
    try:
        if command.is_service:
            _run_service(command.target, f"agon {name}", rest)
        else:
            _run_app(command.target, f"agon {name}", rest)
    except KeyboardInterrupt:  # during imports; a running command handles Ctrl-C itself
        raise SystemExit(130) from None


def _run_service(package: str, program: str, arguments: list[str]) -> None:
    sys.argv = [program, *arguments]
    try:
        runpy.run_module(package, run_name="__main__", alter_sys=False)
    except ModuleNotFoundError as error:
        raise SystemExit(_missing_package(program, error)) from None


def _run_app(module: str, program: str, arguments: list[str]) -> None:
    from cli.errors import CliError

    try:
        importlib.import_module(module).app(args=arguments, prog_name=program)
    except CliError as error:
        raise SystemExit(f"{program}: {error}") from None
    except ModuleNotFoundError as error:
        raise SystemExit(_missing_package(program, error)) from None


def _missing_package(program: str, error: ModuleNotFoundError) -> str:
    """The message for a missing extra: which package is absent and which extra has it."""
    from service_kit.extras import missing_extra

    return f"{program}: {missing_extra(error)}."


if __name__ == "__main__":
    main()
