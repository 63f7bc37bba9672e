"""The first requests of coding agents, in their structure and with texts of our own; and what they need of the API
beside their bodies."""

import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from model_worker.echo_engine import EchoEngine
from tests.model_worker.test_tools import served, write_caller

AGENTS = Path(__file__).parent / "agents"
InProcess = Callable[..., httpx.AsyncClient]
KEY = "a-key-of-the-operator"
CHAT = {"model": "echo", "messages": [{"role": "user", "content": "one two"}]}


def events_of(answer: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]


async def test_the_first_requests_of_claude_code_and_codex_are_answered(tmp_path: Path) -> None:
    async with served(write_caller(tmp_path, "hermes")) as client:
        claude = await client.post(
            "/v1/messages?beta=true", content=(AGENTS / "claude_code.json").read_bytes(), headers=JSON
        )
        codex = await client.post("/v1/responses", content=(AGENTS / "codex.json").read_bytes(), headers=JSON)
    assert (claude.status_code, codex.status_code) == (200, 200), (claude.text, codex.text)
    assert "x-agon-warning" not in claude.headers
    assert codex.headers["x-agon-warning"] == "tools that are not run here were left out: image_generation, web_search"
    start, *_, delta, stop = events_of(claude)
    assert start["message"]["usage"]["input_tokens"] > 100
    assert delta["context_management"] == {"applied_edits": []}
    assert stop["type"] == "message_stop"
    completed = events_of(codex)[-1]
    assert completed["type"] in ("response.completed", "response.incomplete")
    assert [tool["type"] for tool in completed["response"]["tools"]] == ["function", "namespace"]


JSON = {"Content-Type": "application/json"}


def conversation(num_calls: int) -> list[dict[str, Any]]:
    """A question, then calls with thoughts and long results."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "look"}]
    for number in range(num_calls):
        call = {"type": "tool_use", "id": f"t{number}", "name": "get_weather", "input": {"place": "Ulm " * 9}}
        messages.append({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, call]})
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "rain " * 20}
        messages.append({"role": "user", "content": [result]})
    return messages


async def test_old_results_are_cleared_as_context_management_says(tmp_path: Path) -> None:
    async with served(write_caller(tmp_path, "hermes")) as client:

        async def edited(**edit: Any) -> tuple[dict[str, Any], dict[str, Any]]:
            """What was applied, and the count of tokens."""
            body: dict[str, Any] = {"model": "m", "messages": conversation(5)}
            body["context_management"] = {"edits": [{"type": "clear_tool_uses_20250919", **edit}]}
            answer = await client.post("/v1/messages", json={**body, "max_tokens": 2})
            counted = await client.post("/v1/messages/count_tokens", json=body)
            assert (answer.status_code, counted.status_code) == (200, 200), answer.text + counted.text
            return answer.json(), counted.json()

        uses = {"type": "tool_uses", "value": 4}
        answer, counted = await edited(trigger=uses, keep={"type": "tool_uses", "value": 2})
        [applied] = answer["context_management"]["applied_edits"]
        assert (applied["type"], applied["cleared_tool_uses"]) == ("clear_tool_uses_20250919", 3)
        original = counted["context_management"]["original_input_tokens"]
        assert applied["cleared_input_tokens"] == original - counted["input_tokens"] > 0
        assert answer["usage"]["input_tokens"] + answer["usage"]["cache_read_input_tokens"] == counted["input_tokens"]

        inputs, _ = await edited(trigger=uses, keep={"type": "tool_uses", "value": 2}, clear_tool_inputs=True)
        assert (
            inputs["context_management"]["applied_edits"][0]["cleared_input_tokens"] > applied["cleared_input_tokens"]
        )

        for nothing in (
            {},  # at 100,000 tokens
            {"trigger": {"type": "tool_uses", "value": 5}},
            {"trigger": {"type": "input_tokens", "value": original}},
            {"trigger": uses, "clear_at_least": {"type": "input_tokens", "value": original}},
            {"trigger": uses, "exclude_tools": ["get_weather"]},
            {"trigger": uses, "keep": {"type": "tool_uses", "value": 5}},
        ):
            answer, counted = await edited(**nothing)
            assert answer["context_management"] == {"applied_edits": []}, nothing
            assert counted["input_tokens"] == original
        answer, _ = await edited(trigger={"type": "input_tokens", "value": original - 1})
        assert answer["context_management"]["applied_edits"][0]["cleared_tool_uses"] == 2


async def test_old_thoughts_are_cleared_as_context_management_says(tmp_path: Path) -> None:
    async with served(write_caller(tmp_path, "hermes")) as client:
        body: dict[str, Any] = {"model": "m", "max_tokens": 2, "messages": conversation(3)}
        for keep, num_cleared in (("all", 0), ({"type": "all"}, 0), ({"type": "thinking_turns", "value": 1}, 2)):
            edit = {"type": "clear_thinking_20251015", "keep": keep}
            answer = (await client.post("/v1/messages", json={**body, "context_management": {"edits": [edit]}})).json()
            applied = answer["context_management"]["applied_edits"]
            assert [one["cleared_thinking_turns"] for one in applied] == [num_cleared] * bool(num_cleared)


async def test_counts_of_the_prompt_are_in_the_first_event(in_process: InProcess) -> None:
    async with in_process() as client:
        body = {**CHAT, "max_tokens": 5, "stream": True}
        start, *_, delta, _ = events_of(await client.post("/v1/messages", json=body))
    assert start["message"]["usage"]["input_tokens"] == delta["usage"]["input_tokens"] == 2


async def test_models_are_listed_in_the_shape_of_who_asks(in_process: InProcess) -> None:
    async with in_process() as client:
        listed = (await client.get("/v1/models", headers={"anthropic-version": "2023-06-01"})).json()
        one = (await client.get("/v1/models/echo", headers={"anthropic-version": "2023-06-01"})).json()
        plain = (await client.get("/v1/models")).json()
    assert listed["data"] == [one]
    assert (one["type"], one["display_name"], one["max_input_tokens"]) == ("model", "echo", 4096)
    assert (listed["has_more"], listed["first_id"], listed["last_id"]) == (False, "echo", "echo")
    assert plain["object"] == "list"


@pytest.mark.parametrize("path", ["/v1/models/", "/v1//models", "//v1/models//", "/v1/models"])
async def test_slashes_may_be_repeated_and_end_a_path(in_process: InProcess, path: str) -> None:
    async with in_process(api_keys=(KEY,)) as client:
        client.headers["Authorization"] = f"Bearer {KEY}"
        assert (await client.get(f"http://127.0.0.1{path}")).json()["data"][0]["id"] == "echo"
        keyless = await client.get(f"http://127.0.0.1{path}", headers={"Authorization": ""})
        assert keyless.status_code == 401
        asked = path.replace("models", "chat/completions")
        assert (await client.post(f"http://127.0.0.1{asked}", json=CHAT)).status_code == 200


async def test_head_is_get_without_the_body(in_process: InProcess) -> None:
    async with in_process() as client:
        for path in ("/health", "/v1/models", "/v1/models/echo", "/version"):
            head, get = await client.head(path), await client.get(path)
            assert (head.status_code, head.content) == (200, b""), path
            assert head.headers["content-length"] == get.headers["content-length"]
        assert (await client.head("/v1/models/other")).status_code == 404


def raw_deflate(body: bytes) -> bytes:
    packing = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packing.compress(body) + packing.flush()


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("gzip", gzip.compress), ("GZIP", gzip.compress), ("deflate", zlib.compress), ("deflate", raw_deflate)],
)
async def test_packed_bodies_are_read(in_process: InProcess, encoding: str, pack: Callable[[bytes], bytes]) -> None:
    body = json.dumps(CHAT).encode()
    async with in_process() as client:

        async def post(content: bytes, kind: str = encoding) -> httpx.Response:
            return await client.post(
                "/v1/chat/completions", content=content, headers={**JSON, "Content-Encoding": kind}
            )

        assert (await post(pack(body))).json()["choices"][0]["message"]["content"] == "one two"
        for broken in (pack(body)[:-5], body, pack(body) + b"x", b""):
            refused = await post(broken)
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_request")
            assert "Content-Encoding" in refused.json()["error"]["message"]
        bomb = await post(pack(b" " * 2**26))
        assert (bomb.status_code, bomb.json()["error"]["code"]) == (413, "request_too_large")
        assert "gzip, deflate" in (await post(body, "br")).json()["error"]["message"]


async def test_unknown_fields_are_left_out_and_named_in_a_header(in_process: InProcess) -> None:
    async with in_process() as client:
        plain = await client.post("/v1/chat/completions", json={**CHAT, "store": True, "verbosity": "low"})
        message = {"role": "user", "content": "one", "colour": 1}
        body = {**CHAT, "tempurature": 1, "caf\u00e9": 1, "messages": [message]}
        answers = [
            await client.post("/v1/chat/completions", json={**body, "stream": stream}) for stream in (False, True)
        ]
    assert "x-agon-warning" not in plain.headers
    for answer in answers:
        assert answer.headers["x-agon-warning"] == "fields that are not known were left out: colour, tempurature"


async def test_a_negative_priority_goes_first(in_process: InProcess) -> None:
    async with in_process(EchoEngine(tokens_per_s=5000)) as client:
        answer = await client.post("/v1/chat/completions", json={**CHAT, "priority": -1})
        refused = await client.post("/v1/chat/completions", json={**CHAT, "priority": -(2**31) - 1})
    assert (answer.status_code, refused.status_code) == (200, 400)
