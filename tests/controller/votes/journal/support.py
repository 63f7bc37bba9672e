"""An arena with a journal beside its store, and what the tests of the journal ask it."""

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx

from tests.controller.support.arena import Arena, make_settings, running_arena
from tests.controller.support.running import StoreProcess


@contextlib.asynccontextmanager
async def journal_arena(store: StoreProcess, folder: Path, **changes: Any) -> AsyncGenerator[Arena, None]:
    values = {"key_prefix": "test:journal", "journal_dir": folder, **changes}
    async with running_arena(make_settings(store.url, values.pop("key_prefix"), **values)) as arena:
        await arena.add_two()
        yield arena


async def answered(arena: Arena) -> str:
    battle = await arena.create()
    await arena.turn(battle["id"])
    return str(battle["id"])


async def voted(arena: Arena, count: int, client: httpx.AsyncClient | None = None) -> list[dict[str, Any]]:
    """Replies of acknowledged votes."""
    replies = []
    for number in range(count):
        battle_id = await answered(arena)
        response = await (client or arena.client).post(
            f"/arena/battles/{battle_id}/vote", json={"outcome": ("a", "b", "tie")[number % 3]}
        )
        assert response.status_code == 200, response.text
        replies.append(response.json())
    return replies


async def log_has(arena: Arena, acknowledged: list[dict[str, Any]]) -> bool:
    """Whether the log has exactly these votes, once each. Any vote that is there must be right."""
    log = await arena.vote_log()
    assert len({record["battle_id"] for record in log}) == len(log), "a vote was doubled"
    right = {reply["battle_id"]: (reply["vote_id"], reply["outcome"]) for reply in acknowledged}
    found = {record["battle_id"]: (record["vote_id"], record["outcome"]) for record in log}
    assert all(found[battle_id] == right[battle_id] for battle_id in found)
    assert [record["vote_id"] for record in log] == sorted(
        (record["vote_id"] for record in log), key=lambda vote_id: tuple(map(int, vote_id.split("-")))
    )
    return found == right


async def board(client: httpx.AsyncClient) -> dict[str, Any]:
    response = await client.get("/arena/leaderboard")
    assert response.status_code == 200, response.text
    return response.json()


async def takes_turns(arena: Arena) -> bool:
    """Whether the workers have registered again in a store that was wiped."""
    created = await arena.client.post("/arena/battles", json={"mode": "anonymous"})
    return created.status_code == 201 and (await arena.post_turn(created.json()["id"])).status_code == 200
