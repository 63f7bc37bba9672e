"""Every action of an administrator is in a log that is only appended to: who, when, what and why."""

import json
from typing import Any

import pytest

from tests.controller.support.arena import ADMIN_TOKEN, PROXY_TOKEN, Arena, visitor
from wire.proxies import PROXY_TOKEN_HEADER

CARD = {"model": "alpha", "provider": "Example Lab"}


async def actions(arena: Arena) -> list[dict[str, Any]]:
    response = await arena.client.get("/arena/admin/actions", headers=arena.admin)
    assert response.status_code == 200, response.text
    return response.json()["actions"]


async def test_every_change_by_an_administrator_is_logged(arena: Arena) -> None:
    alpha, _ = await arena.add_two()
    client, admin = arena.client, arena.admin
    drain = f"/arena/admin/workers/{alpha.worker_id}/drain"
    await client.put("/arena/admin/models/alpha", json={"is_on": False, "reason": "slow"}, headers=admin)
    await client.post(drain, json={"is_drained": True, "reason": "driver"}, headers=admin)
    await client.post(drain, json={"is_drained": False}, headers=admin)
    notice = (await client.post("/arena/admin/notices", json={"text": "Soon"}, headers=admin)).json()
    await client.delete(f"/arena/admin/notices/{notice['id']}", params={"reason": "over"}, headers=admin)
    await client.put("/arena/admin/terms", json={"text": "Be kind."}, headers=admin)
    await client.put("/arena/models/alpha/card", json=CARD, headers=admin)
    await client.post("/arena/voters/invitations", json={"name": "ada", "cohort": "staff"}, headers=admin)
    await client.delete("/arena/voters/invitations/ada", headers=admin)
    await client.post("/arena/votes/import", content=b"", headers=admin)
    judged = {"action": "flag", "battle_ids": ["b-1"], "note": "a test"}
    await client.post("/arena/integrity/judgements", json=judged, headers=admin)

    found = [(entry["action"], entry["subject"], entry["reason"]) for entry in reversed(await actions(arena))]
    assert found == [
        ("set_model", "alpha", "slow"),
        ("drain_worker", alpha.worker_id, "driver"),
        ("resume_worker", alpha.worker_id, ""),
        ("add_notice", notice["id"], ""),
        ("remove_notice", notice["id"], "over"),
        ("set_terms", "terms", ""),
        ("put_card", "alpha", ""),
        ("invite_voter", "ada", ""),
        ("revoke_voter", "ada", ""),
        ("import_votes", "vote log", ""),
        ("judge_votes", "b-1", "a test"),
    ]


async def test_an_entry_says_who_and_when_and_what_was_set(arena: Arena) -> None:
    await arena.add_two()
    headers = {**arena.admin, **visitor("203.0.113.7")}
    await arena.client.put("/arena/admin/models/alpha", json={"weight": 2}, headers=headers)
    [entry] = await actions(arena)
    seconds, _ = await arena.redis.time()
    assert (entry["by"], entry["address"]) == ("admin token", "203.0.113.7")
    assert entry["values"] == {"is_on": True, "weight": 2.0}
    assert 0 <= int(seconds) + 1 - entry["time"] < 120
    assert ADMIN_TOKEN not in json.dumps(entry)


async def test_the_log_is_read_in_pages_and_exported_whole(arena: Arena) -> None:
    for number in range(5):
        body = {"text": f"Notice {number}"}
        assert (await arena.client.post("/arena/admin/notices", json=body, headers=arena.admin)).status_code == 201
    first = (await arena.client.get("/arena/admin/actions?count=3", headers=arena.admin)).json()
    rest = (await arena.client.get(f"/arena/admin/actions?count=3&before={first['next']}", headers=arena.admin)).json()
    exported = (await arena.client.get("/arena/admin/actions/export", headers=arena.admin)).text.splitlines()
    paged = [*first["actions"], *rest["actions"]]
    assert rest["next"] is None
    assert [json.loads(line) for line in reversed(exported)] == paged
    assert [entry["values"]["text"] for entry in paged] == [f"Notice {number}" for number in (4, 3, 2, 1, 0)]


async def test_before_the_first_entry_there_is_nothing(arena: Arena) -> None:
    """Redis has no interval that ends before the id 0-0, and answers with an error."""
    for path in ("/arena/admin/actions?before=", "/arena/admin/votes?before="):
        for first in ("0-0", "000-00"):
            response = await arena.client.get(path + first, headers=arena.admin)
            assert response.status_code == 200, response.text
            assert [] in response.json().values()


@pytest.mark.parametrize("before", ["x", "1", "-", "1-2-3", "+"])
async def test_a_page_before_no_entry_is_refused(arena: Arena, before: str) -> None:
    for path in ("/arena/admin/actions", "/arena/admin/votes"):
        response = await arena.client.get(path, params={"before": before}, headers=arena.admin)
        assert (response.status_code, response.json()["error"]["param"]) == (400, "before")


async def test_an_administrator_whom_the_proxy_names_needs_no_token(open_arena: Any) -> None:
    async with open_arena(admin_users=("ada",)) as arena:
        trusted = {PROXY_TOKEN_HEADER: PROXY_TOKEN, "X-Forwarded-User": "ada"}
        made = await arena.client.post("/arena/admin/notices", json={"text": "Soon"}, headers=trusted)
        assert made.status_code == 201
        assert (await arena.client.get("/arena/admin", headers=trusted)).json()["actor"] == "ada"
        assert [entry["by"] for entry in await actions(arena)] == ["ada"]


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-User": "ada"},
        {"X-Forwarded-User": "ada", PROXY_TOKEN_HEADER: "guessed"},
        {"X-Forwarded-User": "bob", PROXY_TOKEN_HEADER: PROXY_TOKEN},
        [("X-Forwarded-User", "ada"), ("X-Forwarded-User", "bob"), (PROXY_TOKEN_HEADER, PROXY_TOKEN)],
        {PROXY_TOKEN_HEADER: PROXY_TOKEN},
    ],
    ids=["no proxy", "wrong proxy", "another user", "two users", "no user"],
)
async def test_nobody_else_is_an_administrator(open_arena: Any, headers: Any) -> None:
    async with open_arena(admin_users=("ada",)) as arena:
        response = await arena.client.post("/arena/admin/notices", json={"text": "Soon"}, headers=headers)
        assert response.status_code == 401
        assert await actions(arena) == []


async def test_without_admin_users_a_name_opens_nothing(arena: Arena) -> None:
    headers = {PROXY_TOKEN_HEADER: PROXY_TOKEN, "X-Forwarded-User": "ada"}
    assert (await arena.client.get("/arena/admin", headers=headers)).status_code == 401
