"""Records of the log that were changed on the store's disk are found, and the journal's come back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from controller.votes.journal.journal_file import read_entries
from tests.controller.support.arena import eventually
from tests.controller.support.running import StoreProcess
from tests.controller.votes.journal.support import board, journal_arena, log_has, voted


async def test_a_damaged_record_does_not_stop_the_board_and_comes_back(
    own_store: StoreProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A byte that was changed inside a value of the store's file is noticed by nothing but the reader."""
    async with journal_arena(own_store, tmp_path / "j") as arena:
        acknowledged = await voted(arena, 4)
        votes = arena.keys.votes
    async with Redis.from_url(own_store.url) as redis:
        entries: Any = await redis.xrange(votes)
        for entry_id, fields in entries:
            if entry_id.decode() == acknowledged[1]["vote_id"]:
                fields[b"record"] = fields[b"record"][:40] + b"\xff\x00" + fields[b"record"][42:]
            await redis.xadd("changed", fields, entry_id)
        await redis.rename("changed", votes)
    async with journal_arena(own_store, tmp_path / "none", journal_dir=None) as arena:
        assert (await board(arena.client))["num_votes"] == 3
        assert "vote_damaged" in caplog.messages
        assert len(await arena.vote_log()) == 3
    async with journal_arena(own_store, tmp_path / "j") as arena:
        await eventually(lambda: log_has(arena, acknowledged))
        acknowledged += await voted(arena, 1)
        assert await log_has(arena, acknowledged)


_FLIPS: dict[str, Callable[[str, Any], tuple[str, Any]]] = {
    "battle": lambda vote_id, fields: (vote_id, _replaced(fields, b'"battle_id":"', b'"battle_id":"!')),
    "outcome": lambda vote_id, fields: (vote_id, _replaced(fields, b'"outcome":"b"', b'"outcome":"a"')),
    "model": lambda vote_id, fields: (vote_id, _replaced(fields, b'"model":"', b'"model":"!')),
    "id later": lambda vote_id, fields: (f"{vote_id.split('-')[0]}-7", fields),
    "id earlier": lambda vote_id, fields: (f"{int(vote_id.split('-')[0]) - 1}-7", fields),
}


def _replaced(fields: dict[bytes, bytes], old: bytes, new: bytes) -> dict[bytes, bytes]:
    assert old in fields[b"record"]
    return {**fields, b"record": fields[b"record"].replace(old, new)}


@pytest.mark.parametrize("flip", _FLIPS)
async def test_a_changed_record_that_is_readable_is_found_after_a_start_and_mended(
    flip: str, own_store: StoreProcess, tmp_path: Path
) -> None:
    """The store's file has no check-sums: a flipped bit gives a vote on a battle that never was, or another outcome."""
    async with journal_arena(own_store, tmp_path / "j") as arena:
        acknowledged = await voted(arena, 4)
        votes = arena.keys.votes
    right = [(entry.vote_id, entry.record) for entry in read_entries(tmp_path / "j" / "votes-1.jsonl")]
    async with Redis.from_url(own_store.url) as redis:
        entries: Any = await redis.xrange(votes)
        for entry_id, fields in entries:
            vote_id, fields = (
                _FLIPS[flip](entry_id.decode(), fields)
                if entry_id.decode() == acknowledged[1]["vote_id"]
                else (entry_id.decode(), fields)
            )
            await redis.xadd("changed", fields, vote_id)
        await redis.rename("changed", votes)
    async with journal_arena(own_store, tmp_path / "j") as arena:

        async def is_mended() -> bool:
            found: Any = await arena.redis.xrange(votes)
            return [(vote_id, fields["record"]) for vote_id, fields in found] == right

        await eventually(is_mended)
        assert await log_has(arena, acknowledged)
        acknowledged += await voted(arena, 1)
        assert await log_has(arena, acknowledged)
