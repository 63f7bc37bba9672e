"""Constraints and thinking budgets over HTTP: answers match, thoughts stay free, replays go on."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.model_worker.served_model import served
from tests.model_worker.thinking_model import ASSISTANT, END, write_model

RAVEN = Path(__file__).parents[2] / "demo_models" / "raven"
QUESTION = [{"role": "user", "content": "so?"}]
TOKENS = [ASSISTANT, "<think>", "H", "m", ",", "7", "</think>", "Y", "e", "s", "!", END]
POINT = {
    "type": "object",
    "properties": {"x": {"enum": [1, 22]}, "y": {"type": "boolean"}},
    "required": ["x", "y"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("thinking"), TOKENS)


async def choice(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    body = {"model": "m", "messages": QUESTION, "temperature": 0, "max_tokens": 60, **fields}
    answer = (await client.post("/v1/chat/completions", json=body)).raise_for_status()
    found: dict[str, Any] = answer.json()["choices"][0]
    return found


async def refusal(client: httpx.AsyncClient, path: str = "chat/completions", **fields: Any) -> tuple[int, str, str]:
    prompt = {"prompt": "so?"} if path == "completions" else {"messages": QUESTION}
    answer = await client.post(f"/v1/{path}", json={"model": "m", **prompt, **fields})
    error = answer.json()["error"]
    return answer.status_code, error["param"], error["message"]


async def streamed(client: httpx.AsyncClient, sampling: dict[str, Any], resume: list[int]) -> dict[str, Any]:
    """Thoughts, text, token ids of the internal stream, and its end."""
    body = {"request_id": "r", "messages": QUESTION, "sampling": sampling, "resume_token_ids": resume}
    answer = (await client.post("/internal/generate", json=body)).raise_for_status()
    events = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: ")]
    return {
        "thoughts": "".join(event.get("thoughts", "") for event in events),
        "text": "".join(event.get("text", "") for event in events),
        "token_ids": [token for event in events for token in event.get("token_ids", ())],
        "finish_reason": events[-1]["finish_reason"],
    }


async def test_answers_match_and_thoughts_stay_free(folder: Path) -> None:
    json_schema = {"name": "point", "schema": POINT, "strict": True}
    async with served(folder) as client:
        formats: dict[str, dict[str, Any]] = {
            "schema": {"response_format": {"type": "json_schema", "json_schema": json_schema}},
            "vLLM's": {"structured_outputs": {"json": POINT}},
            "vLLM's former": {"guided_json": POINT},
        }
        for fields in formats.values():
            found = await choice(client, **fields)
            assert set(json.loads(found["message"]["content"])) == {"x", "y"}
            assert found["message"]["reasoning_content"] == "Hm,7"
            assert found["finish_reason"] == "stop"
        assert (await choice(client, guided_choice=["No", "Yes!?"]))["message"]["content"] == "Yes!?"
        assert (await choice(client, structured_outputs={"regex": "[a-z]{3}"}))["message"]["content"].isalpha()
        assert (await choice(client, guided_grammar='root ::= "Y" [0-9]'))["message"]["content"][0] == "Y"
        for other_name in (
            {"regex": "[0-9]{3}"},
            {"ebnf": "root ::= [0-9] [0-9] [0-9]"},
            {"grammar": "start: /[0-9]{3}/"},
        ):
            assert (await choice(client, **other_name))["message"]["content"].isdigit()
        assert set(json.loads((await choice(client, json_schema=POINT))["message"]["content"])) == {"x", "y"}
        grammar = 'start: "No" | "Yes!"'  # guidance says it in both of vLLM's ways
        twice = {"guided_grammar": grammar, "structured_outputs": {"grammar": grammar}}
        assert (await choice(client, **twice))["message"]["content"] in ("No", "Yes!")
        found = await choice(client, response_format={"type": "json_object"}, max_tokens=9)
        assert json.loads(found["message"]["content"]) == {}  # closed before max_tokens cuts it
        assert found["finish_reason"] == "stop"


async def test_a_budget_ends_the_thoughts_and_the_answer_follows(folder: Path) -> None:
    async with served(folder) as client:
        for name in ("thinking_budget", "thinking_token_budget"):
            message = (await choice(client, **{name: 2}))["message"]
            assert (message["reasoning_content"], message["content"]) == ("Hm", "Yes!")
        message = (await choice(client, thinking_budget=0))["message"]
        assert message["content"] == "Yes!"
        assert not message.get("reasoning_content")
        for unbounded in ({"thinking_budget": 50}, {"thinking_token_budget": -1}):
            message = (await choice(client, **unbounded))["message"]
            assert message["reasoning_content"] == "Hm,7"


async def test_a_replay_goes_on_under_budget_and_constraint(folder: Path) -> None:
    sampling = {
        "temperature": 0,
        "max_tokens": 60,
        "thinking_budget": 3,
        "constraint": {"kind": "json_schema", "value": json.dumps(POINT)},
    }
    async with served(folder, close_answers=False) as client:  # max_tokens cuts answers, as a lost worker does
        whole = await streamed(client, sampling, [])
        for num_emitted in range(1, len(whole["token_ids"])):
            begun = await streamed(client, {**sampling, "max_tokens": num_emitted}, [])
            rest = await streamed(client, sampling, whole["token_ids"][:num_emitted])
            assert begun["token_ids"] + rest["token_ids"] == whole["token_ids"]
            for name in ("thoughts", "text"):
                assert begun[name] + rest[name] == whole[name], num_emitted
            assert rest["finish_reason"] == whole["finish_reason"] == "stop"
    assert whole["thoughts"] == "Hm,"
    assert set(json.loads(whole["text"])) == {"x", "y"}


async def test_what_cannot_be_served_is_refused_and_named(folder: Path) -> None:
    deep: Any = {"type": "integer"}
    for _ in range(70):
        deep = {"items": deep}
    async with served(folder) as client:
        cases: list[tuple[dict[str, Any], str, str]] = [
            ({"guided_json": {"not": {"type": "integer"}}}, "guided_json", "not"),
            ({"guided_json": {"type": "object", "nullable": True}}, "guided_json", "nullable"),
            ({"guided_json": {"$ref": "http://x.y/z"}}, "guided_json", "http://x.y/z"),
            ({"guided_json": json.dumps(deep)}, "guided_json", "levels"),
            ({"guided_json": "{"}, "guided_json", "JSON"),
            ({"guided_regex": "(a"}, "guided_regex", "regex"),
            ({"guided_choice": [""]}, "guided_choice", "empty"),
            ({"guided_choice": ["a"], "guided_regex": "a"}, "guided_choice", "one constraint"),
            ({"structured_outputs": {"regex": "b"}, "guided_regex": "a"}, "guided_regex", "one constraint"),
            ({"structured_outputs": {"grammar": 'start: "a'}}, "structured_outputs", "lexer"),
            ({"structured_outputs": {"regex": "a" * 70_000}}, "structured_outputs", "characters"),
            ({"guided_json": POINT, "messages": [{"role": "user", "content": "so" * 9_000}]}, "messages", "fit"),
            ({"guided_json": POINT, "max_tokens": 2}, "max_tokens", "shortest"),
            ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "json_schema"),
            ({"response_format": {"type": "xml"}}, "response_format.type", "json_object"),
        ]
        for fields, param, words in cases:
            status, named, message = await refusal(client, **fields)
            assert (status, named) == (400, param), message
            assert words in message


async def test_a_constraint_that_exceeds_its_limits_is_a_fault_of_the_request() -> None:
    """It compiles, and fails when a token is taken."""
    costly: dict[str, Any] = {"structured_outputs": {"regex": "(((e{1,100}){1,100}){1,100}){1,100}"}}
    async with served(RAVEN) as client:
        status, named, message = await refusal(client, temperature=0, max_tokens=60, **costly)
        assert (status, named) == (400, "structured_outputs"), message
        assert "limits" in message
        answer = await client.post("/v1/chat/completions", json={"model": "m", "messages": QUESTION, "max_tokens": 4})
        assert answer.status_code == 200
