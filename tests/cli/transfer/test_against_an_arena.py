"""Import and export of the command line against a controller and a store."""

import asyncio
from pathlib import Path

import pytest

from cli.arena.running_arena import arena_client
from cli.formats.log_files import read_entries
from cli.formats.schemas import Schema, SourceSchema
from cli.transfer.exports import Export
from cli.transfer.imports import import_file
from tests.cli.formats.test_schemas import record
from tests.cli.transfer.planted import import_twice
from tests.controller.support.arena import ADMIN_TOKEN, Arena, make_settings, running_arena
from tests.controller.support.running import running_store
from wire.entry_ids import LOG_START
from wire.votes import VoteRecord


def _import(arena: Arena, path: Path) -> tuple[int, int]:
    with arena_client(arena.url, ADMIN_TOKEN) as client:
        done = import_file(client, path, SourceSchema.AUTO, patience_s=60)
    return done.imported, done.skipped


def _export(arena: Arena, path: Path, schema: Schema) -> int:
    with arena_client(arena.url, ADMIN_TOKEN) as client:
        return Export(client, schema, LOG_START, conversations=False, patience_s=60).to_file(path)


def _votes(path: Path) -> list[VoteRecord]:
    """Without what an import changes."""
    entries = [entry for entry in read_entries(path) if isinstance(entry, VoteRecord)]
    return [vote.model_copy(update={"vote_id": ""}) for vote in entries]


@pytest.mark.parametrize("name", ["log.ndjson", "log.parquet"])
async def test_an_exported_log_is_imported_elsewhere_and_exported_alike(tmp_path: Path, name: str) -> None:
    source = tmp_path / "source"
    votes = [record(vote_id=f"{number}-0", battle_id=f"b-{number}", time=float(number)) for number in range(1, 601)]
    source.write_text("".join(vote.model_dump_json(exclude_none=True) + "\n" for vote in votes))
    with running_store(tmp_path / "store") as store:
        async with running_arena(make_settings(store.url, "test:one")) as arena:
            assert await asyncio.to_thread(_import, arena, source) == (600, 0)
            assert await asyncio.to_thread(_export, arena, tmp_path / name, Schema.AGON) == 600
        async with running_arena(make_settings(store.url, "test:other")) as arena:
            assert await asyncio.to_thread(_import, arena, tmp_path / name) == (600, 0)
            assert await asyncio.to_thread(_import, arena, tmp_path / name) == (0, 600)
            assert await asyncio.to_thread(_export, arena, tmp_path / "again", Schema.AGON) == 600
    assert _votes(tmp_path / "again") == _votes(source)


@pytest.mark.parametrize("schema", [Schema.ARENA, Schema.PREFERENCES])
async def test_a_log_in_a_public_schema_is_imported(tmp_path: Path, schema: Schema) -> None:
    source = tmp_path / "source"
    source.write_text(record(battle_id="b-1").model_dump_json(exclude_none=True))
    with running_store(tmp_path / "store") as store:
        async with running_arena(make_settings(store.url, "test:one")) as arena:
            await asyncio.to_thread(_import, arena, source)
            await asyncio.to_thread(_export, arena, tmp_path / "public", schema)
            assert await asyncio.to_thread(_import, arena, tmp_path / "public") == (0, 1)
        async with running_arena(make_settings(store.url, "test:other")) as arena:
            assert await asyncio.to_thread(_import, arena, tmp_path / "public") == (1, 0)
            [vote] = await arena.vote_log()
    assert (vote["battle_id"], vote["outcome"], vote["a"]["model"], vote["voter"]) == ("b-1", "a", "finch", "v-1")


async def test_odd_rows_are_left_out_with_their_lines_and_a_second_run_adds_nothing() -> None:
    await import_twice(3000)
