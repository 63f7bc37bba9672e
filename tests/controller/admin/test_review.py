"""What the administrator sees of votes and failures, and votes that are taken out of the ratings."""

from typing import Any

from tests.controller.support.arena import Arena


async def voted(arena: Arena, outcome: str = "a") -> str:
    battle_id = str((await arena.create())["id"])
    await arena.turn(battle_id)
    assert (await arena.vote(battle_id, outcome)).status_code == 200
    return battle_id


async def votes(arena: Arena, **params: Any) -> dict[str, Any]:
    response = await arena.client.get("/arena/admin/votes", params=params, headers=arena.admin)
    assert response.status_code == 200, response.text
    return response.json()


async def failures(arena: Arena) -> dict[str, Any]:
    return (await arena.client.get("/arena/admin/failures", headers=arena.admin)).json()


async def test_votes_are_listed_newest_first_in_pages(arena: Arena) -> None:
    await arena.add_two()
    battles = [await voted(arena) for _ in range(3)]
    first = await votes(arena, count=2)
    rest = await votes(arena, count=2, before=first["next"])
    listed = [vote["battle_id"] for vote in [*first["votes"], *rest["votes"]]]
    assert listed == battles[::-1]
    newest = first["votes"][0]
    assert ({newest["model_a"], newest["model_b"]}, newest["outcome"]) == ({"alpha", "beta"}, "a")
    assert rest["next"] is None


async def test_a_voided_vote_shows_its_flag_until_it_counts_again(arena: Arena) -> None:
    await arena.add_two()
    kept, voided = await voted(arena), await voted(arena)
    for action, flags in (("flag", ["withdrawn"]), ("unflag", [])):
        body = {"action": action, "battle_ids": [voided], "note": "a test of mine"}
        response = await arena.client.post("/arena/integrity/judgements", json=body, headers=arena.admin)
        assert response.status_code == 200
        found = {vote["battle_id"]: vote["flags"] for vote in (await votes(arena))["votes"]}
        assert found == {kept: [], voided: flags}


async def test_a_failed_worker_is_counted_with_its_cause_and_model(arena: Arena) -> None:
    alpha, _ = await arena.add_two()
    battle = await arena.create("alpha", "beta")
    alpha.break_at = 1
    await arena.turn(battle["id"])
    found = await failures(arena)
    [failure] = [failure for failure in found["failures"] if failure["model"] == "alpha"]
    assert (failure["cause"], failure["worker_id"], failure["count"]) == (
        "connection broke: ClientPayloadError",
        alpha.worker_id,
        1,
    )


async def test_answers_with_an_error_of_the_service_are_counted_by_all_controllers_together(arena: Arena) -> None:
    other = await arena.add_controller()
    for client in (arena.client, other):
        assert (await client.post("/arena/battles", json={"mode": "anonymous"})).status_code == 503
        await client.get("/arena/admin/failures", headers=arena.admin)  # writes what was noted
    [failure] = (await failures(arena))["failures"]
    assert (failure["cause"], failure["model"], failure["count"]) == ("not_enough_models", "", 2)


async def test_requests_over_the_rate_are_counted_by_kind(open_arena: Any) -> None:
    async with open_arena(vote_rate_per_minute=1, vote_rate_burst=1) as arena:
        for _ in range(3):
            await arena.vote("no-such-battle")
        assert (await failures(arena))["rate_limited"] == {"vote": 2}
        rates = (await arena.client.get("/arena/admin", headers=arena.admin)).json()["rates"]
        assert {rate["kind"]: rate["burst"] for rate in rates}["vote"] == 1


async def test_failures_are_kept_for_a_day(arena: Arena) -> None:
    assert (await arena.client.post("/arena/battles", json={"mode": "anonymous"})).status_code == 503
    await failures(arena)
    [key] = await arena.redis.keys(f"{arena.keys.prefix}:failures:*")
    assert 0 < await arena.redis.pttl(key) <= 25 * 3_600_000
