"""The keys of the store as released: a store outlives the upgrade of its controllers."""

import asyncio

from controller.store.keys import EVENTS_TTL_MS, LEASES_GRACE_MS, TRAIL_TTL_MS, Keys
from tests.controller.support.arena import Arena, eventually
from wire.ids import BattleId, ChatId, Pseudonym, ShareId, WorkerId

KEYS = Keys("p")

#: Every method and property of Keys that names a key: an example, and the example's name since the first release.
RELEASED = {
    "workers": (KEYS.workers, "p:workers"),
    "worker": (KEYS.worker(WorkerId("w-1")), "p:worker:w-1"),
    "epoch": (KEYS.epoch, "p:epoch"),
    "models": (KEYS.models, "p:models"),
    "leases": (KEYS.leases(WorkerId("w-1")), "p:slots:w-1"),
    "demand": (KEYS.demand(WorkerId("w-1"), "battle"), "p:demand:battle:w-1"),
    "battle": (KEYS.battle(BattleId("x")), "p:battle:x"),
    "events": (KEYS.events(BattleId("x")), "p:battle:x:events"),
    "turns": (KEYS.turns, "p:turns"),
    "history": (KEYS.history(Pseudonym("x")), "p:history:x"),
    "shared": (KEYS.shared(ShareId("x")), "p:shared:x"),
    "chat": (KEYS.chat(ChatId("x")), "p:chat:x"),
    "chat_events": (KEYS.chat_events(ChatId("x")), "p:chat:x:events"),
    "running_chats": (KEYS.running_chats, "p:chat-turns"),
    "chats_of": (KEYS.chats_of(Pseudonym("x")), "p:chats-of:x"),
    "votes": (KEYS.votes, "p:votes"),
    "fence": (KEYS.fence, "p:fence"),
    "logged_battles": (KEYS.logged_battles, "p:logged"),
    "format": (KEYS.format, "p:format"),
    "arena": (KEYS.arena, "p:arena"),
    "restoration": (KEYS.restoration, "p:restoration"),
    "built_log": (KEYS.built_log("x"), "p:votes:x"),
    "board_cards": (KEYS.board_cards, "p:cards"),
    "invitations": (KEYS.invitations, "p:invitations"),
    "invited": (KEYS.invited, "p:invited"),
    "judge": (KEYS.judge, "p:judge"),
    "integrity": (KEYS.integrity, "p:integrity"),
    "admin_state": (KEYS.admin_state, "p:admin"),
    "actions": (KEYS.actions, "p:actions"),
    "failures": (KEYS.failures(12), "p:failures:12"),
    "trail": (KEYS.trail(BattleId("b")), "p:trail:b"),
    "accepted_terms": (KEYS.accepted_terms(Pseudonym("x")), "p:terms:x"),
    "rate": (KEYS.rate("turn", "1.2.3.4"), "p:rate:turn:1.2.3.4"),
}
PARTS = {
    "worker_prefix",
    "leases_prefix",
    "battle_prefix",
    "events_suffix",
    "battle_turns",
    "chat_prefix",
    "chat_turns",
}


def test_keys_have_the_names_of_the_first_release() -> None:
    assert [key for key, _ in RELEASED.values()] == [name for _, name in RELEASED.values()]
    assert {name for name in vars(Keys) if not name.startswith("_")} == {*RELEASED, *PARTS}


async def test_a_running_arena_writes_these_keys_and_each_lives_as_long_as_it_says(arena: Arena) -> None:
    keys, settings = arena.keys, arena.settings
    alpha, beta = await arena.add_two()
    battle_id = (await arena.create())["id"]
    await arena.turn(battle_id)
    assert (await arena.vote(battle_id)).status_code == 200
    running_id = (await arena.create())["id"]
    alpha.may_speak.clear()
    turn = asyncio.create_task(arena.turn(running_id))
    await eventually(lambda: alpha.num_open == 1)

    chat_id = (await arena.client.post("/arena/chats", json={"model": "beta"})).json()["id"]
    await arena.events("POST", f"/arena/chats/{chat_id}/turns", json={"content": "hello"})
    holding_id = (await arena.client.post("/arena/chats", json={"model": "alpha"})).json()["id"]
    chat_turn = asyncio.create_task(arena.events("POST", f"/arena/chats/{holding_id}/turns", json={"content": "hello"}))
    await eventually(lambda: alpha.num_open == 2)

    chats = (ChatId(chat_id), ChatId(holding_id))
    longest_ms = {
        **{keys.chat(of): settings.chat_ttl_s * 1000 for of in chats},
        **{keys.chat_events(of): EVENTS_TTL_MS for of in chats},
        keys.running_chats: None,
        keys.workers: None,
        keys.format: None,
        keys.epoch: None,
        keys.models: None,
        keys.worker(alpha.worker_id): settings.worker_lease_s * 1000,
        keys.worker(beta.worker_id): settings.worker_lease_s * 1000,
        keys.leases(alpha.worker_id): settings.slot_lease_s * 1000 + LEASES_GRACE_MS,
        keys.leases(beta.worker_id): settings.slot_lease_s * 1000 + LEASES_GRACE_MS,
        keys.battle(battle_id): None,  # voted_battle_ttl_s is 0
        keys.events(battle_id): EVENTS_TTL_MS,
        keys.battle(running_id): 2 * settings.battle_ttl_s * 1000,
        keys.events(running_id): EVENTS_TTL_MS,
        keys.turns: None,
        keys.votes: None,
        keys.logged_battles: None,
        **{keys.rate(kind, "127.0.0.1"): 60_000 for kind in ("battle", "turn", "vote", "chat")},
    }
    async for key in arena.redis.scan_iter(match=f"{keys.prefix}:*"):
        # Each client of this test gets a cookie with its battle and never shows it.
        is_history = key.startswith(keys.history(Pseudonym("x"))[:-1])
        most = 2 * settings.battle_ttl_s * 1000 if is_history else longest_ms.get(key)
        if key.startswith(keys.trail(BattleId("x"))[:-1]):
            most = TRAIL_TTL_MS
        if key.startswith(keys.chats_of(Pseudonym("x"))[:-1]):
            most = settings.chat_ttl_s * 1000
        assert most is not None or key in longest_ms, key
        ttl_ms = await arena.redis.pttl(key)
        if ttl_ms != -2:  # it has expired since the scan
            assert ttl_ms == -1 if most is None else 0 < ttl_ms <= most, key
    alpha.may_speak.set()
    await turn
    await chat_turn
