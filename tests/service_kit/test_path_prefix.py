"""A service under a path prefix: paths inside have none, redirects and cookies get it."""

import httpx
import pytest
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from service_kit.path_prefix import PathPrefix, RootPath, own_path_under

_ROOT_PATHS: TypeAdapter[str] = TypeAdapter(RootPath)


async def inner(scope: Scope, receive: Receive, send: Send) -> None:
    """Says which path it sees; redirects to `to` of the query, or to a fixed place where the path is /old."""
    request = Request(scope, receive)
    if target := request.query_params.get("to"):
        answer: Response = RedirectResponse(target, 303)
    else:
        answer = JSONResponse({"path": scope["path"], "raw": scope["raw_path"].decode(), "url": str(request.url)})
        answer.set_cookie("one", "1", path="/")
        answer.headers.append("Set-Cookie", "two=2; Path=/; HttpOnly")
        answer.headers.append("Set-Cookie", "three=3; Path=/arena/own")
    await answer(scope, receive, send)


@pytest.fixture
def client() -> httpx.AsyncClient:
    transport = httpx.ASGITransport(PathPrefix(inner, "/arena"))
    return httpx.AsyncClient(transport=transport, base_url="http://x")


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("/arena/history/1", "/history/1"),  # a proxy that leaves the prefix
        ("/history/1", "/history/1"),  # one that takes it off; a probe
        ("/arena/", "/"),
        ("/arenas", "/arenas"),
        ("/arena/arena/x", "/arena/x"),
        ("/arena//evil.example", "//evil.example"),
    ],
)
async def test_a_path_is_known_with_and_without_the_prefix(client: httpx.AsyncClient, path: str, inside: str) -> None:
    answer = (await client.get(path)).json()
    assert answer["path"] == answer["raw"] == inside


async def test_an_encoded_path_stays_encoded(client: httpx.AsyncClient) -> None:
    answer = (await client.get("/arena/a%2Fb%20c")).json()
    assert (answer["path"], answer["raw"]) == ("/a/b c", "/a%2Fb%20c")


async def test_the_bare_prefix_leads_to_the_first_page(client: httpx.AsyncClient) -> None:
    answer = await client.get("/arena?page=1")
    assert (answer.status_code, answer.headers["location"]) == (308, "/arena/?page=1")


@pytest.mark.parametrize(
    ("target", "location"),
    [
        ("/", "/arena/"),
        ("/check", "/arena/check"),
        ("/arena/check", "/arena/check"),  # one that another of these has written already
        ("/arenas", "/arena/arenas"),
        ("https://elsewhere.example/x", "https://elsewhere.example/x"),
        ("//elsewhere.example/x", "//elsewhere.example/x"),
    ],
)
async def test_a_redirect_within_the_service_gets_the_prefix(
    client: httpx.AsyncClient, target: str, location: str
) -> None:
    assert (await client.get("/arena/go", params={"to": target})).headers["location"] == location


async def test_cookies_of_the_whole_host_become_those_of_the_prefix(client: httpx.AsyncClient) -> None:
    cookies = (await client.get("/arena/")).headers.get_list("set-cookie")
    assert cookies == ["one=1; Path=/arena; SameSite=lax", "two=2; Path=/arena; HttpOnly", "three=3; Path=/arena/own"]


@pytest.mark.parametrize(("given", "prefix"), [("", ""), ("/", ""), ("/arena/", "/arena"), ("/a/b-c.d", "/a/b-c.d")])
def test_a_prefix_is_read(given: str, prefix: str) -> None:
    assert _ROOT_PATHS.validate_python(given) == prefix


@pytest.mark.parametrize(
    "given", ["arena", "//arena", "/a//b", "/../x", "/a/./b", "/a?b", "/a b", "/<script>", "/" * 9]
)
def test_what_is_no_prefix_is_refused(given: str) -> None:
    if given.strip("/"):
        with pytest.raises(ValidationError):
            _ROOT_PATHS.validate_python(given)


def test_a_prefix_that_is_the_beginning_of_an_own_path_is_found() -> None:
    paths = ("/health", "/history", "/history/{name}", "/join/{token}", "/arena/battles")
    assert own_path_under("/history", paths) == "/history"
    assert own_path_under("/arena", paths) == "/arena/battles"
    assert own_path_under("/join/here", paths) == "/join/{token}"
    assert own_path_under("/arena/api", paths) is None
    assert own_path_under("/lab", paths) is None
