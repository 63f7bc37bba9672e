"""Every route x every credential, from the routing table itself: a new route without a rule fails here."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from model_worker.access import Credentials
from model_worker.app import create_app, user_router
from model_worker.config import WorkerSettings
from model_worker.echo_engine import EchoEngine
from model_worker.models import Models
from model_worker.routes import internal, probes, served_models
from service_kit.bodies import Bodies

OPEN = {"/health", "/ready"}
STAND_ALONE = {"/metrics"}  #: open on a server without controllers, which has no battles
USER = {
    "/v1/models",
    "/v1/models/{model:path}",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/tokenize",
    "/detokenize",
    "/version",
}
WORKER = {
    "/internal/generate",
    "/internal/embed",
    "/internal/pool",
    "/internal/tokens",
    "/internal/models",
    "/internal/models/remove",
    "/internal/models/sleep",
    "/internal/models/wake",
}

CREDENTIALS = {
    "none": None,
    "empty": "",
    "no scheme": "user-key",
    "wrong scheme": "Basic user-key",
    "wrong key": "Bearer nonsense",
    "empty key": "Bearer ",
    "prefix of a key": "Bearer user-ke",
    "user": "Bearer user-key",
    "second user": "bearer other-key",
    "worker": "Bearer worker-token",
}


def routes() -> Iterator[tuple[str, str]]:
    settings = WorkerSettings(model="echo", engine="echo")
    user = user_router(Models(settings), Credentials.from_settings(settings), Bodies(1))
    for router in (probes.router, probes.metrics_router, user, internal.router, served_models.router):
        for route in router.routes:
            for method in route.methods:  # type: ignore[attr-defined]
                yield method, route.path  # type: ignore[attr-defined]


@pytest.fixture
def app() -> FastAPI:
    settings = WorkerSettings(
        model="echo", engine="echo", worker_token="worker-token", api_keys=("user-key", "other-key")
    )
    return create_app(settings, EchoEngine(tokens_per_s=1e6))


def client_of(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://127.0.0.1", headers={"Content-Type": "application/json"}
    )


def test_every_route_has_a_rule_and_no_other_is_served(app: FastAPI) -> None:
    assert {path for _, path in routes()} == OPEN | STAND_ALONE | USER | WORKER
    assert len(app.routes) == 5, "only the five routers: a route added to the app itself would have no guard"


@pytest.mark.parametrize(("method", "path"), list(routes()))
@pytest.mark.parametrize("credential", CREDENTIALS)
async def test_route_opens_only_to_its_audience(app: FastAPI, method: str, path: str, credential: str) -> None:
    header = CREDENTIALS[credential]
    headers = {} if header is None else {"Authorization": header}
    async with client_of(app) as client:
        answer = await client.request(method, path.replace("{model:path}", "echo"), headers=headers, content=b"{}")
    allowed = {"user", "second user"} if path in USER else {"worker"} if path in WORKER else set(CREDENTIALS)
    if credential in allowed:
        assert answer.status_code in (200, 400)  # 400: the empty body
    else:
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "unauthorized"


@pytest.mark.parametrize("host", ["worker", "evil/v1", "x?y", "a@b", "/health"])
async def test_host_header_opens_nothing(app: FastAPI, host: str) -> None:
    async with client_of(app) as client:
        answer = await client.get("/internal/pool", headers={"Host": host})
    assert answer.status_code == 401


@pytest.mark.parametrize(
    ("settings", "credential", "status"),
    [
        ({}, None, 200),  # stand-alone and without keys: a local server for every caller
        ({"api_keys": ("k",)}, None, 401),
        ({"controller_urls": ("http://c:1",), "worker_token": "t"}, None, 401),
        ({"controller_urls": ("http://c:1",), "worker_token": "t"}, "t", 200),
        ({"controller_urls": ("http://c:1",), "worker_token": "t", "api_keys": ("k",)}, "t", 401),
    ],
)
async def test_v1_without_keys_is_public_only_when_stand_alone(
    settings: dict[str, Any], credential: str | None, status: int
) -> None:
    app = create_app(WorkerSettings(model="echo", engine="echo", **settings), EchoEngine())
    headers = {"Authorization": f"Bearer {credential}"} if credential else {}
    async with client_of(app) as client:
        assert (await client.get("/v1/models", headers=headers)).status_code == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8200", 200),
        ("LOCALHOST", 200),
        ("[::1]:8200", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example:8200", 403),
        ("localhost@evil", 403),
        ("[::1", 403),
        ("", 403),
    ],
)
async def test_open_local_server_answers_to_local_names_only(host: str, status: int) -> None:
    app = create_app(WorkerSettings(model="echo", engine="echo"), EchoEngine())
    async with client_of(app) as client:
        assert (await client.get("/v1/models", headers={"Host": host})).status_code == status


@pytest.mark.parametrize(("credential", "status"), [(None, 401), ("k", 401), ("t" * 16, 200)])
async def test_metrics_of_a_worker_with_controllers_need_the_worker_token(credential: str | None, status: int) -> None:
    settings = WorkerSettings(
        model="echo", engine="echo", controller_urls=("http://c:1",), worker_token="t" * 16, api_keys=("k",)
    )
    app = create_app(settings, EchoEngine())
    headers = {"Authorization": f"Bearer {credential}"} if credential else {}
    async with client_of(app) as client:
        assert (await client.get("/metrics", headers=headers)).status_code == status


async def test_internal_routes_stay_closed_without_a_worker_token() -> None:
    app = create_app(WorkerSettings(model="echo", engine="echo"), EchoEngine())
    async with client_of(app) as client:
        for header in ("Bearer ", "Bearer None", "Bearer x"):
            assert (await client.get("/internal/pool", headers={"Authorization": header})).status_code == 401


def test_no_documentation_pages_are_served(app: FastAPI, make_settings: Callable[..., WorkerSettings]) -> None:
    assert (app.openapi_url, app.docs_url, app.redoc_url) == (None, None, None)
