"""`agon voters` against a running controller."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cli.errors import CliError
from cli.voters import app
from tests.controller.support.arena import ADMIN_TOKEN, PROXY_TOKEN, Arena, make_settings, running_arena
from tests.controller.support.running import running_store
from wire.voters import VoterCookies

COOKIES = VoterCookies(PROXY_TOKEN)


@pytest.fixture
async def arena(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Arena]:
    monkeypatch.setenv("AGON_ADMIN_TOKEN", ADMIN_TOKEN)
    with running_store(tmp_path / "store") as store:
        async with running_arena(make_settings(store.url, "voters")) as arena:
            yield arena


async def _run(arena: Arena, *arguments: str) -> None:
    await asyncio.to_thread(app, args=[*arguments, "--url", arena.url], standalone_mode=False)


async def test_a_voter_is_invited_listed_and_revoked(arena: Arena, capsys: pytest.CaptureFixture[str]) -> None:
    await _run(arena, "invite", "ada", "--cohort", "staff", "--webui", "https://arena.example/")
    link = capsys.readouterr().out.strip()
    base, _, token = link.rpartition("/")
    assert base == "https://arena.example/join"
    assert (await arena.client.post(f"/arena/voters/join/{token}")).status_code == 200

    await _run(arena, "list", "--links", "--webui", "https://arena.example")
    name, _, again = capsys.readouterr().out.strip().partition("\t")
    found, first = COOKIES.read(again.rpartition("/")[2]), COOKIES.read(token)
    assert name == "ada"
    assert found is not None
    assert first is not None
    assert found.voter_id == first.voter_id

    await _run(arena, "revoke", "ada")
    await _run(arena, "list", "--links")
    assert capsys.readouterr().out == "ada is not invited any more\n"
    await _run(arena, "list")
    assert "staff" in capsys.readouterr().out
    await _run(arena, "list", "--json")
    [listed] = json.loads(capsys.readouterr().out)["invitations"]
    assert (listed["name"], listed["cohort"]) == ("ada", "staff")
    assert (await arena.client.post(f"/arena/voters/join/{token}")).status_code == 404


async def test_mistakes_are_told(arena: Arena) -> None:
    with pytest.raises(CliError, match="is no name"):
        await _run(arena, "invite", "a b")
    with pytest.raises(CliError, match="There is no such invitation"):
        await _run(arena, "revoke", "ada")
    await _run(arena, "invite", "ada", "--cohort", "staff")
    with pytest.raises(CliError, match="is invited already, in cohort staff"):
        await _run(arena, "invite", "ada", "--cohort", "guests")
