"""`agon models` against a running controller."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cli.errors import CliError
from cli.model_cards import app
from tests.controller.support.arena import ADMIN_TOKEN, Arena, make_settings, running_arena
from tests.controller.support.running import running_store
from wire.model_cards import BoardCard, BoardCards


@pytest.fixture
async def arena(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Arena]:
    monkeypatch.setenv("AGON_ADMIN_TOKEN", ADMIN_TOKEN)
    with running_store(tmp_path / "store") as store:
        async with running_arena(make_settings(store.url, "cards")) as arena:
            yield arena


async def _run(arena: Arena, *arguments: str) -> None:
    await asyncio.to_thread(app, args=[*arguments, "--url", arena.url], standalone_mode=False)


async def _card(arena: Arena) -> BoardCard:
    [card] = BoardCards.model_validate_json((await arena.client.get("/arena/models")).content).models
    return card


async def test_a_card_is_written_in_parts_and_a_model_is_retired_and_put_back(
    arena: Arena, capsys: pytest.CaptureFixture[str]
) -> None:
    await _run(arena, "card", "lab/raven", "--provider", "Lab", "--parameters", "7000000")
    await _run(arena, "card", "lab/raven", "--licence", "MIT", "--link", "https://lab.example/raven")
    await _run(arena, "card", "lab/raven", "--runs-on", "Lyon", "--joules-per-token", "0.42")
    card = await _card(arena)
    assert (card.runs_on, card.joules_per_token) == ("Lyon", 0.42)
    assert (card.provider, card.num_parameters, card.licence) == ("Lab", 7_000_000, "MIT")

    await _run(arena, "retire", "lab/raven", "--on", "2026-01-31")
    assert (await _card(arena)).retired == "2026-01-31"
    await _run(arena, "cards")
    assert "7,000,000" in capsys.readouterr().out
    await _run(arena, "retire", "lab/raven", "--undo")
    card = await _card(arena)
    assert (card.retired, card.licence) == (None, "MIT")


async def test_mistakes_are_told(arena: Arena) -> None:
    with pytest.raises(CliError, match="released"):
        await _run(arena, "card", "raven", "--released", "May 2026")
    with pytest.raises(CliError, match="model"):
        await _run(arena, "card", "a raven")
