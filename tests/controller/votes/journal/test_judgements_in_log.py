"""Judgements are entries of the log: exported, imported once, and brought back from the journal like votes."""

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from controller.metrics import Metrics
from controller.store.store import Store
from controller.store_address import parse_address
from controller.votes.vote_log import VoteLog
from tests.controller.support.arena import Arena, eventually, make_settings, running_arena
from tests.controller.support.running import StoreProcess
from tests.controller.votes.journal.support import board, journal_arena, voted
from wire.judgements import Judgement


@contextlib.asynccontextmanager
async def _log(arena: Arena) -> AsyncGenerator[VoteLog, None]:
    store = Store(parse_address(arena.settings.redis_url), timeout_s=5, metrics=Metrics())
    yield VoteLog(store, arena.keys)
    await store.close()


def _judgement(number: int, **changes: Any) -> Judgement:
    values = {"judgement_id": "", "key": f"judgement:{number}", "time": 0, "action": "flag", "flag": "withdrawn"}
    return Judgement.model_validate({**values, "voter": "v", "by": "judge", **changes})


async def test_a_judgement_is_appended_once_and_exported_between_the_votes(arena: Arena) -> None:
    await arena.add_two()
    [first] = await voted(arena, 1)
    async with _log(arena) as log:
        judgements = [_judgement(1, evidence={"surprise": 21.5}), _judgement(2, action="unflag")]
        ids = await log.append_judgements(judgements, after=first["vote_id"])
        assert await log.append_judgements(judgements) == ["", ""]  # an answer was lost: the same ones again
    await voted(arena, 1)

    lines = await arena.vote_log()

    assert [line.get("kind", "vote") for line in lines] == ["vote", "judgement", "judgement", "vote"]
    assert lines[1]["evidence"] == {"surprise": 21.5}
    assert ids == [line["judgement_id"] for line in lines[1:3]]
    assert lines[2]["time"] == pytest.approx(lines[3]["time"], abs=60)
    assert (await board(arena.client))["num_votes"] == 2


async def test_a_log_that_has_lost_what_the_judge_has_read_takes_no_judgement(arena: Arena) -> None:
    async with _log(arena) as log:
        assert await log.append_judgements([_judgement(1)], after="12-3") is None
    assert await arena.vote_log() == []


async def test_an_import_takes_judgements_once(arena: Arena) -> None:
    await arena.add_two()
    await voted(arena, 1)
    async with _log(arena) as log:
        await log.append_judgements([_judgement(1)])
    exported = (await arena.client.get("/arena/votes", headers=arena.admin)).content

    async with running_arena(make_settings(arena.settings.redis_url, arena.settings.key_prefix + ":other")) as other:
        await other.redis.delete(other.keys.votes, other.keys.logged_battles)
        answers = [
            (await other.client.post("/arena/votes/import", content=exported, headers=other.admin)).json()
            for _ in range(2)
        ]
        assert answers == [{"imported": 2, "skipped": 0}, {"imported": 0, "skipped": 2}]
        judgement = (await other.vote_log())[1]
        assert (judgement["kind"], judgement["voter"]) == ("judgement", "v")
        # The set of what is in the log is filled from the log where it is older than the log.
        await other.redis.delete(other.keys.logged_battles)
        again = await other.client.post("/arena/votes/import", content=exported, headers=other.admin)
        assert again.json() == {"imported": 0, "skipped": 2}


async def test_judgements_come_back_after_a_wipe(own_store: StoreProcess, tmp_path: Path) -> None:
    async with journal_arena(own_store, tmp_path / "j") as arena:
        await voted(arena, 1)
        async with _log(arena) as log:
            await log.append_judgements([_judgement(1)])
        await voted(arena, 2)  # a vote is acknowledged when the journal has all before it
        before = await arena.vote_log()
        await arena.redis.flushall()

        async def is_back() -> bool:
            return await arena.vote_log() == before

        await eventually(is_back)
        assert [line.get("kind") for line in before] == [None, "judgement", None, None]


async def test_a_damaged_judgement_comes_back(own_store: StoreProcess, tmp_path: Path) -> None:
    async with journal_arena(own_store, tmp_path / "j") as arena:
        await voted(arena, 1)
        async with _log(arena) as log:
            await log.append_judgements([_judgement(1), _judgement(2)])
        await voted(arena, 1)
        before, votes = await arena.vote_log(), arena.keys.votes
    async with Redis.from_url(own_store.url) as redis:
        entries: Any = await redis.xrange(votes)
        for number, (entry_id, fields) in enumerate(entries):
            if number == 1:  # no longer readable
                fields[b"record"] = fields[b"record"].replace(b'"judgement"', b'"judgemenu"')
            if number == 2:  # readable, and another judgement
                fields[b"record"] = fields[b"record"].replace(b'"flag"', b'"unflag"', 1)
            await redis.xadd("changed", fields, entry_id)
        await redis.rename("changed", votes)
    async with journal_arena(own_store, tmp_path / "j") as arena:

        async def is_mended() -> bool:
            return await arena.vote_log() == before

        await eventually(is_mended)
