"""Faults are planted, and the trail of the battle names the cause of each in one sentence."""

import asyncio
import re
from typing import Any

import pytest

from tests.controller.conftest import OpenArena
from tests.controller.support.arena import Arena, eventually
from tests.controller.support.fake_worker import FakeWorker
from wire.errors import ApiError, ErrorCode


async def _causes(arena: Arena, battle_id: str) -> tuple[str, ...]:
    return (await arena.trail(battle_id)).causes


async def _named(arena: Arena, **options: Any) -> str:
    return str((await arena.create("alpha", "beta", **options))["id"])


async def test_a_good_battle_has_its_steps_and_no_cause(arena: Arena) -> None:
    await arena.add_two()
    battle = await _named(arena)
    await arena.turn(battle)
    await eventually(lambda: arena.has_ended(battle, "finished"))
    await arena.vote(battle)

    trail = await arena.trail(battle)

    steps = [entry.step for entry in trail.entries]
    assert steps[:2] == ["created", "began"]
    assert steps[-2:] == ["ended", "voted"]
    assert sorted(steps[2:-2]) == sorted(["accepted", "first_token", "finished"] * 2)
    assert trail.causes == ("The vote is not rated: named.",)  # its models were chosen
    assert trail.models == {"a": "alpha", "b": "beta"}
    assert trail.outcome == "a"


@pytest.mark.parametrize(
    ("fault", "pattern"),
    [
        ({"break_at": 2}, r"Turn 1, alpha: worker \S+ failed \(connection broke.*\); no other worker could go on"),
        ({"break_at": 0}, r"Turn 1, alpha: worker \S+ failed \(connection broke.*\); no other worker could go on"),
        ({"fail_at": 1}, r"Turn 1, alpha: worker \S+ failed \(internal_error\); no other worker could go on"),
        ({"hang_at": 1}, r"Turn 1, alpha: worker \S+ failed \(no token in time\); no other worker could go on"),
        (
            {"refusal": ApiError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "too long")},
            r"Turn 1 was refused: the conversation was longer than the model's context",
        ),
        (
            {"refusal": ApiError(ErrorCode.QUEUE_FULL, "full")},
            r"Turn 1, alpha: worker \S+ failed \(queue_full\)|Turn 1 was refused: all places",
        ),
    ],
)
async def test_a_fault_of_a_worker_is_named(open_arena: OpenArena, fault: dict[str, Any], pattern: str) -> None:
    async with open_arena(token_timeout_s=0.5, first_token_timeout_s=5) as arena:
        alpha, _ = await arena.add_two()
        for name, value in fault.items():
            setattr(alpha, name, value)
        battle = await _named(arena)
        await arena.post_turn(battle)

        causes = await _causes(arena, battle)

        assert any(re.search(pattern, cause) for cause in causes), causes


async def test_a_replay_names_both_workers(arena: Arena) -> None:
    alpha, _ = await arena.add_two(num_tokens=20, delay_s=0.02)
    other = await arena.add_worker(FakeWorker("alpha", num_tokens=20))
    for worker in (alpha, other):
        worker.break_at = 3
        worker.may_speak.clear()
    battle = await _named(arena)
    turn = asyncio.create_task(arena.turn(battle))
    await eventually(lambda: len(alpha.requests) + len(other.requests) >= 1)
    failing, healthy = (alpha, other) if alpha.requests else (other, alpha)
    healthy.heal()
    for worker in (alpha, other):
        worker.may_speak.set()
    await turn

    [cause] = await _causes(arena, battle)

    assert re.fullmatch(
        rf"Turn 1, alpha: worker {failing.worker_id} failed \(.*\); worker {healthy.worker_id} went on\.", cause
    )


async def test_a_model_without_a_worker_and_one_without_a_place_are_told_apart(arena: Arena) -> None:
    alpha, _ = await arena.add_two(max_running=1)
    battle = await _named(arena)
    await arena.take_place(arena.keys.leases(alpha.worker_id))
    assert (await arena.post_turn(battle)).status_code != 200
    assert "all places at its workers were taken" in (await _causes(arena, battle))[0]

    await arena.remove(alpha)
    await eventually(lambda: _answers(arena, battle, "no_worker_available"))
    assert any("no worker of the model was registered" in cause for cause in await _causes(arena, battle))


async def _answers(arena: Arena, battle: str, code: str) -> bool:
    await arena.post_turn(battle)
    return any(entry.reason == code for entry in (await arena.trail(battle)).entries)


async def test_refused_and_unrated_votes_stops_and_slowness_are_named(arena: Arena) -> None:
    alpha, _ = await arena.add_two(num_tokens=9)
    alpha.delay_s = 0.25
    battle = await _named(arena)
    turn = asyncio.create_task(arena.turn(battle))
    await eventually(lambda: bool(alpha.requests))
    await arena.vote(battle)
    await turn
    assert await _causes(arena, battle) == (
        "A vote was refused: both models had not answered.",
        next(cause for cause in await _causes(arena, battle) if "tokens a second" in cause),
    )

    stopped = await _named(arena)
    alpha.delay_s = 10.0  # it does not end before it is stopped
    turn = asyncio.create_task(arena.turn(stopped))
    await eventually(lambda: len(alpha.requests) == 2)
    await arena.client.post(f"/arena/battles/{stopped}/stop")
    await turn
    await eventually(lambda: arena.has_ended(stopped, "stopped"))
    assert any("was stopped by the visitor" in cause for cause in await _causes(arena, stopped))


async def test_a_take_over_is_named(open_arena: OpenArena) -> None:
    async with open_arena(owner_lease_s=1.0) as staying:
        alpha, _ = await staying.add_two(num_tokens=20)
        alpha.may_speak.clear()
        async with open_arena(key_prefix=staying.settings.key_prefix) as leaving:
            battle = str((await staying.create("alpha", "beta"))["id"])
            await eventually(lambda: _is_ready(leaving))
            reading = asyncio.create_task(leaving.post_turn(battle))
            await eventually(lambda: bool(alpha.requests))
            await asyncio.sleep(0.2)
        reading.cancel()
        alpha.may_speak.set()
        await eventually(lambda: staying.has_ended(battle, "finished"))

        assert any("went on with it" in cause for cause in await _causes(staying, battle))


async def _is_ready(arena: Arena) -> bool:
    return (await arena.client.get("/ready")).status_code == 200


async def test_trails_are_for_the_administrator(arena: Arena) -> None:
    await arena.add_two()
    battle = await _named(arena)

    assert (await arena.client.get(f"/arena/admin/trails/{battle}")).status_code in (401, 403)
    unknown = await arena.client.get("/arena/admin/trails/none", headers=arena.admin)
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "battle_not_found")
