"""The arena as its API clients see it: the openai package, and raw HTTP."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.e2e.arena import UpProcess, take_turn
from tests.e2e.conftest import DEMO_MODELS

HELLO: Any = [{"role": "user", "content": "Hello! How are you today?"}]


@pytest.fixture
def sdk(demo_arena: UpProcess) -> Iterator[openai.OpenAI]:
    http: Any = httpx.Client(trust_env=False)  # openai names the class of httpx or of httpx2, by what is installed
    with openai.OpenAI(
        base_url=f"{demo_arena.controller_url}/v1", api_key="none", max_retries=0, http_client=http
    ) as sdk:
        yield sdk


@pytest.fixture
def http(demo_arena: UpProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=demo_arena.controller_url, trust_env=False, timeout=120) as client:
        yield client


def test_every_model_is_listed(sdk: openai.OpenAI) -> None:
    assert {model.id for model in sdk.models.list()} == set(DEMO_MODELS)


@pytest.mark.parametrize("model", DEMO_MODELS)
def test_an_answer_is_the_same_streamed_or_whole(sdk: openai.OpenAI, model: str) -> None:
    whole = sdk.chat.completions.create(model=model, messages=HELLO, temperature=0, max_tokens=40)
    pieces, usage, reasons = [], None, []
    for chunk in sdk.chat.completions.create(
        model=model,
        messages=HELLO,
        temperature=0,
        max_tokens=40,
        stream=True,
        stream_options={"include_usage": True},
    ):
        pieces += [choice.delta.content or "" for choice in chunk.choices]
        reasons += [choice.finish_reason for choice in chunk.choices if choice.finish_reason]
        usage = chunk.usage or usage
    assert whole.choices[0].message.content
    assert "".join(pieces) == whole.choices[0].message.content
    assert reasons == [whole.choices[0].finish_reason]
    assert usage is not None
    assert whole.usage is not None
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens == whole.usage.total_tokens


def test_a_text_completion_goes_on_from_its_prompt(sdk: openai.OpenAI) -> None:
    answer = sdk.completions.create(model="raven", prompt="Hello", max_tokens=5, temperature=0)
    assert answer.usage is not None
    assert 1 <= answer.usage.completion_tokens <= 5


def test_an_unknown_model_is_404_with_its_own_code(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        sdk.chat.completions.create(model="absent", messages=HELLO)
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "invalid_json"),
        (b'{"model": "raven", "messages": [], "temperature": NaN}', "invalid_json"),
        (b'{"model": "raven"}', "invalid_request"),
        (b'{"model": "raven", "messages": [{"role": "user", "content": "x"}], "n": 17}', "invalid_request"),
        (
            b'{"model": "raven", "messages": [{"role": "user", "content": "x"}], "audio": {"voice": "a"}}',
            "unsupported_parameter",
        ),
    ],
)
def test_a_bad_request_is_400_with_its_own_code(http: httpx.Client, body: bytes, code: str) -> None:
    answer = http.post("/v1/chat/completions", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)


def test_a_prompt_beyond_the_context_is_refused_not_cut(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.chat.completions.create(model="finch", messages=[{"role": "user", "content": "word " * 20_000}])
    assert caught.value.code == "context_length_exceeded"


def test_no_byte_before_the_vote_tells_who_answers_and_the_vote_counts_once(http: httpx.Client) -> None:
    created = http.post("/arena/battles", json={"mode": "anonymous"})
    battle_id = created.json()["id"]
    seen = created.text
    for content in ("Hello!", "What is 2 + 3?", "Thank you."):
        events = list(take_turn(http, battle_id, content))
        assert events[-1] == (
            "turn_finished",
            {"turn": events[-1][1]["turn"], "state": "answered", "is_kept": True},
        )
        # Texts of the models may hold anything; everything that the arena adds is checked.
        seen += json.dumps([{**data, "text": ""} for _, data in events])
    view = http.get(f"/arena/battles/{battle_id}").json()
    assert [turn["number"] for turn in view["turns"]] == [1, 2, 3]
    assert view["a"]["model"] is None
    assert view["b"]["model"] is None
    assert not any(name in seen for name in DEMO_MODELS)

    first = http.post(f"/arena/battles/{battle_id}/vote", json={"outcome": "tie"})
    assert first.status_code == 200
    assert set(first.json()["models"].values()) < set(DEMO_MODELS)
    assert http.post(f"/arena/battles/{battle_id}/vote", json={"outcome": "tie"}).json() == first.json()
    other = http.post(f"/arena/battles/{battle_id}/vote", json={"outcome": "a"})
    assert (other.status_code, other.json()["error"]["code"]) == (409, "battle_already_voted")


def test_the_recomputed_leaderboard_is_the_live_one(demo_arena: UpProcess) -> None:
    def board(*flags: str) -> dict[str, Any]:
        command = [*demo_arena.command[:4], "leaderboard", "--json", "--min-votes", "1", *flags]
        command += ["--data-dir", str(demo_arena.data_dir)]
        answer = subprocess.run(command, env=demo_arena.environment, capture_output=True, text=True, check=True)
        view: dict[str, Any] = json.loads(answer.stdout)
        return {**view, "updated_at": 0, "states": {}}  # which models are served is not in the log

    recomputed = board("--recompute")
    deadline = time.monotonic() + 10
    while (live := board())["num_votes"] != recomputed["num_votes"] and time.monotonic() < deadline:
        pass  # the live board follows a vote within a second or two
    assert live == recomputed


def test_votes_survive_export_and_import(demo_arena: UpProcess, tmp_path: Path) -> None:
    def votes(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [*demo_arena.command[:4], "votes", *words, "--data-dir", str(demo_arena.data_dir)]
        return subprocess.run(command, env=demo_arena.environment, capture_output=True, text=True, check=True)

    foreign = {
        "question_id": "elsewhere-1", "model_a": "raven", "model_b": "finch", "winner": "model_a", "judge": "someone",
        "conversation_a": [], "conversation_b": [], "turn": 1, "anony": True, "language": "English", "tstamp": 1.7e9,
    }  # fmt: skip
    source = tmp_path / "foreign.jsonl"
    source.write_text(json.dumps(foreign) + "\n")
    assert "1 votes imported" in votes("import", str(source), "--format", "arena").stderr
    assert "0 votes imported, 1 skipped" in votes("import", str(source), "--format", "arena").stderr
    target = tmp_path / "out.jsonl"
    votes("export", "--output", str(target))
    [back] = [row for row in map(json.loads, target.read_text().splitlines()) if row["battle_id"] == "elsewhere-1"]
    assert (back["outcome"], back["a"]["model"], back["b"]["model"]) == ("a", "raven", "finch")


def test_chat_in_the_terminal_answers_each_line_of_a_pipe(demo_arena: UpProcess) -> None:
    command = [*demo_arena.command[:4], "chat", "--url", demo_arena.controller_url, "--model", "raven"]
    answer = subprocess.run(
        command,
        input="Hello!\nWhat is 1 + 1?\n",
        env=demo_arena.environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert len([line for line in answer.stdout.splitlines() if line]) >= 2


def test_the_load_generator_measures_the_running_arena(demo_arena: UpProcess, tmp_path: Path) -> None:
    result = tmp_path / "load.json"
    command = [*demo_arena.command[:4], "bench", "serve", "--url", demo_arena.controller_url, "--concurrency", "1,4"]
    command += ["--num-requests", "4", "--prompt-words", "8", "--output-len", "8", "--json", str(result)]
    subprocess.run(command, env=demo_arena.environment, check=True, capture_output=True, timeout=240)
    rows = json.loads(result.read_text())["rows"]
    assert [(row["concurrency"], row["failed"], row["output_tokens"]) for row in rows] == [(1, 0, 32), (4, 0, 32)]
    assert all(row["ttft_ms_p50"] > 0 for row in rows)
