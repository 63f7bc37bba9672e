from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import SecretStr

from controller.access.auth import Guard
from controller.app import create_app
from controller.config import Settings
from tests.controller.support.arena import ADMIN_TOKEN, WORKER_TOKEN, Arena
from wire.errors import ApiError

USER_KEY = "user-key-for-tests"
CREDENTIALS = {
    "none": None,
    "wrong": "Bearer wrong-wrong-wrong-wrong",
    "user": f"Bearer {USER_KEY}",
    "worker": f"Bearer {WORKER_TOKEN}",
    "admin": f"Bearer {ADMIN_TOKEN}",
}

OPEN = {"GET /health", "GET /ready", "GET /version"}
WORKER = {
    "POST /internal/workers",
    "POST /internal/workers/{worker_id}/heartbeat",
    "DELETE /internal/workers/{worker_id}",
}
ADMIN = {"GET /arena/votes", "POST /arena/votes/import", "GET /arena/pools", "GET /metrics"}
USER = {
    "GET /v1/models",
    "GET /v1/models/{model:path}",
    "POST /v1/chat/completions",
    "POST /v1/completions",
    "POST /arena/battles",
    "GET /arena/battles/{battle_id}",
    "POST /arena/battles/{battle_id}/turns",
    "GET /arena/battles/{battle_id}/stream",
    "POST /arena/battles/{battle_id}/stop",
    "POST /arena/battles/{battle_id}/regenerate",
    "POST /arena/battles/{battle_id}/vote",
    "GET /arena/leaderboard",
    "GET /arena/workers",
}


def _all_routes(app: FastAPI) -> set[str]:
    found = set()
    for route in app.router.routes:
        for inner in _flat(route):
            found |= {f"{method} {inner.path}" for method in inner.methods or ()}
    return found


def _flat(route: Any) -> list[APIRoute]:
    if isinstance(route, APIRoute):
        return [route]
    inner = getattr(route, "routes", None) or getattr(getattr(route, "original_router", None), "routes", [])
    return [each for part in inner for each in _flat(part)]


def _app(**changes: Any) -> FastAPI:
    return create_app(Settings(worker_token=SecretStr(WORKER_TOKEN), admin_token=SecretStr(ADMIN_TOKEN), **changes))


def test_every_route_of_the_application_is_listed_in_this_test() -> None:
    assert _all_routes(_app()) == OPEN | WORKER | ADMIN | USER


def _passes(status: int) -> bool:
    return status not in (401, 403)


async def test_every_route_admits_exactly_the_credentials_it_is_for(open_arena: Any) -> None:
    admitted = {
        **{route: set(CREDENTIALS) for route in OPEN},
        **{route: {"worker"} for route in WORKER},
        **{route: {"admin"} for route in ADMIN},
        **{route: {"user", "admin"} for route in USER},
    }
    async with open_arena(api_keys=(USER_KEY,)) as arena:
        for route, allowed in admitted.items():
            method, path = route.split()
            for name, credential in CREDENTIALS.items():
                headers = {} if credential is None else {"Authorization": credential}
                url = path.replace("{model:path}", "m").replace("{battle_id}", "b").replace("{worker_id}", "w")
                response = await arena.client.request(method, url, headers=headers)
                assert _passes(response.status_code) == (name in allowed), (route, name, response.status_code)
                assert response.status_code < 500, (route, name)


async def test_without_api_keys_everybody_is_a_user_but_nobody_else(arena: Arena) -> None:
    assert (await arena.client.get("/v1/models")).status_code == 200
    assert (await arena.client.get("/v1/models", headers={"Authorization": "Bearer EMPTY"})).status_code == 200
    assert (await arena.client.get("/arena/votes")).status_code == 401
    assert (await arena.client.post("/internal/workers", json={})).status_code == 401


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
    guard = Guard(worker_token=WORKER_TOKEN, admin_token=ADMIN_TOKEN, api_keys=())

    with pytest.raises(ApiError) as refusal:
        guard.check("admin", header)

    assert refusal.value.status == 401
