"""A visitor's own battles, and links to voted ones: who sees what, and for how long."""

import asyncio
from typing import Any

import pytest

from tests.controller.conftest import OpenArena
from tests.controller.support.arena import PROXY_TOKEN, Arena, visitor
from wire.ids import BattleId, ShareId
from wire.voters import NEW_COOKIE_HEADER, VoterCookies

COOKIES = VoterCookies(PROXY_TOKEN)


def someone() -> dict[str, str]:
    """Headers of a browser with a cookie of its own; all of them come from one address."""
    return {"Cookie": f"{COOKIES.name}={COOKIES.new()}"}


async def begin(arena: Arena, headers: dict[str, str], content: str = "hello") -> str:
    """The id of a new anonymous battle with one turn."""
    reply = await arena.client.post("/arena/battles", json={"mode": "anonymous"}, headers=headers)
    battle_id = str(reply.json()["id"])
    await arena.turn(battle_id, content, headers=headers)
    return battle_id


async def history(arena: Arena, headers: dict[str, str]) -> list[dict[str, Any]]:
    reply = await arena.client.get("/arena/history", headers=headers)
    assert reply.status_code == 200, reply.text
    return reply.json()["battles"]


async def share(arena: Arena, battle_id: str, headers: dict[str, str]) -> str:
    reply = await arena.client.post(f"/arena/battles/{battle_id}/share", headers=headers)
    assert reply.status_code == 200, reply.text
    return str(reply.json()["share_id"])


async def test_a_history_holds_ones_own_battles_and_names_only_after_the_vote(arena: Arena) -> None:
    await arena.add_two()
    me, other = someone(), someone()
    first = await begin(arena, me, "first  question")
    second = await begin(arena, me, "x" * 500)
    await begin(arena, other)
    await arena.vote(first, "tie", headers=me)

    newest, oldest = await history(arena, me)
    assert (newest["id"], oldest["id"]) == (second, first)
    assert (newest["models"], newest["outcome"]) == (None, None)
    assert sorted(oldest["models"].values()) == ["alpha", "beta"]
    assert (oldest["question"], oldest["outcome"], oldest["state"]) == ("first question", "tie", "voted")
    assert len(newest["question"]) == 160
    assert len(await history(arena, other)) == 1


async def test_an_address_alone_has_no_history(arena: Arena) -> None:
    await arena.add_two()
    battle = await arena.create()
    await arena.turn(battle["id"])
    assert await history(arena, {}) == []


async def test_the_battle_that_came_with_the_cookie_is_in_its_history(arena: Arena) -> None:
    await arena.add_two()
    cookie = COOKIES.new()
    await begin(arena, {NEW_COOKIE_HEADER: cookie})
    assert len(await history(arena, {"Cookie": f"{COOKIES.name}={cookie}"})) == 1


async def test_a_battle_is_shared_after_its_vote_by_its_visitor_alone(arena: Arena) -> None:
    await arena.add_two()
    me = someone()
    battle_id = await begin(arena, me)
    path = f"/arena/battles/{battle_id}/share"
    early = await arena.client.post(path, headers=me)
    assert (early.status_code, early.json()["error"]["code"]) == (409, "battle_not_finished")
    await arena.vote(battle_id, "a", headers=me)
    stranger = {**someone(), **visitor("203.0.113.9")}
    assert (await arena.client.post(path, headers=stranger)).status_code == 403

    share_id = await share(arena, battle_id, me)
    assert await share(arena, battle_id, me) == share_id
    shared = (await arena.client.get(f"/arena/shared/{share_id}")).json()
    view = await arena.view(battle_id)
    assert shared["turns"] == view["turns"]
    assert shared["models"] == {side: view[side]["model"] for side in "ab"}
    assert set(shared) == {"mode", "outcome", "models", "turns", "day"}
    assert battle_id not in str(shared)
    assert (await history(arena, me))[0]["share_id"] == share_id


@pytest.mark.parametrize("way", ["unshare", "forget"])
async def test_a_link_that_is_taken_back_shows_nothing(arena: Arena, way: str) -> None:
    await arena.add_two()
    me = someone()
    battle_id = await begin(arena, me)
    await arena.vote(battle_id, headers=me)
    share_id = await share(arena, battle_id, me)

    path = f"/arena/battles/{battle_id}/share" if way == "unshare" else f"/arena/history/{battle_id}"
    assert (await arena.client.delete(path, headers=me)).status_code == 204
    assert (await arena.client.get(f"/arena/shared/{share_id}")).status_code == 404
    assert len(await history(arena, me)) == (1 if way == "unshare" else 0)
    if way == "unshare":
        assert await share(arena, battle_id, me) != share_id


async def test_a_shared_battle_is_kept_longer_and_a_link_taken_back_ends_that(open_arena: OpenArena) -> None:
    async with open_arena(voted_battle_ttl_s=100, shared_battle_ttl_s=1000) as arena:
        await arena.add_two()
        me = someone()
        battle_id = await begin(arena, me)
        await arena.vote(battle_id, headers=me)
        key = arena.keys.battle(BattleId(battle_id))
        assert 0 < await arena.redis.pttl(key) <= 100_000
        link = arena.keys.shared(ShareId(await share(arena, battle_id, me)))
        assert 900_000 < await arena.redis.pttl(key) <= 1_000_000
        assert 900_000 < await arena.redis.pttl(link) <= 1_000_000
        await arena.client.delete(f"/arena/battles/{battle_id}/share", headers=me)
        assert 0 < await arena.redis.pttl(key) <= 100_000


async def test_a_battle_that_the_store_has_forgotten_leaves_the_history(arena: Arena) -> None:
    await arena.add_two()
    me = someone()
    gone, kept = await begin(arena, me), await begin(arena, me)
    await arena.redis.delete(arena.keys.battle(BattleId(gone)))
    assert [entry["id"] for entry in await history(arena, me)] == [kept]
    [key] = [key async for key in arena.redis.scan_iter(match=f"{arena.keys.prefix}:history:*")]
    assert await arena.redis.zrange(key, 0, -1) == [kept]
    assert await arena.redis.pttl(key) > 0


async def test_many_links_asked_for_at_once_are_one(arena: Arena) -> None:
    await arena.add_two()
    me = someone()
    battle_id = await begin(arena, me)
    await arena.vote(battle_id, headers=me)
    assert len(set(await asyncio.gather(*(share(arena, battle_id, me) for _ in range(5))))) == 1
