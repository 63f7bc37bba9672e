"""Spellings of paths and tokens; which credential opens which route is in tests/test_access.py."""

from typing import Any

import pytest

from controller.access.addresses import Addresses
from controller.access.auth import Guard
from controller.metrics import Metrics
from service_kit.keys import WRONG_AT_ONCE
from tests.controller.support.arena import ADMIN_TOKEN, WORKER_TOKEN, Arena
from wire.errors import ApiError


@pytest.mark.parametrize(
    "path", ["//arena/votes", "/arena/./votes", "/ARENA/VOTES", "/arena/votes/", "/v1/../arena/votes"]
)
async def test_no_spelling_of_a_path_gets_around_its_router(arena: Arena, path: str) -> None:
    response = await arena.client.get(path, headers={"X-Original-URL": "/health"})
    assert response.status_code in (401, 404)

    response = await arena.client.get(path, headers={"Host": "x/health?"})
    assert response.status_code == 403


async def test_the_list_of_workers_and_the_metrics_are_public_or_not_as_configured(open_arena: Any) -> None:
    async with open_arena(public_workers=False, public_metrics=True) as arena:
        assert (await arena.client.get("/arena/workers")).status_code == 401
        assert (await arena.client.get("/arena/workers", headers=arena.admin)).status_code == 200
        assert (await arena.client.get("/metrics")).status_code == 200


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", f"Basic {ADMIN_TOKEN}", ADMIN_TOKEN, f"Bearer {ADMIN_TOKEN}x", "Bearer \xff"]
)
def test_anything_but_the_whole_token_is_refused(header: str) -> None:
    guard = Guard(
        worker_token=WORKER_TOKEN,
        admin_token=ADMIN_TOKEN,
        api_keys=(),
        addresses=Addresses((), ""),
        metrics=Metrics(),
    )

    with pytest.raises(ApiError) as refusal:
        guard.check("admin", header)

    assert refusal.value.status == 401


async def test_credentials_that_are_not_known_are_counted_limited_and_logged(
    arena: Arena, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = {"Authorization": "Bearer guess"}
    statuses = [(await arena.client.get("/arena/admin", headers=wrong)).status_code for _ in range(30)]
    assert statuses == [401] * WRONG_AT_ONCE + [429] * (30 - WRONG_AT_ONCE)

    lines = [record for record in caplog.records if record.message == "wrong_credentials"]
    assert len(lines) == 1
    metrics = (await arena.client.get("/metrics", headers=arena.admin)).text
    assert 'arena_wrong_credentials_total{access="admin"} 30.0' in metrics
    assert (await arena.client.get("/arena/admin", headers=arena.admin)).status_code == 200
    assert (await arena.client.get("/arena/admin")).status_code == 401
