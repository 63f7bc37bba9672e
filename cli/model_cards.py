"""`agon models cards | card | retire`: the model cards of a running arena's boards."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import httpx
import typer
from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cli.arena.running_arena import admin_token, arena_client, check, controller_url
from cli.errors import CliError
from wire.model_cards import BoardCard, BoardCards

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Model cards of the boards, and retirement.")

Name = Annotated[str, typer.Argument(help="Name of the model.")]
Url = Annotated[str | None, typer.Option(help="The controller. Default: the arena of the data directory.")]
DataDirFlag = Annotated[
    Path | None, typer.Option("--data-dir", help="The folder in which `agon up` stored the admin token.")
]


@app.command("cards")
def list_cards(
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Show every card."""
    with arena_client(controller_url(url, data_dir), None) as client:
        cards = _read(client)
    if as_json:
        print(BoardCards(models=tuple(cards.values())).model_dump_json(indent=2))
        return
    table = Table("model", "provider", "parameters", "licence", "released", "retired")
    for card in cards.values():
        size = "" if card.num_parameters is None else f"{card.num_parameters:,}"
        shown = (card.model, card.provider, size, card.licence, card.released, card.retired)
        table.add_row(*(escape(text or "") for text in shown))
    Console().print(table)


@app.command()
def card(
    name: Name,
    provider: Annotated[str | None, typer.Option(help="Who made it.")] = None,
    released: Annotated[str | None, typer.Option(metavar="YYYY-MM-DD", help="Day of its release.")] = None,
    licence: Annotated[str | None, typer.Option(help="Licence of its weights.")] = None,
    parameters: Annotated[int | None, typer.Option(min=0, help="Number of its parameters.")] = None,
    runs_on: Annotated[
        str | None, typer.Option(help="Where it runs. Default: what its worker says: a CPU, a GPU, another server.")
    ] = None,
    joules_per_token: Annotated[
        float | None, typer.Option(help="Energy of one token of an answer, where you have measured it.")
    ] = None,
    link: Annotated[str | None, typer.Option(help="Its page.")] = None,
    starter_prompt: Annotated[
        list[str] | None, typer.Option(help="A prompt that suits it, which pages offer; may be given several times.")
    ] = None,
    language: Annotated[
        list[str] | None,
        typer.Option(metavar="XX", help="A language that it answers in besides English; may be given several times."),
    ] = None,
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Write the card of a model; what is not given stays. A model with a card is listed before it has a worker."""
    given = {
        "provider": provider,
        "released": released,
        "licence": licence,
        "num_parameters": parameters,
        "runs_on": runs_on,
        "joules_per_token": joules_per_token,
        "link": link,
        "starter_prompts": starter_prompt or None,
        "languages": language or None,
    }
    with _admin(url, data_dir) as client:
        _write(client, name, {field: value for field, value in given.items() if value is not None})


@app.command()
def retire(
    name: Name,
    on: Annotated[str | None, typer.Option(metavar="YYYY-MM-DD", help="Default: today (UTC).")] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Put it back into service.")] = False,
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Take a model out of battles from a day on. It stays on the boards, marked as retired."""
    day = None if undo else on or datetime.now(UTC).date().isoformat()
    with _admin(url, data_dir) as client:
        _write(client, name, {"retired": day})
    print(f"{name} is in service again" if day is None else f"{name} gets no battles from {day} on")


@contextmanager
def _admin(url: str | None, data_dir: Path | None) -> Iterator[httpx.Client]:
    with arena_client(controller_url(url, data_dir), admin_token(data_dir)) as client:
        yield client


def _read(client: httpx.Client) -> dict[str, BoardCard]:
    cards = BoardCards.model_validate_json(check(client.get("/arena/models")).content)
    return {card.model: card for card in cards.models}


def _write(client: httpx.Client, name: str, changes: dict[str, Any]) -> None:
    before = _read(client).get(name)
    values = {"model": name} if before is None else before.model_dump(mode="json")
    try:
        changed = BoardCard.model_validate({**values, **changes})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise CliError(f"{first['loc'][0]}: {first['msg']}.") from None
    body = changed.model_dump(mode="json", exclude_none=True)
    check(client.put(f"/arena/models/{quote(name)}/card", json=body))
