"""Every route with every credential, in its place and in others: exactly those of docs/access.md open it."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

import controller.app
import controller.config
import model_worker.app
from docs import access_page
from model_worker.config import WorkerSettings
from model_worker.echo_engine import EchoEngine

USER, WORKER, ADMIN = "user-key-for-tests-1", "worker-token-for-tests", "admin-token-for-tests"
TOKENS = {"none": None, "user": USER, "worker": WORKER, "admin": ADMIN}
#: The kinds of access that are meant. A route that is not here fails the test: decide which access it has.
DECLARED = {
    "controller": {
        "open": "GET /health, GET /ready, GET /version, GET /openapi.json, GET /docs",
        "worker": "POST /internal/workers, POST /internal/workers/check, POST /internal/workers/{worker_id}/heartbeat, "
        "DELETE /internal/workers/{worker_id}",
        "admin": "POST /arena/voters/invitations, GET /arena/voters/invitations, "
        "DELETE /arena/voters/invitations/{name}, GET /arena/votes, "
        "POST /arena/votes/import, POST /arena/integrity/judgements, PUT /arena/models/{model}/card, "
        "GET /arena/pools, GET /metrics, GET /arena/admin, GET /arena/admin/votes, GET /arena/admin/failures, "
        "GET /arena/admin/trails/{battle_id}, "
        "GET /arena/admin/actions, GET /arena/admin/actions/export, PUT /arena/admin/models/{model}, "
        "POST /arena/admin/workers/{worker_id}/drain, POST /arena/admin/notices, "
        "DELETE /arena/admin/notices/{notice_id}, PUT /arena/admin/terms, "
        "GET /arena/admin/served, POST /arena/admin/served, POST /arena/admin/served/act",
        "user": "GET /v1/models, GET /v1/models/{model}, POST /v1/chat/completions, POST /v1/completions, "
        "POST /v1/embeddings, POST /tokenize, POST /detokenize, POST /v1/responses, POST /v1/messages, "
        "POST /v1/messages/count_tokens, "
        "POST /arena/battles, GET /arena/battles/{battle_id}, POST /arena/battles/{battle_id}/turns, "
        "GET /arena/battles/{battle_id}/stream, POST /arena/battles/{battle_id}/stop, "
        "POST /arena/battles/{battle_id}/regenerate, POST /arena/battles/{battle_id}/vote, "
        "POST /arena/battles/{battle_id}/feedback, GET /arena/battles/{battle_id}/feedback, "
        "POST /arena/voters/join/{invitation}, POST /arena/voters/check, GET /arena/leaderboard, "
        "GET /arena/leaderboard/history, GET /arena/leaderboard/cohorts, GET /arena/models, "
        "GET /arena/workers, GET /arena/integrity, GET /arena/notices, GET /arena/terms, POST /arena/terms, "
        "POST /arena/chats, GET /arena/chats/{chat_id}, DELETE /arena/chats/{chat_id}, "
        "POST /arena/chats/{chat_id}/turns, POST /arena/chats/{chat_id}/regenerate, "
        "GET /arena/chats/{chat_id}/stream, POST /arena/chats/{chat_id}/stop, "
        "GET /arena/history, DELETE /arena/history/{battle_id}, POST /arena/battles/{battle_id}/share, "
        "DELETE /arena/battles/{battle_id}/share, GET /arena/shared/{share_id}",
    },
    "worker": {
        "open": "GET /health, GET /ready, GET /openapi.json, GET /docs",
        "user": "GET /v1/models, GET /v1/models/{model}, POST /v1/chat/completions, POST /v1/completions, "
        "POST /v1/embeddings, POST /tokenize, POST /detokenize, POST /v1/responses, POST /v1/messages, "
        "POST /v1/messages/count_tokens, GET /version",
        "worker": "POST /internal/generate, POST /internal/embed, POST /internal/tokens, "
        "GET /internal/pool, GET /metrics, GET /internal/models, POST /internal/models, POST /internal/models/remove, "
        "POST /internal/models/sleep, POST /internal/models/wake",
    },
}
ROUTES = list(access_page.routes())


def make(service: str, has_keys: bool) -> FastAPI:
    """The service without a store: a request that is admitted may fail for other reasons than access."""
    keys = (SecretStr(USER),) if has_keys else ()
    if service == "worker":
        worker = WorkerSettings(
            model="echo",
            engine="echo",
            api_keys=keys,
            worker_token=SecretStr(WORKER),
            api_docs=True,
            controller_urls=("http://127.0.0.1:9",),
        )
        return model_worker.app.create_app(worker, EchoEngine())
    return controller.app.create_app(
        controller.config.Settings(
            redis_url="unix:///nonexistent/store.sock",
            worker_token=SecretStr(WORKER),
            admin_token=SecretStr(ADMIN),
            api_keys=(USER,) if has_keys else (),
            api_docs=True,
        )
    )


@asynccontextmanager
async def client_of(app: FastAPI) -> AsyncGenerator[httpx.AsyncClient, None]:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


#: Ways to send a token that are no credential. Each must open what no credential opens.
MISPLACED: dict[str, Callable[[str], dict[str, Any]]] = {
    "without a scheme": lambda token: {"headers": {"Authorization": token}},
    "Basic": lambda token: {"headers": {"Authorization": f"Basic {token}"}},
    "with more at its end": lambda token: {"headers": {"Authorization": f"Bearer {token}x"}},
    "cut": lambda token: {"headers": {"Authorization": f"Bearer {token[:-1]}"}},
    "in other letters": lambda token: {"headers": {"Authorization": f"Bearer {token.upper()}"}},
    "after a wrong one": lambda token: {"headers": {"Authorization": f"Bearer wrong, Bearer {token}"}},
    "before another": lambda token: {"headers": {"Authorization": f"Bearer {token}, Bearer wrong"}},
    "in quotes": lambda token: {"headers": {"Authorization": f'Bearer "{token}"'}},
    "with bytes that are no text": lambda token: {
        "headers": {b"Authorization": f"Bearer {token}\xff".encode("latin-1")}
    },
    "for the proxy": lambda token: {"headers": {"Proxy-Authorization": f"Bearer {token}"}},
    "in another header": lambda token: {"headers": {"Api-Key": token, "X-Original-Authorization": f"Bearer {token}"}},
    "in a cookie": lambda token: {"headers": {"Cookie": f"Authorization=Bearer {token}; token={token}"}},
    "in the query": lambda token: {"params": {"access_token": token, "api_key": token, "Authorization": token}},
    "wrong": lambda _: {"headers": {"Authorization": "Bearer wrong-wrong-wrong-wrong"}},
    "empty": lambda _: {"headers": {"Authorization": "Bearer "}},
}


async def admits(client: httpx.AsyncClient, method: str, path: str, **sent: Any) -> bool:
    url = path.replace("{model}", "m").replace("{battle_id}", "b").replace("{worker_id}", "w")
    response = await asyncio.wait_for(client.request(method, url, **sent), 30)
    return response.status_code not in (401, 403, 429)  # 429: this test sends many wrong credentials


def test_every_route_has_the_access_that_is_meant() -> None:
    found: dict[str, dict[str, set[str]]] = {}
    for service, method, path, access in ROUTES:
        found.setdefault(service, {}).setdefault(access, set()).add(f"{method} {path}")
    meant = {
        service: {access: set(names.split(", ")) for access, names in kinds.items()}
        for service, kinds in DECLARED.items()
    }
    assert found == meant


@pytest.mark.parametrize("has_keys", [False, True], ids=["without keys", "with keys"])
@pytest.mark.parametrize("service", access_page.SERVICES)
async def test_exactly_the_credentials_of_the_table_open_a_route(service: str, has_keys: bool) -> None:
    async with client_of(make(service, has_keys)) as client:
        for of, method, path, access in ROUTES:
            if of != service:
                continue
            opened = access_page.admitted(service, access, has_keys)
            for name, token in TOKENS.items():
                headers = {} if token is None else {"Authorization": f"Bearer {token}"}
                assert await admits(client, method, path, headers=headers) == (name in opened), (method, path, name)


@pytest.mark.parametrize("has_keys", [False, True], ids=["without keys", "with keys"])
@pytest.mark.parametrize("service", access_page.SERVICES)
async def test_a_token_that_is_garbled_or_elsewhere_opens_what_none_opens(service: str, has_keys: bool) -> None:
    async with client_of(make(service, has_keys)) as client:
        for of, method, path, access in ROUTES:
            if of != service:
                continue
            is_open = "none" in access_page.admitted(service, access, has_keys)
            for how, sent in MISPLACED.items():
                for token in (USER, WORKER, ADMIN):
                    assert await admits(client, method, path, **sent(token)) == is_open, (method, path, how)


@pytest.mark.parametrize("has_keys", [False, True], ids=["without keys", "with keys"])
@pytest.mark.parametrize("service", access_page.SERVICES)
async def test_x_api_key_opens_routes_of_users_as_a_bearer_token_does_and_no_others(
    service: str, has_keys: bool
) -> None:
    async with client_of(make(service, has_keys)) as client:
        for of, method, path, access in ROUTES:
            if of != service:
                continue
            opened = access_page.admitted(service, access, has_keys)
            for name, token in TOKENS.items():
                headers = {} if token is None else {"X-API-Key": token}
                is_open = (name if access == "user" else "none") in opened
                assert await admits(client, method, path, headers=headers) == is_open, (method, path, name)


def test_the_page_is_what_the_routes_say() -> None:
    assert access_page.PAGE.read_text() == access_page.text(), "run `make pages`"
