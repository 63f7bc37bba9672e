"""Votes survive what happens to the store, because the journal brings them back; every acknowledged vote is audited."""

import asyncio
import contextlib
import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from controller.config import Settings
from controller.errors import ConfigurationError, JournalDamaged
from controller.votes.journal.journal_file import JournalFile, read_entries
from tests.controller.support.arena import ADMIN_TOKEN, WORKER_TOKEN, eventually, make_settings, running_arena
from tests.controller.support.running import StoreProcess
from tests.controller.votes.journal.support import answered, board, journal_arena, log_has, takes_turns, voted
from wire.ids import BattleId


async def test_an_acknowledged_vote_is_in_the_journal(own_store: StoreProcess, tmp_path: Path) -> None:
    async with journal_arena(own_store, tmp_path / "j") as arena:
        for reply in await voted(arena, 3):
            entries = {entry.battle_id: entry for entry in read_entries(tmp_path / "j" / "votes-1.jsonl")}
            entry = entries[reply["battle_id"]]
            assert (entry.vote_id, entry.vote.outcome) == (reply["vote_id"], reply["outcome"])
            assert json.loads(entry.record)["battle_id"] == reply["battle_id"]


async def test_a_wiped_store_gets_its_votes_back_and_the_board_says_so(own_store: StoreProcess, tmp_path: Path) -> None:
    async with journal_arena(own_store, tmp_path / "j") as arena:
        acknowledged = await voted(arena, 6)
        other = await arena.add_controller(journal_dir=tmp_path / "other")
        assert (await board(arena.client))["restored_at"] is None
        await arena.redis.flushall()

        await eventually(lambda: log_has(arena, acknowledged))

        await eventually(lambda: takes_turns(arena))
        acknowledged += await voted(arena, 3)
        await eventually(lambda: log_has(arena, acknowledged))
        first, second = await board(arena.client), await board(other)
        assert first["num_votes"] == 9
        assert first["rows"] == second["rows"]
        for view in (first, second):
            assert (view["restored_at"] is not None, view["num_restored"]) == (True, 6)


async def test_a_retry_of_an_acknowledged_vote_gets_the_same_reply_after_a_wipe(
    own_store: StoreProcess, tmp_path: Path
) -> None:
    async with journal_arena(own_store, tmp_path / "j") as arena:
        acknowledged = await voted(arena, 3)
        await arena.redis.flushall()
        await eventually(lambda: log_has(arena, acknowledged))

        for reply in acknowledged:
            assert (await arena.vote(reply["battle_id"], reply["outcome"])).json() == reply
            response = await arena.vote(reply["battle_id"], "both_bad")
            assert (response.status_code, response.json()["error"]["code"]) == (409, "battle_already_voted")
            assert (await arena.view(reply["battle_id"]))["state"] == "voted"
            assert await arena.redis.pttl(arena.keys.battle(BattleId(reply["battle_id"]))) > 0
        assert await log_has(arena, acknowledged)


async def test_votes_that_an_older_backup_lacks_come_back_and_open_battles_take_no_second_vote(
    own_store: StoreProcess, tmp_path: Path
) -> None:
    async with journal_arena(own_store, tmp_path / "j") as arena:
        before = await voted(arena, 3)
        open_id = await answered(arena)
        own_store.kill()
        shutil.copytree(tmp_path / "store", tmp_path / "backup", ignore=shutil.ignore_patterns("*.sock"))
        await asyncio.to_thread(own_store.start)
        await eventually(lambda: takes_turns(arena))
        late = (await arena.vote(open_id, "b")).json()
        acknowledged = [*before, late, *await voted(arena, 3)]
        own_store.kill()
        shutil.rmtree(tmp_path / "store" / "appendonlydir")
        shutil.copytree(tmp_path / "backup" / "appendonlydir", tmp_path / "store" / "appendonlydir")
        await asyncio.to_thread(own_store.start)

        async def second_vote() -> int:
            while (response := await arena.vote(open_id, "a")).status_code == 503:
                await asyncio.sleep(0.02)
            return response.status_code

        assert await second_vote() == 409
        assert (await arena.vote(open_id, "b")).json() == late
        await eventually(lambda: log_has(arena, acknowledged))


async def test_controllers_that_restore_at_once_come_to_the_union_of_their_journals(
    own_store: StoreProcess, tmp_path: Path
) -> None:
    """Three journals, each with votes that the others lack, over an empty store."""
    acknowledged, prefix = [], "test:union"
    for name in ("one", "two", "three"):
        async with journal_arena(own_store, tmp_path / name, key_prefix=prefix) as arena:
            acknowledged += await voted(arena, 3)
            arena_id = await arena.redis.get(arena.keys.arena)
            await arena.redis.flushall()
            await arena.redis.set(arena.keys.arena, arena_id or "")
            prefix = arena.settings.key_prefix
    async with contextlib.AsyncExitStack() as stack:
        arena = await stack.enter_async_context(journal_arena(own_store, tmp_path / "one", key_prefix=prefix))
        others = [await arena.add_controller(journal_dir=tmp_path / name) for name in ("two", "three")]

        await eventually(lambda: log_has(arena, acknowledged))

        async def boards_agree() -> bool:
            boards = [await board(client) for client in (arena.client, *others)]
            return all(board["num_votes"] == 9 and board["rows"] == boards[0]["rows"] for board in boards)

        await eventually(boards_agree)

        async def journals_agree() -> bool:
            journals = [
                {entry.vote_id for entry in read_entries(tmp_path / name / "votes-1.jsonl")}
                for name in ("one", "two", "three")
            ]
            return all(len(journal) == 9 and journal == journals[0] for journal in journals)

        await eventually(journals_agree)


async def test_a_vote_sent_again_after_the_store_lost_it_stays_whatever_another_journal_has(
    own_store: StoreProcess, tmp_path: Path
) -> None:
    """Its first reply was lost, and only the journal of a controller that is down has it under its first id."""
    async with journal_arena(own_store, tmp_path / "one") as arena:
        battle_id = BattleId(await answered(arena))
        key = arena.keys.battle(battle_id)
        await arena.redis.copy(key, f"{key}:before")
        first = (await arena.vote(battle_id)).json()
        prefix = arena.settings.key_prefix
        await arena.redis.delete(arena.keys.votes, arena.keys.logged_battles)
        await arena.redis.rename(f"{key}:before", key)
    async with journal_arena(own_store, tmp_path / "two", key_prefix=prefix) as arena:
        again = (await arena.vote(battle_id)).json()
        assert first["vote_id"] < again["vote_id"]
        await arena.add_controller(journal_dir=tmp_path / "one")

        await eventually(lambda: _has_entry(tmp_path / "one", again["vote_id"]))

        assert await log_has(arena, [again])
        await arena.redis.flushall()
        await eventually(lambda: log_has(arena, [again]))


def _has_entry(folder: Path, vote_id: str) -> bool:
    return vote_id in {entry.vote_id for entry in read_entries(folder / "votes-1.jsonl")}


async def test_votes_of_a_controller_that_died_come_back_from_its_file_in_the_same_folder(
    own_store: StoreProcess, tmp_path: Path
) -> None:
    async with journal_arena(own_store, tmp_path / "j") as arena:
        other = await arena.add_controller()
        acknowledged = await voted(arena, 2) + await voted(arena, 2, other)
        assert sorted(path.name for path in (tmp_path / "j").glob("*.jsonl")) == ["votes-1.jsonl", "votes-2.jsonl"]
    first, second = tmp_path / "j" / "votes-1.jsonl", tmp_path / "j" / "votes-2.jsonl"
    lines = first.read_bytes().splitlines(keepends=True)
    first.write_bytes(b"".join(lines[:-1]))  # as if it had died a moment earlier
    assert len(list(read_entries(second))) == 4
    own_store.kill()
    shutil.rmtree(tmp_path / "store" / "appendonlydir")
    await asyncio.to_thread(own_store.start)

    async with journal_arena(own_store, tmp_path / "j") as arena:
        await eventually(lambda: log_has(arena, acknowledged))


async def test_a_fold_notices_a_log_that_was_replaced_between_two_looks(own_store: StoreProcess) -> None:
    """Without a journal nothing comes back, but boards of two controllers agree."""
    async with (
        running_arena(make_settings(own_store.url, "test:new")) as new,
        running_arena(make_settings(own_store.url, "test:old")) as arena,
    ):
        other = await arena.add_controller()
        await arena.add_two()
        await new.add_two()
        await voted(arena, 3)
        assert [(await board(client))["num_votes"] for client in (arena.client, other)] == [3, 3]
        await voted(new, 5)
        await arena.redis.rename(new.keys.votes, arena.keys.votes)

        assert [(await board(client))["num_votes"] for client in (arena.client, other)] == [5, 5]


async def test_a_full_disk_under_the_journal_is_a_typed_503_and_heals(own_store: StoreProcess, tmp_path: Path) -> None:
    async with journal_arena(own_store, tmp_path / "j") as arena:
        acknowledged = await voted(arena, 2)
        battle_id = await answered(arena)
        size = (tmp_path / "j" / "votes-1.jsonl").stat().st_size
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, hard))
        try:
            response = await arena.vote(battle_id, "a")
            assert (response.status_code, response.json()["error"]["code"]) == (503, "store_unavailable")
            assert "journal" in response.json()["error"]["message"]
            assert int(response.headers["retry-after"]) >= 1

            async def is_not_ready() -> bool:
                answer = await arena.client.get("/ready")
                return answer.status_code == 503 and "vote_journal" in answer.text

            await eventually(is_not_ready)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

        reply = await arena.vote(battle_id, "a")
        assert reply.status_code == 200, reply.text
        acknowledged.append(reply.json())
        assert await log_has(arena, acknowledged)
        entries = [entry.vote_id for entry in read_entries(tmp_path / "j" / "votes-1.jsonl")]
        assert entries == [reply["vote_id"] for reply in acknowledged]


async def test_a_vote_recorded_before_its_journalling_is_taken_up_at_the_next_start(
    own_store: StoreProcess, tmp_path: Path
) -> None:
    """kill -9 between the two writes: votes that the store has and the journal has not, with a torn last line."""
    async with journal_arena(own_store, tmp_path / "j") as arena:
        acknowledged = await voted(arena, 2)
    async with journal_arena(own_store, tmp_path / "none", journal_dir=None) as arena:
        acknowledged += await voted(arena, 2)
    path = tmp_path / "j" / "votes-1.jsonl"
    with open(path, "ab") as file:
        file.write(b'{"id":"99-0","battle":"tor')

    async with journal_arena(own_store, tmp_path / "j") as arena:
        acknowledged += await voted(arena, 1)

    assert [entry.vote_id for entry in read_entries(path)] == [reply["vote_id"] for reply in acknowledged]


async def test_imported_votes_are_journalled_and_restored(own_store: StoreProcess, tmp_path: Path) -> None:
    async with journal_arena(own_store, tmp_path / "j") as arena:
        await voted(arena, 3)
        log = (await arena.client.get("/arena/votes", headers=arena.admin)).content
    async with journal_arena(own_store, tmp_path / "k", key_prefix="test:importing") as arena:
        answer = await arena.client.post("/arena/votes/import", content=log, headers=arena.admin)
        assert answer.json() == {"imported": 3, "skipped": 0}
        journal = tmp_path / "k" / "votes-1.jsonl"
        await eventually(lambda: journal.exists() and len(list(read_entries(journal))) == 3)
        before = await arena.vote_log()
        await arena.redis.flushall()

        async def is_back() -> bool:
            return await arena.vote_log() == before

        await eventually(is_back)
        answer = await arena.client.post("/arena/votes/import", content=log, headers=arena.admin)
        assert answer.json() == {"imported": 0, "skipped": 3}


async def test_more_votes_than_one_piece_are_restored_in_order(own_store: StoreProcess, tmp_path: Path) -> None:
    async with journal_arena(own_store, tmp_path / "j") as arena:
        await voted(arena, 1)
        [record] = await arena.vote_log()
        votes = b"\n".join(
            json.dumps({**record, "battle_id": f"b-{number}", "time": number}).encode() for number in range(2500)
        )
        await arena.client.post("/arena/votes/import", content=votes, headers=arena.admin)
        journal = tmp_path / "j" / "votes-1.jsonl"
        await eventually(lambda: len(list(read_entries(journal))) == 2501)
        before = await arena.vote_log()
        await arena.redis.xtrim(arena.keys.votes, maxlen=1200, approximate=False)
        for record in before[1500:1600]:
            await arena.redis.xdel(arena.keys.votes, record["vote_id"])

        async def is_back() -> bool:
            return await arena.vote_log() == before

        await eventually(is_back)
        assert (await board(arena.client))["num_restored"] == 1401


async def test_a_journal_is_not_restored_into_the_store_of_another_arena(
    own_store: StoreProcess, tmp_path: Path
) -> None:
    async with journal_arena(own_store, tmp_path / "j") as arena:
        await voted(arena, 2)
    async with journal_arena(own_store, tmp_path / "other", key_prefix="test:two") as arena:
        await voted(arena, 1)
    async with journal_arena(own_store, tmp_path / "j", key_prefix="test:two") as arena:
        battle_id = await answered(arena)
        response = await arena.vote(battle_id)

        assert (response.status_code, response.json()["error"]["code"]) == (503, "store_unavailable")
        assert (await arena.client.get("/ready")).status_code == 503
        assert len(await arena.vote_log()) == 1  # nothing is recorded that the journal cannot hold


async def test_a_damaged_journal_is_refused_at_start(own_store: StoreProcess, tmp_path: Path) -> None:
    async with journal_arena(own_store, tmp_path / "j") as arena:
        await voted(arena, 3)
    path = tmp_path / "j" / "votes-1.jsonl"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(JournalDamaged):
        async with journal_arena(own_store, tmp_path / "j"):
            pass

    environment = {
        **os.environ,
        "AGON_WORKER_TOKEN": WORKER_TOKEN,
        "AGON_ADMIN_TOKEN": ADMIN_TOKEN,
        "AGON_JOURNAL_DIR": str(tmp_path / "j"),
    }
    command = [sys.executable, "-m", "controller", "--port", "0"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"controller: {path} is damaged in line ")
    assert len(done.stderr.splitlines()) == 1


async def test_visitors_that_leave_while_their_votes_are_journalled_do_not_harm_the_journal(
    own_store: StoreProcess, tmp_path: Path
) -> None:
    async with journal_arena(own_store, tmp_path / "j") as arena:
        battle_ids = [await answered(arena) for _ in range(20)]
        votes = [asyncio.create_task(arena.vote(battle_id)) for battle_id in battle_ids]
        await asyncio.sleep(0.01)
        for vote in votes[::2]:
            vote.cancel()
        await asyncio.gather(*votes, return_exceptions=True)

        acknowledged = [(await arena.vote(battle_id)).json() for battle_id in battle_ids]

        assert await log_has(arena, acknowledged)
        journal = {entry.vote_id for entry in read_entries(tmp_path / "j" / "votes-1.jsonl")}
        assert journal == {reply["vote_id"] for reply in acknowledged}


def test_a_folder_that_cannot_be_used_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=os.strerror(errno.EEXIST)):
        JournalFile.open(tmp_path / "file")


def test_an_empty_setting_turns_the_journal_off() -> None:
    assert Settings(journal_dir="").journal_dir is None  # type: ignore[arg-type]
    assert Settings(journal_dir="").kept_voted_s == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [signal.SIGSTOP])
async def test_a_store_that_hangs_leaves_votes_in_an_unknown_state(
    own_store: StoreProcess, tmp_path: Path, number: signal.Signals
) -> None:
    async with journal_arena(own_store, tmp_path / "j", store_timeout_s=1.0) as arena:
        battle_id = await answered(arena)
        own_store.signal(number)
        try:
            assert (await arena.vote(battle_id)).status_code == 503
        finally:
            own_store.signal(signal.SIGCONT)

        async def voted() -> bool:
            return (await arena.vote(battle_id)).status_code == 200

        await eventually(voted)
        assert len(await arena.vote_log()) == 1
