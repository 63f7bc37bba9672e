"""Calls to Gradio's event routes: what is malformed is refused with a code, and nothing of it is printed."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from service_kit.logs import JsonLines
from tests.webui.conftest import Site
from webui import texts

JOIN = "/gradio_api/queue/join"
CANARY = "canary-5a1f"  #: stands for what a visitor wrote


@pytest.fixture(scope="module")
def client(site: Site) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=site.url, timeout=60, trust_env=False, verify=False) as client:
        yield client


@pytest.fixture(scope="module")
def functions(client: httpx.Client) -> dict[str, int]:
    """Ids of the functions of the first page and of direct chat, by the types of their inputs."""
    config = client.get("/config").json()
    kinds = {component["id"]: component["type"] for component in config["components"]}
    found: dict[str, int] = {}
    for dependency in config["dependencies"]:
        found.setdefault(" ".join(kinds[number] for number in dependency["inputs"]), dependency["id"])
    return found


def join(data: Any, fn_index: Any, **changes: Any) -> dict[str, Any]:
    return {"session_hash": "abc", "data": data, "fn_index": fn_index, "trigger_id": 1, "event_data": None, **changes}


def refusal(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


BEGIN = "textbox state browserstate"


@pytest.mark.parametrize(
    "changes",
    [
        {"fn_index": -1},
        {"fn_index": 10**6},
        {"fn_index": 2**63},
        {"fn_index": None},
        {"fn_index": 0.5},
        {"session_hash": None},
        {"session_hash": ""},
        {"session_hash": "a/b"},
        {"session_hash": "a" * 65},
        {"session_hash": {"a": 1}},
        {"trigger_id": "x"},
        {"trigger_id": -1},
        {"data": None},
        {"data": {}},
        {"data": []},
        {"data": [CANARY]},
        {"data": [CANARY, None, None, None]},
        {"data": [None, None, None]},
        {"data": [[CANARY], None, None]},
        {"data": [{"text": CANARY}, None, None]},
        {"data": [1, None, None]},
        {"data": [CANARY] * 1000},
    ],
)
def test_a_call_that_no_function_takes_is_refused(
    client: httpx.Client, functions: dict[str, int], changes: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    response = client.post(JOIN, json={**join([CANARY, None, None], functions[BEGIN]), **changes})

    assert refusal(response) == (400, "invalid_request")
    assert CANARY not in response.text
    assert CANARY not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"data": [NaN]}',
        b'{"data": [Infinity]}',
        b'{"data": [1e999]}',
        rb'{"data": ["\ud800"]}',
        rb'{"data": ["a\u0000"]}',
        b'{"data": ' + b"[" * 40_000,
        b'{"fn_index": ' + b"9" * 5000 + b"}",
        b'\xff\xfe{"data": []}',
    ],
)
@pytest.mark.parametrize("path", [JOIN, "/gradio_api/cancel", "/gradio_api/reset"])
def test_a_body_that_is_not_strict_json_is_refused(client: httpx.Client, path: str, body: bytes) -> None:
    response = client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["code"] in ("invalid_json", "invalid_request")


@pytest.mark.parametrize("content_type", [None, "text/plain", "multipart/form-data; boundary=x"])
def test_a_call_of_another_media_type_is_refused(client: httpx.Client, content_type: str | None) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    assert refusal(client.post(JOIN, content=b"{}", headers=headers)) == (400, "invalid_request")


@pytest.mark.parametrize(
    "path",
    [
        "/assets/" + "a" * 5000,
        "/static/" + "a" * 300,
        "/assets/" + "a/" * 400,
        "/assets/%00",
        "/static/..%2f..%2fetc%2fpasswd",
        "/assets/%ff%fe",
        "/assets/",
        "/?page=nowhere",
        "/chat?page=%00",
        "/gradio_api/queue/data",
        "/gradio_api/queue/data?session_hash=",
        "/gradio_api/queue/data?session_hash=a%0ab",
    ],
)
def test_a_path_or_a_query_that_gradio_would_fail_on_is_refused(client: httpx.Client, path: str) -> None:
    response = client.get(path)
    assert response.status_code in (400, 404)
    assert response.json()["error"]["code"] in ("not_found", "invalid_request")


@pytest.mark.parametrize("host", ["[", "a b", "x:99999999", "x/../y", "\xff", "[::1", "a@b", "", "localhost,["])
def test_a_host_that_is_no_name_is_refused(client: httpx.Client, host: str) -> None:
    """Gradio writes the address of the page from this header."""
    response = client.get("/config", headers={b"X-Forwarded-Host": host.encode("latin-1")})
    assert refusal(response) == (400, "invalid_request")


def test_the_stream_of_an_unknown_session_says_so_and_ends(client: httpx.Client) -> None:
    """Gradio raised within the stream: the answer was cut, and each one left a traceback in the log."""
    response = client.get("/gradio_api/queue/data?session_hash=nobody")
    assert response.status_code == 200
    assert json.loads(response.text.removeprefix("data: "))["session_not_found"] is True


def test_a_board_that_is_not_offered_is_not_asked_for(
    site: Site, client: httpx.Client, functions: dict[str, int]
) -> None:
    """Names that do not exist would fill the cache of boards."""
    number = functions["textbox number dropdown checkbox dropdown dropdown dropdown state"]
    call = join(["", 0, CANARY, False, "bradley_terry", "votes", "", None], number, session_hash="unoffered")
    assert client.post(JOIN, json=call).status_code == 200
    with client.stream("GET", "/gradio_api/queue/data?session_hash=unoffered") as stream:
        messages = [json.loads(line.removeprefix("data: ")) for line in stream.iter_lines() if line.startswith("data:")]
    [completed] = [message for message in messages if message["msg"] == "process_completed"]
    assert completed["success"] is True
    assert "agon-" in completed["output"]["data"][0]
    assert not any(CANARY in query for query in site.arena.board_queries)


def test_a_value_that_a_component_refuses_fails_in_the_browser_and_is_logged_without_it(
    client: httpx.Client,
    functions: dict[str, int],
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The leaderboard has no such fit."""
    caplog.set_level(logging.INFO, "webui")
    number = functions["textbox number dropdown checkbox dropdown dropdown dropdown state"]
    call = join(["", 0, "overall", False, CANARY, "votes", "", None], number, session_hash="refused")
    assert client.post(JOIN, json=call).status_code == 200
    with client.stream("GET", "/gradio_api/queue/data?session_hash=refused") as stream:
        messages = [json.loads(line.removeprefix("data: ")) for line in stream.iter_lines() if line.startswith("data:")]

    [completed] = [message for message in messages if message["msg"] == "process_completed"]
    assert completed["success"] is False
    assert completed["output"]["error"] == texts.EVENT_FAILED
    assert "event_refused" in caplog.messages
    lines = JsonLines()
    assert CANARY not in "".join(lines.format(record) for record in caplog.records)
    assert CANARY not in "".join(capfd.readouterr())
