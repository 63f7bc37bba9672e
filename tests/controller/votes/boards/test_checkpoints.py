"""Checkpoints: a controller that starts goes on where another one was, and nowhere else."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controller.votes.boards.checkpoints import Checkpoint, Checkpoints
from controller.votes.boards.vote_table import TableSnapshot, VoteTable
from controller.votes.vote_log import VoteLog
from tests.controller.conftest import OpenArena
from tests.controller.support.arena import Arena
from tests.controller.votes.boards.votes import known_log, make_judgement, make_label, make_vote
from wire.judgements import Judgement
from wire.votes import VoteRecord


def _table(num_votes: int = 5) -> VoteTable:
    table = VoteTable()
    votes = [make_vote(n, "A", "B", "a", voter=f"v{n}", language="de", categories=("code",)) for n in range(num_votes)]
    labels = [make_label(number, votes[0].battle_id, "maths") for number in range(num_votes + 1, num_votes + 3)]
    early = make_label(num_votes + 3, "a-battle-to-come", "hard")
    table.extend([*votes, *labels, early, make_judgement(num_votes, "flag", voter="v1")])
    return table


def _same(first: TableSnapshot, second: TableSnapshot) -> bool:
    values = [{**vars(votes), "columns": None} for votes in (first, second)]
    return values[0] == values[1] and all(
        np.array_equal(column, second.columns[name], equal_nan=column.dtype.kind == "f")
        for name, column in first.columns.items()
    )


def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    votes = _table().snapshot()
    Checkpoints(tmp_path).write(Checkpoint(votes, "arena", "token"))

    read = Checkpoints(tmp_path).load()

    assert read is not None
    assert (read.arena, read.token) == ("arena", "token")
    assert _same(read.votes, votes)


def test_a_table_goes_on_from_a_checkpoint_as_if_it_had_seen_all(tmp_path: Path) -> None:
    table = _table()
    restored = VoteTable.restored(table.snapshot())
    later: list[VoteRecord | Judgement] = [
        make_vote(90, "A", "C", "b", voter="v1", language="de", battle_id="a-battle-to-come"),
        make_judgement(91, "unflag", voter="v1"),
    ]
    for one in (table, restored):
        one.extend(later)

    assert _same(table.snapshot(), restored.snapshot())


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for num_votes in (5, 9):
        votes = _table(num_votes).snapshot()
        checkpoints.write(Checkpoint(votes, None, ""))
    newest = tmp_path / "votes-9-0.npz"
    content = bytearray(newest.read_bytes())
    content[content.index(votes.columns["battle"].tobytes()) + 3] ^= 0xFF
    newest.write_bytes(content)

    read = Checkpoints(tmp_path).load()

    assert read is not None
    assert read.votes.num_votes == 5


def test_two_checkpoints_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for num_votes in (5, 10, 15, 20):
        checkpoints.write(Checkpoint(_table(num_votes).snapshot(), None, ""))

    assert sorted(path.name for path in tmp_path.iterdir()) == ["votes-15-0.npz", "votes-20-0.npz"]


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    Checkpoints(tmp_path / "file").write(Checkpoint(_table().snapshot(), None, ""))

    assert Checkpoints(tmp_path / "file").load() is None


async def _num_read(arena: Arena, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Votes of the board of a controller that starts with the folder, and the most entries that one read of the log has
    given since: the other controller reads on too."""
    sizes = []
    state = VoteLog.state

    async def counted(self: VoteLog, *args: Any, **kwargs: Any) -> Any:
        answer = await state(self, *args, **kwargs)
        sizes.append(len(answer.entries))
        return answer

    monkeypatch.setattr(VoteLog, "state", counted)
    client = await arena.add_controller(boards_dir=folder)
    num_votes = (await client.get("/arena/leaderboard")).json()["num_votes"]
    monkeypatch.undo()
    return num_votes, max(sizes)


async def test_a_restart_reads_only_the_end_of_the_log(
    open_arena: OpenArena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect 6: a restart read the whole log."""
    prefix = "test:checkpoints"
    async with open_arena(key_prefix=prefix, boards_dir=tmp_path) as arena:
        body = b"\n".join(vote.model_dump_json().encode() for vote in known_log())
        await arena.client.post("/arena/votes/import", content=body, headers=arena.admin)
        await arena.client.get("/arena/leaderboard")
    async with open_arena(key_prefix=prefix) as arena:
        line = make_vote(99, "A", "D", "a").model_dump_json().encode()
        await arena.client.post("/arena/votes/import", content=line, headers=arena.admin)

        num_votes, num_read = await _num_read(arena, tmp_path, monkeypatch)

        assert num_votes == 23
        assert num_read <= 2  # the new entry, and the one before it, to see whether it is the same log


async def test_a_checkpoint_of_another_log_is_not_used(
    arena: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Checkpoints(tmp_path).write(Checkpoint(_table().snapshot(), None, ""))
    body = b"\n".join(vote.model_dump_json().encode() for vote in known_log())
    await arena.client.post("/arena/votes/import", content=body, headers=arena.admin)

    num_votes, _ = await _num_read(arena, tmp_path, monkeypatch)

    assert num_votes == 22
