"""Pages of other origins: those of AGON_CORS_ORIGINS use /v1 of controller and worker, and nothing else."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from controller.errors import ConfigurationError
from service_kit.cors import CorsOrigins
from tests.service_kit.test_origins import client_of, is_refused, make_app

APP = "https://app.example"
PAGE = {"Origin": APP, "Sec-Fetch-Site": "cross-site"}
PREFLIGHT = {
    **PAGE,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
}
ADMITTED: dict[str, Any] = {"cors_origins": (APP, "http://localhost:3000")}
ASK = "/v1/chat/completions"
services = pytest.mark.parametrize("service", ["controller", "worker"])


def has_cors(answer: Any) -> bool:
    return any(name.startswith("access-control") for name in answer.headers)


@services
async def test_a_named_page_asks_and_reads_the_answer(service: str) -> None:
    async with client_of(make_app(service, **ADMITTED)) as client:
        preflight = await client.options(ASK, headers=PREFLIGHT)
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-origin"] == APP
        assert preflight.headers["access-control-allow-methods"] == "GET, POST"
        assert preflight.headers["access-control-allow-headers"] == PREFLIGHT["Access-Control-Request-Headers"]
        assert "Origin" in preflight.headers["vary"]
        assert "access-control-allow-credentials" not in preflight.headers

        asked = await client.post(ASK, headers=PAGE, json={})
        assert (asked.status_code, asked.json()["error"]["code"]) == (400, "invalid_request")
        for answer in (asked, await client.get("/v1/models", headers=PAGE)):
            assert answer.headers["access-control-allow-origin"] == APP
            assert "x-ratelimit-remaining-requests" in answer.headers["access-control-expose-headers"]
            assert "x-request-id" in answer.headers
            assert answer.headers["vary"] == "Origin"


@services
@pytest.mark.parametrize(
    "changes",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "https://app.example.evil.example"},
        {"Origin": "https://app.example:8443"},
        {"Origin": "http://app.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "*"},
        {"Cookie": "agon=1"},
    ],
)
async def test_other_pages_and_cookies_stay_out(service: str, changes: dict[str, str]) -> None:
    async with client_of(make_app(service, **ADMITTED)) as client:
        preflight = await client.options(ASK, headers={**PREFLIGHT, **changes})
        assert preflight.status_code == 405
        answers = [await client.request(method, ASK, headers={**PAGE, **changes}) for method in ("POST", "DELETE")]
        assert all(map(is_refused, answers))
        for answer in (preflight, *answers, await client.get("/v1/models", headers={**PAGE, **changes})):
            assert not has_cors(answer)


@services
async def test_a_named_page_gets_no_other_path_and_no_other_host(service: str) -> None:
    paths = ("/arena/battles", "/internal/workers", "/arena/admin/notices", "/v1", "/v1x/models", "/internal/generate")
    async with client_of(make_app(service, **ADMITTED)) as client:
        for path in paths:
            assert is_refused(await client.post(path, headers=PAGE, json={})), path
            assert not has_cors(await client.options(path, headers=PREFLIGHT)), path
        assert is_refused(await client.options(ASK, headers={**PREFLIGHT, "Host": "evil.example"})), "DNS rebinding"
        assert is_refused(await client.post(ASK, headers={**PAGE, "Host": "evil.example"}, json={}))


@services
async def test_nothing_changes_without_the_setting(service: str) -> None:
    async with client_of(make_app(service)) as client:
        assert (await client.options(ASK, headers=PREFLIGHT)).status_code == 405
        assert is_refused(await client.post(ASK, headers=PAGE, json={}))
        answer = await client.get("/v1/models", headers=PAGE)
        assert not has_cors(answer)
        assert "vary" not in answer.headers


@services
async def test_every_page_is_admitted_only_with_keys(service: str) -> None:
    with pytest.raises((ConfigurationError, ValidationError), match="needs AGON_API_KEYS"):
        make_app(service, cors_origins=("*",))
    async with client_of(make_app(service, cors_origins=("*",), api_keys=("k" * 20,))) as client:
        assert (await client.options(ASK, headers=PREFLIGHT)).status_code == 204
        keyless = await client.post(ASK, headers=PAGE, json={})
        assert (keyless.status_code, keyless.headers["access-control-allow-origin"]) == (401, APP)
        key = {"Authorization": "Bearer " + "k" * 20}
        assert (await client.post(ASK, headers={**PAGE, **key}, json={})).status_code == 400
        assert is_refused(await client.post(ASK, headers={**PAGE, **key, "Cookie": "a=1"}, json={}))


async def test_a_worker_without_limits_tells_of_none() -> None:
    body = {"model": "echo", "messages": [{"role": "user", "content": "a"}]}
    async with client_of(make_app("worker")) as client:
        answer = await client.post(ASK, json=body)
    assert answer.status_code == 200
    assert not any(name.startswith("x-ratelimit") for name in answer.headers)


@pytest.mark.parametrize("origin", ["app.example", "https://app.example/", "https://*.example", "null", "://a", "**"])
def test_a_setting_that_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ValidationError, match="is not an origin"):
        TypeAdapter(CorsOrigins).validate_python(f"https://a.example, {origin}")
