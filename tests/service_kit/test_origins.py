"""Host names and foreign pages: one table for all three services."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from pydantic import SecretStr, TypeAdapter, ValidationError

import controller.app
import controller.config
import model_worker.app
from model_worker.config import WorkerSettings
from model_worker.echo_engine import EchoEngine
from service_kit.origins import AllowedHosts, Hosts, is_loopback

LOCAL = (
    "127.0.0.1:8200",
    "127.0.0.1",
    "127.9.9.9:1",
    "localhost",
    "LOCALHOST:80",
    "localhost.",
    "a.localhost",
    "[::1]:8200",
)
FOREIGN = (
    *(
        "evil.example",
        "127.0.0.1.evil.example:8200",
        "localhost.evil.example",
        "localhost@evil",
        "[::1",
        "",
        "10.0.0.1",
    ),
    *(
        "0.0.0.0",
        "2130706433",
        "127.1",
        "localhost:port",
        "localhost:",
        "localhost, evil.example",
        "local host",
        "[::2]",
    ),
)
MINE = "http://127.0.0.1"

#: Headers that a browser adds to a request that changes something, and whether it is answered under MINE.
PAGES: dict[str, tuple[dict[str, str], bool]] = {
    "no browser": ({}, True),
    "own page": ({"Origin": MINE, "Sec-Fetch-Site": "same-origin"}, True),
    "own page, old browser": ({"Origin": MINE}, True),
    "own page behind TLS": ({"Origin": "https://127.0.0.1:443", "Host": "127.0.0.1:443"}, True),
    "own page behind a proxy that changes Host": (
        {"Origin": "https://arena.other", "Sec-Fetch-Site": "same-origin"},
        True,
    ),
    "typed by the user": ({"Sec-Fetch-Site": "none"}, True),
    "page of an allowed host": ({"Origin": "https://pages.example", "Sec-Fetch-Site": "cross-site"}, True),
    "page below an allowed host": ({"Origin": "https://a.sub.example:8443", "Sec-Fetch-Site": "same-site"}, True),
    "foreign page": ({"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}, False),
    "foreign page, old browser": ({"Origin": "https://evil.example"}, False),
    "page of another port": ({"Origin": MINE + ":3000", "Sec-Fetch-Site": "same-site"}, False),
    "page of another port, old browser": ({"Origin": MINE + ":3000"}, False),
    "another local name": ({"Origin": "http://localhost"}, False),
    "sandboxed page": ({"Origin": "null", "Sec-Fetch-Site": "cross-site"}, False),
    "sandboxed page, old browser": ({"Origin": "null"}, False),
    "foreign form without Origin": ({"Sec-Fetch-Site": "cross-site"}, False),
    "unknown relation": ({"Sec-Fetch-Site": "nearby"}, False),
    "empty origin": ({"Origin": ""}, False),
    "host within the origin's user": ({"Origin": "http://127.0.0.1@evil.example"}, False),
    "host at the start of the origin": ({"Origin": "http://127.0.0.1.evil.example"}, False),
    "extension": ({"Origin": "chrome-extension://127.0.0.1"}, False),
    "forged forwarding": ({"Origin": "https://evil.example", "X-Forwarded-Host": "evil.example"}, False),
}
ALLOWED = ("pages.example", "*.sub.example")


def make_app(service: str, **given: Any) -> Any:
    if service == "controller":
        tokens: dict[str, Any] = {"worker_token": SecretStr("w" * 20), "admin_token": SecretStr("a" * 20)}
        host = given.pop("host", "127.0.0.1")
        settings = controller.config.Settings(redis_url="unix:///nonexistent/store.sock", **tokens, **given)
        return controller.app.create_app(settings, host=host)
    if service == "worker":
        return model_worker.app.create_app(WorkerSettings(model="echo", engine="echo", **given), EchoEngine())
    pytest.importorskip("gradio")
    import webui.app
    import webui.config

    given = {"webui_host" if name == "host" else name: value for name, value in given.items()}
    return webui.app.create_app(webui.config.Settings(controller_url="http://127.0.0.1:9", **given))


@contextlib.asynccontextmanager
async def client_of(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=MINE, verify=False) as client:
        yield client


#: A route of each service that reads, and one that changes something.
READ = {"controller": "/v1/models", "worker": "/v1/models", "webui": "/robots.txt"}
CHANGE = {"controller": "/arena/battles", "worker": "/v1/chat/completions", "webui": "/gradio_api/queue/join"}
SERVICES = tuple(READ)


@pytest.fixture(scope="module")
def apps() -> dict[str, Any]:
    async def make() -> dict[str, Any]:  # inside a loop: without one Gradio opens loops and never closes them
        return {service: make_app(service, allowed_hosts=ALLOWED) for service in SERVICES}

    return asyncio.run(make())


def is_refused(answer: httpx.Response) -> bool:
    if answer.status_code != 403:
        return False
    assert answer.json()["error"]["code"] == "forbidden"
    message = answer.json()["error"]["message"]
    is_of_v1 = "another site" in message and answer.request.url.path.startswith("/v1/")
    assert ("AGON_CORS_ORIGINS" if is_of_v1 else "AGON_ALLOWED_HOSTS") in message
    return True


@pytest.mark.parametrize("service", SERVICES)
async def test_a_local_service_answers_to_local_and_allowed_names_only(apps: dict[str, Any], service: str) -> None:
    async with client_of(apps[service]) as client:
        for host in (*LOCAL, "pages.example", "pages.example:443", "a.b.sub.example"):
            assert not is_refused(await client.get(READ[service], headers={"Host": host})), host
        for host in (*FOREIGN, "sub.example", "notpages.example"):
            assert is_refused(await client.get(READ[service], headers={"Host": host})), host
        two_hosts = [("Host", "127.0.0.1"), ("Host", "evil.example")]
        assert is_refused(await client.get(READ[service], headers=two_hosts))
        assert not any("access-control" in name for name in (await client.get(READ[service])).headers)


@pytest.mark.parametrize("service", SERVICES)
async def test_probes_are_answered_under_any_name(apps: dict[str, Any], service: str) -> None:
    async with client_of(apps[service]) as client:
        for path in ("/health", "/ready"):
            assert (await client.get(path, headers={"Host": "10.0.0.7:8100"})).status_code != 403


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("service", SERVICES)
async def test_only_own_pages_change_something(apps: dict[str, Any], service: str, page: str) -> None:
    headers, is_answered = PAGES[page]
    async with client_of(apps[service]) as client:
        for method in ("POST", "DELETE", "PUT", "PATCH", "post"):
            answer = await client.request(method, CHANGE[service], headers=headers, content=b"no JSON")
            assert is_refused(answer) is not is_answered, answer.text
        assert not is_refused(await client.get(READ[service], headers=headers))


@pytest.mark.parametrize(
    ("service", "given", "host", "is_answered"),
    [
        *[(service, {"host": "0.0.0.0"}, "arena.example", True) for service in SERVICES],
        *[(service, {}, "evil.example", False) for service in ("controller", "worker")],
        ("controller", {"host": "0.0.0.0", "allowed_hosts": ("arena.example",)}, "other.example", False),
        ("controller", {"host": "0.0.0.0", "allowed_hosts": ("arena.example",)}, "127.0.0.1", True),
        ("controller", {"allowed_hosts": ("*",)}, "other.example", True),
        ("controller", {"api_keys": ("k",)}, "arena.example", True),
        ("worker", {"api_keys": ("k",)}, "arena.example", True),
        ("worker", {"controller_urls": ("http://c:1",), "worker_token": "t"}, "worker-a:8200", True),
    ],
)
async def test_where_the_host_name_counts(service: str, given: dict[str, Any], host: str, is_answered: bool) -> None:
    async with client_of(make_app(service, **given)) as client:
        assert is_refused(await client.get(READ[service], headers={"Host": host})) is not is_answered


async def test_controllers_and_workers_reach_one_another_under_any_name() -> None:
    worker = make_app("worker", controller_urls=("http://c:1",), worker_token="t" * 20, allowed_hosts=ALLOWED)
    async with client_of(worker) as client:
        headers = {"Host": "worker-a:8200", "Authorization": "Bearer " + "t" * 20}
        assert (await client.get("/internal/pool", headers=headers)).status_code == 200
    async with client_of(make_app("controller", allowed_hosts=ALLOWED)) as client:
        answer = await client.post("/internal/workers", headers={"Host": "controller:8100"}, json={})
        assert answer.status_code == 401, "it is the token that decides"


def test_any_name_lets_no_foreign_page_in() -> None:
    assert not Hosts(("*",)).is_own_page("https://evil.example", "127.0.0.1")


def test_an_allowed_local_name_lets_no_page_of_another_port_in() -> None:
    hosts = Hosts(("localhost",))
    assert hosts.is_own_page("http://localhost:7860", "localhost:7860")
    assert not hosts.is_own_page("http://localhost:3000", "localhost:7860")


@pytest.mark.parametrize("pattern", ["https://arena.example", "arena.example:443", "arena example", "a.*.b", "**", "/"])
def test_a_setting_that_is_no_host_name_is_refused(pattern: str) -> None:
    with pytest.raises(ValidationError, match="host name"):
        TypeAdapter(AllowedHosts).validate_python(f"localhost, {pattern}")


def test_addresses_of_this_machine() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.0.0.2", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "", "10.0.0.1", "controller")))
