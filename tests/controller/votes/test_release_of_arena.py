"""`agon votes release` of a running arena: the boards that it shows, and the texts of visitors who agreed."""

import asyncio
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli.release.command import ReleaseWish, release
from cli.release.notebook import code_of
from cli.release.release import Released
from cli.votes import app
from tests.cli.release.test_release import rows_of, vote
from tests.controller.conftest import OpenArena
from tests.controller.support.arena import ADMIN_TOKEN, Arena

WISH: dict[str, Any] = {
    "boards": ("overall",),
    "styles": (False,),
    "fit": "bradley_terry",
    "weighting": "votes",
    "min_votes": 5,
    "anchor": (),
    "title": "Test: an arena",
    "licence": "cc0-1.0",
    "has_presidio": False,
}


async def released(arena: Arena, folder: Path, **changes: Any) -> Released:
    def run() -> Released:
        with httpx.Client(base_url=arena.url, headers=arena.admin) as client:
            return release(folder, ReleaseWish(**{**WISH, **changes}), None, client, patience_s=5.0)

    return await asyncio.to_thread(run)


async def import_votes(arena: Arena, number: int) -> None:
    chance = random.Random(3)
    votes = [vote(position, chance, conversations=None) for position in range(number)]
    body = "".join(one.model_dump_json(exclude_none=True) + "\n" for one in votes)
    answer = await arena.client.post("/arena/votes/import", content=body, headers=arena.admin)
    assert answer.json()["imported"] == number


async def battle_with_vote(arena: Arena, prompt: str, **vote: Any) -> None:
    battle = await arena.create()
    await arena.turn(battle["id"], prompt)
    answer = await arena.client.post(f"/arena/battles/{battle['id']}/vote", json={"outcome": "a", **vote})
    assert answer.status_code == 200, answer.text


async def test_the_released_files_give_the_live_board_to_the_last_digit(
    arena: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGON_ADMIN_TOKEN", ADMIN_TOKEN)
    await arena.add_two()  # two models that the votes do not know
    await import_votes(arena, 200)

    options = ["--url", arena.url, "--style-control", "--min-votes", "5"]
    await asyncio.to_thread(app, args=["release", str(tmp_path / "release"), *options], standalone_mode=False)

    assert capfd.readouterr().err.startswith("200 votes and 0 conversations released")
    claims = json.loads((tmp_path / "release" / "boards.json").read_text())
    for claim, style in zip(claims, ("false", "true"), strict=True):
        query = {"board": "overall", "style_control": style, "min_votes": "5"}
        live = (await arena.client.get("/arena/leaderboard", params=query)).json()
        assert {row["model"] for row in live["rows"]} >= {"alpha", "beta", "raven"}
        for name in ("rows", "win_rate", "battle_count", "predicted", "coefficients", "num_votes", "position_bias"):
            assert claim["view"][name] == live[name]
    script = code_of((tmp_path / "release" / "recompute.ipynb").read_text())
    command = [sys.executable, "-I", "-c", script]
    run = await asyncio.to_thread(
        subprocess.run, command, cwd=tmp_path / "release", capture_output=True, text=True, check=False
    )
    assert "to the last digit" in run.stdout, run.stderr


@pytest.mark.parametrize(
    ("fit", "weighting", "anchor"),
    [("rao_kupper", "votes", "raven"), ("bradley_terry", "voters", "finch,robin"), ("rao_kupper", "propensity", "")],
)
async def test_a_board_with_other_options_is_recomputed_with_them(
    open_arena: OpenArena, tmp_path: Path, fit: str, weighting: str, anchor: str
) -> None:
    async with open_arena(board_anchor=anchor) as arena:
        await import_votes(arena, 120)

        await released(arena, tmp_path / "release", fit=fit, weighting=weighting)

        [claim] = json.loads((tmp_path / "release" / "boards.json").read_text())
        options = {"fit": fit, "style": False, "weighting": weighting, "min_votes": 5}
        assert claim["options"] == {**options, "anchor": anchor.split(",") if anchor else []}
        query = {"fit": fit, "weighting": weighting, "min_votes": "5"}
        live = (await arena.client.get("/arena/leaderboard", params=query)).json()
        assert claim["view"]["rows"] == live["rows"]


async def test_the_visitors_word_decides_whether_the_texts_are_released(arena: Arena, tmp_path: Path) -> None:
    await arena.add_two()
    await battle_with_vote(arena, "My name is Anna Schmidt. What is a raven?", consent=True)
    await battle_with_vote(arena, "my name is anna schmidt.  what is a raven", consent=True)
    await battle_with_vote(arena, "Nothing for strangers", consent=False)
    await battle_with_vote(arena, "Nothing said")

    done = await released(arena, tmp_path / "release")

    assert (done.num_votes, done.num_conversations, done.num_same_prompt) == (4, 1, 1)
    [conversation] = rows_of(tmp_path / "release" / "conversations.jsonl")
    assert conversation["conversation_a"][0]["content"] == "My name is [PERSON_1]. What is a raven?"
    assert [record.get("consent") for record in await arena.vote_log()] == [True, True, False, None]
