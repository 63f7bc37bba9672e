"""Ids that clients send: a text that is none is refused with a code, and never becomes a key of the store."""

import json
from urllib.parse import quote

import pytest

from tests.controller.support.arena import WORKER_TOKEN, Arena

BATTLE_ROUTES = (
    ("GET", ""),
    ("GET", "/stream"),
    ("POST", "/turns"),
    ("POST", "/regenerate"),
    ("POST", "/stop"),
    ("POST", "/vote"),
)
BODIES = {"/turns": {"content": "hello"}, "/vote": {"outcome": "a"}}
HOSTILE = (":events", "x:battle:{id}", "{id}:events", "{id}\n", "{id}\0", "*", "a b", "\udcff", "%", "a" * 5000)
HOSTILE_ENTRIES = (
    "18446744073709551616-1",
    "1-18446744073709551616",
    "$",
    "+",
    "-",
    "(",
    "1-1 2",
    "0x1-1",
    "1-*",
    "\u0661-1",
)


@pytest.mark.parametrize("hostile", HOSTILE)
async def test_a_text_that_is_no_id_is_an_unknown_battle_on_every_route(arena: Arena, hostile: str) -> None:
    """`<id>:events` is the key of a stream: read as a battle it was a WRONGTYPE error of the store, a 500."""
    await arena.add_two()
    battle_id = (await arena.create())["id"]
    await arena.turn(battle_id)
    path = quote(hostile.replace("{id}", battle_id), safe="", errors="surrogateescape")

    for method, tail in BATTLE_ROUTES:
        response = await arena.client.request(method, f"/arena/battles/{path}{tail}", json=BODIES.get(tail))

        assert (response.status_code, response.json()["error"]["code"]) == (404, "battle_not_found"), (method, tail)


async def test_a_text_that_is_no_id_of_a_worker_is_refused(arena: Arena) -> None:
    headers = {"Authorization": f"Bearer {WORKER_TOKEN}"}
    for hostile in ("a%3Ab", "%00", "a" * 65, "%20"):
        url = f"/internal/workers/{hostile}"
        beat = await arena.client.post(
            f"{url}/heartbeat", json={"epoch": 1, "state": "ready", "load": {}}, headers=headers
        )
        left = await arena.client.delete(url, headers=headers)

        for response in (beat, left):
            assert (response.status_code, response.json()["error"]["param"]) == (400, "worker_id")


@pytest.mark.parametrize("entry", HOSTILE_ENTRIES)
async def test_a_text_that_is_no_id_of_an_event_or_a_vote_is_refused(arena: Arena, entry: str) -> None:
    await arena.add_two()
    battle_id = (await arena.create())["id"]

    header: dict[bytes, bytes] = {b"Last-Event-ID": entry.encode()}
    stream = await arena.client.get(f"/arena/battles/{battle_id}/stream", headers=header)
    votes = await arena.client.get("/arena/votes", params={"after": entry}, headers=arena.admin)

    for response, param in ((stream, "Last-Event-ID"), (votes, "after")):
        assert (response.status_code, response.json()["error"]["param"]) == (400, param)


async def test_the_log_after_nothing_is_refused(arena: Arena) -> None:
    assert (await arena.client.get("/arena/votes?after=", headers=arena.admin)).status_code == 400


async def test_an_imported_vote_on_a_battle_with_a_foreign_id_is_exported_without_its_texts(arena: Arena) -> None:
    """Its id is no key of ours: `x:events` would be read as the stream of a battle x."""
    await arena.add_two()
    battle_id = (await arena.create())["id"]
    await arena.turn(battle_id)
    side = {"model": "m", "revision": "r"}
    foreign = {"vote_id": "1-1", "battle_id": f"{battle_id}:events", "time": 1.0, "mode": "anonymous", "outcome": "a"}
    line = json.dumps({**foreign, "a": side, "b": side, "schema": 1})
    imported = await arena.client.post("/arena/votes/import", content=line, headers=arena.admin)
    assert imported.json() == {"imported": 1, "skipped": 0}

    export = await arena.client.get("/arena/votes?conversations=true", headers=arena.admin)

    assert export.status_code == 200
    assert json.loads(export.text)["battle_id"] == foreign["battle_id"]
