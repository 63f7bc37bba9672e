"""Texts of voted battles are archived in files, then leave the store; exports find them in either place."""

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

from controller.votes.journal.transcripts import TAIL_BYTES, Transcript, TranscriptFiles
from tests.controller.support.arena import Arena, eventually
from wire.chat import ChatMessage
from wire.entry_ids import LOG_START
from wire.ids import BattleId


async def _voted(arena: Arena) -> BattleId:
    battle = await arena.create()
    await arena.turn(battle["id"], content="what is a journal?")
    assert (await arena.vote(battle["id"])).status_code == 200
    return BattleId(battle["id"])


async def _export(arena: Arena) -> list[dict[str, Any]]:
    response = await arena.client.get("/arena/votes", params={"conversations": "true"}, headers=arena.admin)
    return [json.loads(line) for line in response.text.splitlines()]


def _transcript(number: int, day: str) -> Transcript:
    texts = (ChatMessage(role="user", content=f"q{number}"), ChatMessage(role="assistant", content="\u00e9"))
    return Transcript(f"{number}-0", f"battle-{number}", day, {"a": texts, "b": texts})


async def test_a_battle_leaves_the_store_only_after_its_texts_are_archived_and_is_still_exported(
    open_arena: Any, tmp_path: Path
) -> None:
    async with open_arena(journal_dir=tmp_path, voted_battle_ttl_s=1000.0) as arena:
        await arena.add_two()
        battle_ids = [await _voted(arena) for _ in range(3)]

        async def archived() -> bool:
            ttls = [await arena.redis.pttl(arena.keys.battle(battle_id)) for battle_id in battle_ids]
            assert all(ttl == -1 or 0 < ttl <= 1_000_000 for ttl in ttls)
            return all(ttl > 0 for ttl in ttls)

        await eventually(archived)
        before = await _export(arena)
        await arena.redis.delete(*(arena.keys.battle(battle_id) for battle_id in battle_ids))

        assert await _export(arena) == before
        assert [line["battle_id"] for line in before] == battle_ids
        assert all(line["conversations"]["a"][0]["content"] == "what is a journal?" for line in before)


async def test_what_was_voted_while_no_archive_was_kept_is_archived_later(open_arena: Any, tmp_path: Path) -> None:
    prefix = f"test:{tmp_path.name}"
    async with open_arena(key_prefix=prefix) as arena:
        await arena.add_two()
        battle_id = await _voted(arena)
        assert await arena.redis.pttl(arena.keys.battle(battle_id)) == -1
    async with open_arena(key_prefix=prefix, journal_dir=tmp_path) as arena:

        async def archived() -> bool:
            return bool(await arena.redis.pttl(arena.keys.battle(battle_id)) > 0)

        await eventually(archived)
        week_ms = 7 * 86_400_000
        assert week_ms - 60_000 < await arena.redis.pttl(arena.keys.battle(battle_id)) <= week_ms


def test_days_are_compressed_and_read_as_before(tmp_path: Path) -> None:
    files = TranscriptFiles(tmp_path)
    assert files.lock()
    assert files.last_vote_id() == LOG_START
    files.append([_transcript(1, "2026-01-01"), _transcript(2, "2026-01-01")])
    assert files.last_vote_id() == "2-0"
    files.append([_transcript(3, "2026-01-02")])
    files.append([_transcript(4, "2026-01-01"), _transcript(5, "2026-01-02")])

    assert sorted(path.name for path in tmp_path.glob("*.jsonl*")) == ["2026-01-01.jsonl.gz", "2026-01-02.jsonl"]
    assert list(files.texts_of("2026-01-01")) == ["battle-1", "battle-2", "battle-4"]
    assert files.texts_of("2026-01-02")["battle-5"] == _transcript(5, "").conversations
    assert files.texts_of("2026-01-03") == {}
    assert len(gzip.decompress((tmp_path / "2026-01-01.jsonl.gz").read_bytes()).splitlines()) == 3
    files.unlock()


def test_a_torn_line_is_cut_and_only_one_process_writes(tmp_path: Path) -> None:
    files = TranscriptFiles(tmp_path)
    assert files.lock()
    assert not TranscriptFiles(tmp_path).lock()
    files.append([_transcript(1, "2026-01-01")])
    with open(tmp_path / "2026-01-01.jsonl", "ab") as file:
        file.write(b'{"vote_id":"2-0","ba')
    files.unlock()

    again = TranscriptFiles(tmp_path)
    assert again.lock()
    assert again.last_vote_id() == "1-0"
    again.append([_transcript(2, "2026-01-01")])
    assert list(again.texts_of("2026-01-01")) == ["battle-1", "battle-2"]
    again.unlock()


def test_appending_reads_only_the_end_of_a_day(tmp_path: Path) -> None:
    """Measured on a day of 8,640 battles: the archiving controller grew by 8.5 MB in 1,000 battles."""
    files = TranscriptFiles(tmp_path)
    (tmp_path / "2026-01-02.jsonl").write_bytes(_transcript(1, "2026-01-02").line() * 100_000)
    tracemalloc.start()
    try:
        files.append([_transcript(2, "2026-01-02")])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_a_torn_line_longer_than_one_read_is_cut_off(tmp_path: Path) -> None:
    files = TranscriptFiles(tmp_path)
    whole = _transcript(1, "2026-01-02").line()
    (tmp_path / "2026-01-02.jsonl").write_bytes(whole + b"x" * (2 * TAIL_BYTES + 1))
    files.append([_transcript(2, "2026-01-02")])
    assert (tmp_path / "2026-01-02.jsonl").read_bytes() == whole + _transcript(2, "2026-01-02").line()


async def test_votes_without_texts_are_passed_over_once(open_arena: Any, tmp_path: Path) -> None:
    """Imported votes have none; a start does not read two million of them again."""
    async with open_arena() as other:
        await other.add_two()
        await _voted(other)
        log = (await other.client.get("/arena/votes", headers=other.admin)).content
    async with open_arena(journal_dir=tmp_path) as arena:
        await arena.client.post("/arena/votes/import", content=log, headers=arena.admin)
        [imported] = await arena.vote_log()
        files = TranscriptFiles(tmp_path / "transcripts")
        await eventually(lambda: files.last_vote_id() == imported["vote_id"])


def test_a_noted_position_that_is_older_or_damaged_changes_nothing(tmp_path: Path) -> None:
    files = TranscriptFiles(tmp_path)
    files.append([_transcript(7, "2026-01-01")])
    files.note("5-0")
    assert files.last_vote_id() == "7-0"
    (tmp_path / "position").write_text("9-")
    assert files.last_vote_id() == "7-0"
