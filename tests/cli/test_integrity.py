"""`agon integrity` against a running controller, and over an exported log."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cli.errors import CliError
from cli.integrity import app
from tests.controller.support.arena import ADMIN_TOKEN, Arena, make_settings, running_arena
from tests.controller.support.running import running_store
from tests.controller.votes.integrity.crowds import vote


@pytest.fixture
async def arena(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Arena]:
    monkeypatch.setenv("AGON_ADMIN_TOKEN", ADMIN_TOKEN)
    with running_store(tmp_path / "store") as store:
        async with running_arena(make_settings(store.url, "integrity")) as arena:
            yield arena


async def _run(arena: Arena, *arguments: str) -> None:
    await asyncio.to_thread(app, args=[*arguments, "--url", arena.url], standalone_mode=False)


async def test_a_vote_is_withdrawn_and_taken_back(arena: Arena, capsys: pytest.CaptureFixture[str]) -> None:
    await _run(arena, "status")
    assert "not finished a round" in capsys.readouterr().out
    await _run(arena, "flag", "--battle", "b1", "--battle", "b2", "--note", "a test of ours")
    await _run(arena, "unflag", "--battle", "b1", "--flag", "withdrawn")
    await _run(arena, "flag", "--voter", "v", "--flag", "anomalous_voter")
    first, second, third = await arena.vote_log()
    assert (first["action"], first["flag"], first["battle_ids"]) == ("flag", "withdrawn", ["b1", "b2"])
    assert (first["by"], first["note"]) == ("admin", "a test of ours")
    assert (second["action"], second["battle_ids"]) == ("unflag", ["b1"])
    assert (third["flag"], third["voter"]) == ("anomalous_voter", "v")
    assert f"judgement {first['judgement_id']} is in the log" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [("flag",), ("flag", "--voter", "v", "--cohort", "c"), ("flag", "--voter", "v", "--flag", "ugly")],
    ids=["no subject", "two subjects", "unknown flag"],
)
def test_a_judgement_that_is_none_is_an_error(arguments: tuple[str, ...]) -> None:
    with pytest.raises(CliError):
        app(args=[*arguments, "--url", "http://127.0.0.1:9"], standalone_mode=False)


def test_a_run_over_a_log_says_what_the_judge_would_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.jsonl"
    votes = [vote(number, 0, 1, "a", voter="busy") for number in range(1, 8)]
    path.write_text("".join(record.model_dump_json(exclude_none=True) + "\n" for record in votes))
    app(args=["run", "--votes", str(path), "--voter-cap", "4"], standalone_mode=False)
    assert "3 votes" in capsys.readouterr().out
    app(args=["run", "--votes", str(path), "--voter-cap", "4", "--json"], standalone_mode=False)
    [found] = json.loads(capsys.readouterr().out)
    assert (found["do"], found["flag"], found["about"]) == ("flag", "voter_cap", "3 votes")
    app(args=["run", "--votes", str(path)], standalone_mode=False)
    assert "nothing" in capsys.readouterr().out
