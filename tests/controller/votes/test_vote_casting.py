"""Votes are recorded once, refused with a reason, exported and imported."""

import asyncio
import json
from typing import Any

import pytest

from controller.battles.voters import Voters
from tests.controller.support.arena import Arena, eventually, visitor
from tests.controller.support.fake_worker import FakeWorker
from wire.ids import BattleId


async def _answered(arena: Arena, *, replies: tuple[str, str] | None = None, named: bool = False) -> str:
    """Id of a battle with one answered turn."""
    if not arena.workers:
        for model in ("alpha", "beta"):
            await arena.add_worker(FakeWorker(model))
    for worker, reply in zip(arena.workers, replies or (None, None), strict=True):
        worker.reply = reply
    battle = await arena.create(*(("alpha", "beta") if named else ()))
    await arena.turn(battle["id"])
    return str(battle["id"])


async def test_a_hundred_identical_votes_are_one_vote_with_a_hundred_equal_answers(arena: Arena) -> None:
    battle_id = await _answered(arena)

    replies = await asyncio.gather(*(arena.vote(battle_id, "b") for _ in range(100)))

    assert {reply.status_code for reply in replies} == {200}
    assert len({reply.content for reply in replies}) == 1
    [record] = await arena.vote_log()
    assert record["vote_id"] == replies[0].json()["vote_id"]
    assert record["battle_id"] == battle_id


async def test_votes_through_two_controllers_are_one_vote(arena: Arena) -> None:
    battle_id = await _answered(arena)
    other = await arena.add_controller()

    replies = await asyncio.gather(
        *(
            client.post(f"/arena/battles/{battle_id}/vote", json={"outcome": "a"})
            for client in (arena.client, other)
            for _ in range(20)
        )
    )

    assert len({reply.content for reply in replies}) == 1
    assert len(await arena.vote_log()) == 1


async def test_a_different_vote_afterwards_is_a_conflict(arena: Arena) -> None:
    battle_id = await _answered(arena)
    await arena.vote(battle_id, "a")

    for outcome in ("b", "tie", "both_bad"):
        response = await arena.vote(battle_id, outcome)
        assert (response.status_code, response.json()["error"]["code"]) == (409, "battle_already_voted")

    assert (await arena.vote(battle_id, "a")).status_code == 200
    assert [record["outcome"] for record in await arena.vote_log()] == ["a"]


async def test_of_different_votes_at_once_one_is_recorded(arena: Arena) -> None:
    battle_id = await _answered(arena)

    replies = await asyncio.gather(*(arena.vote(battle_id, outcome) for outcome in ["a", "b", "tie", "both_bad"] * 5))

    won = {reply.json()["outcome"] for reply in replies if reply.status_code == 200}
    assert len(won) == 1
    assert {reply.status_code for reply in replies} == {200, 409}, [reply.text for reply in replies]
    assert [record["outcome"] for record in await arena.vote_log()] == list(won)


async def test_an_open_battle_cannot_be_voted_on(arena: Arena) -> None:
    for model in ("alpha", "beta"):
        await arena.add_worker(FakeWorker(model))
    battle = await arena.create()

    response = await arena.vote(battle["id"])

    assert (response.status_code, response.json()["error"]["code"]) == (409, "battle_not_finished")
    assert "alpha" not in response.text


async def test_a_battle_whose_sides_still_stream_cannot_be_voted_on(arena: Arena) -> None:
    await arena.add_worker(FakeWorker("alpha"))
    slow = await arena.add_worker(FakeWorker("beta"))
    slow.may_speak.clear()
    battle = await arena.create()
    turn = asyncio.create_task(arena.turn(battle["id"]))
    await eventually(lambda: slow.num_open == 1)

    response = await arena.vote(battle["id"])

    assert (response.status_code, response.json()["error"]["code"]) == (409, "battle_not_finished")
    slow.may_speak.set()
    await turn
    assert (await arena.vote(battle["id"])).status_code == 200


async def test_the_vote_of_a_stale_page_is_refused(arena: Arena) -> None:
    battle_id = await _answered(arena)
    await arena.turn(battle_id, "in another tab")

    def vote(number: int) -> Any:
        return arena.client.post(f"/arena/battles/{battle_id}/vote", json={"outcome": "a", "number": number})

    stale = await vote(1)
    assert (stale.status_code, stale.json()["error"]["code"]) == (409, "stale_turn")
    assert await arena.vote_log() == []
    recorded = await vote(2)
    assert recorded.status_code == 200
    assert (await vote(1)).content == recorded.content  # it is recorded: the answer was lost, perhaps
    assert len(await arena.vote_log()) == 1


async def test_a_battle_that_never_was_cannot_be_voted_on(arena: Arena) -> None:
    response = await arena.vote("nowhere")

    assert (response.status_code, response.json()["error"]["code"]) == (404, "battle_not_found")


async def test_only_the_visitor_who_began_the_battle_may_vote(arena: Arena) -> None:
    battle_id = await _answered(arena)
    stranger = visitor("203.0.113.9")

    before = await arena.vote(battle_id, headers=stranger)
    await arena.vote(battle_id)
    after = await arena.vote(battle_id, headers=stranger)

    for response in (before, after):
        assert (response.status_code, response.json()["error"]["code"]) == (403, "not_your_battle")
        assert "alpha" not in response.text
    assert len(await arena.vote_log()) == 1


async def test_a_vote_after_midnight_is_recognised(arena: Arena) -> None:
    """The battle began yesterday, under yesterday's key."""
    battle_id = await _answered(arena)
    voters = Voters.from_settings("", arena.settings.admin_token.get_secret_value())
    yesterday: dict[Any, Any] = {"voter_day": "2020-01-01", "voter": voters.pseudonym("127.0.0.1", "2020-01-01")}
    await arena.redis.hset(arena.keys.battle(BattleId(battle_id)), mapping=yesterday)

    assert (await arena.vote(battle_id)).status_code == 200


async def test_after_the_vote_the_battle_takes_no_more_turns(arena: Arena) -> None:
    battle_id = await _answered(arena)
    await arena.vote(battle_id)
    for path in ("turns", "regenerate"):
        response = await arena.client.post(f"/arena/battles/{battle_id}/{path}", json={"content": "more"})
        assert (response.status_code, response.json()["error"]["code"]) == (409, "battle_already_voted")


async def test_a_vote_record_says_what_was_compared(arena: Arena) -> None:
    replies = ("# Yes\n\n- **one**\n- two\n", "no")
    battle_id = await _answered(arena, replies=replies)
    body = {"outcome": "a", "reasons": ["clear", "correct"], "comment": "good"}
    await arena.client.post(f"/arena/battles/{battle_id}/vote", json=body)

    [record] = await arena.vote_log()

    by_model = {record[side]["model"]: record[side] for side in "ab"}
    assert by_model["alpha"]["revision"] == "rev-alpha"
    assert by_model["alpha"]["style"] == {"tokens": 1, "headers": 1, "lists": 2, "bold": 1}
    assert by_model["beta"]["style"] == {"tokens": 1, "headers": 0, "lists": 0, "bold": 0}
    for side in "ab":
        assert record[side]["finish_reason"] == "stop"
        assert record[side]["prompt_tokens"] == 7
        assert 0 < record[side]["first_token_ms"] <= record[side]["total_ms"]
    assert (record["mode"], record["turns"], record["probability"]) == ("anonymous", 1, 1.0)
    assert (record["reasons"], record["comment"]) == (["clear", "correct"], "good")
    assert abs(record["time"] - int(record["vote_id"].split("-")[0]) / 1000) < 0.002
    assert len(record["voter"]) == 24
    assert record["schema"] == 2
    assert "127.0.0.1" not in json.dumps(record)
    assert "hello" not in json.dumps(record)


async def test_an_answer_that_names_its_model_is_shown_but_not_rated(arena: Arena) -> None:
    battle_id = await _answered(arena, replies=("I am alpha, made by Acme.", "Fine."))
    assert (await arena.view(battle_id))["identity_revealed"] is True

    reply = (await arena.vote(battle_id)).json()

    assert reply["rated"] is False
    assert (await arena.vote(battle_id)).json() == reply
    assert [record["flags"] for record in await arena.vote_log()] == [["identity_revealed"]]


async def test_votes_of_named_battles_are_kept_apart(arena: Arena) -> None:
    battle_id = await _answered(arena, named=True)

    assert (await arena.vote(battle_id)).json()["rated"] is False

    assert [record["flags"] for record in await arena.vote_log()] == [["named"]]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"outcome": "c"},
        {"outcome": None},
        {"outcome": "a", "reasons": "clear"},
        {"outcome": "a", "reasons": ["x"] * 9},
        {"outcome": "a", "reasons": ["x" * 65]},
        {"outcome": "a", "comment": "x" * 2001},
        {"outcome": "a", "weight": 5},
    ],
)
async def test_a_vote_that_is_none_is_refused(arena: Arena, body: Any) -> None:
    response = await arena.client.post("/arena/battles/nowhere/vote", json=body)

    assert response.status_code == 400


async def test_voted_battles_are_kept_or_forgotten_as_configured(open_arena: Any) -> None:
    for ttl_s, kept in ((0, True), (100, False)):
        async with open_arena(voted_battle_ttl_s=ttl_s) as arena:
            battle_id = await _answered(arena)
            await arena.vote(battle_id)
            ttl_ms = await arena.redis.pttl(arena.keys.battle(battle_id))
            assert ttl_ms == -1 if kept else 0 < ttl_ms <= 100_000
            assert await arena.redis.pttl(arena.keys.votes) == -1


async def test_the_log_can_be_read_on_from_a_vote_and_with_its_conversations(arena: Arena) -> None:
    for _ in range(3):
        await arena.vote(await _answered(arena, replies=("from alpha", "from beta")))
    records = await arena.vote_log()

    response = await arena.client.get(
        "/arena/votes", params={"after": records[0]["vote_id"], "conversations": "true"}, headers=arena.admin
    )

    lines = [json.loads(line) for line in response.text.splitlines()]
    assert [line["vote_id"] for line in lines] == [record["vote_id"] for record in records[1:]]
    for line in lines:
        for side in "ab":
            question, answer = line["conversations"][side]
            assert question == {"role": "user", "content": "hello"}
            assert answer == {"role": "assistant", "content": f"from {line[side]['model']}"}


@pytest.mark.parametrize("after", ["x", "1", "1-x", f"{2**64}-1", f"{2**64 - 1}-{2**64 - 1}", "0-0:events"])
async def test_the_log_cannot_be_read_from_what_is_no_vote_id(arena: Arena, after: str) -> None:
    response = await arena.client.get("/arena/votes", params={"after": after}, headers=arena.admin)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_request")


async def test_importing_a_log_twice_adds_its_votes_once(arena: Arena, open_arena: Any) -> None:
    for _ in range(3):
        await arena.vote(await _answered(arena))
    log = (await arena.client.get("/arena/votes", headers=arena.admin)).content
    async with open_arena() as other:
        first, second = [
            (await other.client.post("/arena/votes/import", content=log, headers=other.admin)).json() for _ in range(2)
        ]
        assert first == {"imported": 3, "skipped": 0}
        assert second == {"imported": 0, "skipped": 3}
        copied, original = await other.vote_log(), await arena.vote_log()
        for records in (copied, original):
            for record in records:
                del record["vote_id"]
        assert copied == original
        board = (await other.client.get("/arena/leaderboard")).json()
        assert board["num_votes"] == 3


@pytest.mark.parametrize(
    "knows_its_battles", [True, False], ids=["as it is", "from before there was the set of battles"]
)
async def test_importing_an_arenas_own_log_changes_nothing(arena: Arena, knows_its_battles: bool) -> None:
    for _ in range(2):
        await arena.vote(await _answered(arena))
    log = (await arena.client.get("/arena/votes", headers=arena.admin)).content
    if not knows_its_battles:
        await arena.redis.delete(arena.keys.logged_battles)

    response = await arena.client.post("/arena/votes/import", content=log, headers=arena.admin)

    assert response.json() == {"imported": 0, "skipped": 2}
    assert len(await arena.vote_log()) == 2


async def test_a_line_that_is_no_vote_is_named_and_nothing_is_imported(arena: Arena) -> None:
    await arena.vote(await _answered(arena))
    log = (await arena.client.get("/arena/votes", headers=arena.admin)).content

    response = await arena.client.post("/arena/votes/import", content=log + b'{"x": 1}\n', headers=arena.admin)

    assert response.status_code == 400
    assert "Line 2" in response.json()["error"]["message"]
    assert len(await arena.vote_log()) == 1
