"""Model cards: listed for every visitor, changed by the administrator, and retirement."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.controller.support.arena import Arena, eventually
from tests.controller.support.fake_worker import FakeWorker


async def _put(arena: Arena, model: str, **fields: Any) -> httpx.Response:
    body = {"model": model, **fields}
    return await arena.client.put(f"/arena/models/{model}/card", json=body, headers=arena.admin)


def _day(days: int) -> str:
    return (datetime.now(UTC) + timedelta(days=days)).date().isoformat()


async def test_a_card_is_listed_and_keeps_the_time_of_its_submission(arena: Arena) -> None:
    first = (await _put(arena, "lab/new", provider="Lab", num_parameters=7_000_000)).json()
    second = (await _put(arena, "lab/new", provider="Lab & Sons", submitted=1.0)).json()

    [listed] = (await arena.client.get("/arena/models")).json()["models"]

    assert first["submitted"] == second["submitted"] == listed["submitted"] > 1.7e9
    assert (listed["provider"], listed["num_parameters"]) == ("Lab & Sons", None)


async def test_a_submitted_model_is_on_the_board_before_it_has_a_worker(arena: Arena) -> None:
    await _put(arena, "soon", released="2026-01-02")
    board = (await arena.client.get("/arena/leaderboard")).json()

    assert [row["model"] for row in board["rows"]] == ["soon"]
    assert board["states"] == {"soon": "submitted"}
    assert board["cards"]["soon"]["released"] == "2026-01-02"


async def test_a_retired_model_gets_no_battles_and_stays_listed(arena: Arena) -> None:
    for model in ("alpha", "beta", "gamma"):
        await arena.add_worker(FakeWorker(model))
    await _put(arena, "gamma", retired=_day(0))
    await _put(arena, "beta", retired=_day(2))

    battles = [await arena.create() for _ in range(12)]
    refused = await arena.client.post("/arena/battles", json={"mode": "named", "models": ["alpha", "gamma"]})
    for battle in battles:
        await arena.turn(battle["id"])
        await arena.vote(battle["id"])
    board = (await arena.client.get("/arena/leaderboard")).json()

    assert {row["model"]: row["votes"] for row in board["rows"]} == {"alpha": 12, "beta": 12, "gamma": 0}
    assert board["states"] == {"alpha": "active", "beta": "active", "gamma": "retired"}
    assert refused.status_code == 404
    assert "retired" in refused.json()["error"]["message"]


async def test_every_controller_learns_of_a_card(arena: Arena) -> None:
    other = await arena.add_controller()
    await _put(arena, "alpha", licence="MIT")

    async def listed() -> bool:
        return bool((await other.get("/arena/models")).json()["models"])

    await eventually(listed)


@pytest.mark.parametrize(
    "body",
    [
        {"model": "other"},
        {"model": "alpha", "released": "May 2026"},
        {"model": "alpha", "link": "javascript:alert(1)"},
        {"model": "alpha", "num_parameters": -1},
    ],
    ids=["another name", "no date", "no address", "negative"],
)
async def test_a_card_that_makes_no_sense_is_refused(arena: Arena, body: dict[str, Any]) -> None:
    answer = await arena.client.put("/arena/models/alpha/card", json=body, headers=arena.admin)

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
