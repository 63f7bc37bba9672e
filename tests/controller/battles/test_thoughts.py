"""Battles of models that think: thoughts come apart from answers, and nobody sees those of hidden models."""

import json
from typing import Any

import pytest

from controller.battles.battle_record import StoredAnswer
from controller.battles.turn_progress import HELD, read_progress
from controller.votes.vote_casting import _num_tokens
from tests.controller.conftest import OpenArena
from tests.controller.support.arena import Arena, end_state, of_kind
from tests.controller.support.fake_worker import FakeWorker, thoughts, words
from wire.battles import DeltaEvent
from wire.chat import Usage
from wire.sse import SseEvent


def shown(events: list[SseEvent], name: str) -> dict[str, str]:
    found = {"a": "", "b": ""}
    for event in of_kind(events, "delta"):
        delta = json.loads(event.data)
        found[delta["side"]] += delta.get(name, "")
    return found


async def add_thinker(arena: Arena, *, num_thoughts: int = 3, **options: Any) -> tuple[FakeWorker, FakeWorker]:
    """Two models, of which alpha thinks."""
    alpha, beta = await arena.add_two(**options)
    alpha.num_thoughts = num_thoughts
    return alpha, beta


async def test_thoughts_of_known_models_are_streamed_and_kept_apart_from_the_answer(arena: Arena) -> None:
    await add_thinker(arena)
    battle = await arena.create("alpha", "beta")
    events = await arena.turn(battle["id"])
    turn = (await arena.view(battle["id"]))["turns"][0]

    assert shown(events, "thoughts") == {"a": thoughts(3), "b": ""}
    assert shown(events, "text") == {"a": words(5), "b": words(5)}
    assert (turn["a"]["thoughts"], turn["a"]["text"]) == (thoughts(3), words(5))
    assert (turn["b"]["thoughts"], turn["b"]["text"]) == ("", words(5))
    assert turn["a"]["usage"]["completion_tokens"] == 8
    assert turn["a"]["usage"]["completion_tokens_details"]["reasoning_tokens"] == 3


async def test_the_next_prompt_has_thoughts_apart_where_only_a_template_that_reads_them_gets_them(arena: Arena) -> None:
    alpha, beta = await add_thinker(arena)
    battle = await arena.create("alpha", "beta")
    await arena.turn(battle["id"])
    await arena.turn(battle["id"], "and?")

    asked = [worker.requests[1].messages or () for worker in (alpha, beta)]
    assert [[message.content for message in messages] for messages in asked] == [["hello", words(5), "and?"]] * 2
    assert [messages[1].reasoning_content for messages in asked] == [thoughts(3), None]


@pytest.mark.parametrize("mode", ["anonymous", "named"])
async def test_both_sides_get_the_same_budget_of_thoughts(open_arena: OpenArena, mode: str) -> None:
    async with open_arena(thinking_budget=64) as arena:
        workers = await add_thinker(arena)
        battle = await (arena.create("alpha", "beta") if mode == "named" else arena.create())
        for question in ("hello", "and?"):
            await arena.turn(battle["id"], question)
        budgets = [[request.sampling.thinking_budget for request in worker.requests] for worker in workers]
    assert budgets == [[64, 64], [64, 64]]


async def test_a_model_of_another_service_gets_no_budget_that_it_would_refuse(open_arena: OpenArena) -> None:
    async with open_arena(thinking_budget=64) as arena:
        alpha, beta = FakeWorker("alpha"), FakeWorker("beta")
        beta.runs_on = "remote"
        for worker in (alpha, beta):
            await arena.add_worker(worker)
        battle = await arena.create("alpha", "beta")
        await arena.turn(battle["id"])
    assert [worker.requests[0].sampling.thinking_budget for worker in (alpha, beta)] == [64, None]


async def test_without_a_setting_thoughts_have_no_limit_of_their_own(arena: Arena) -> None:
    workers = await add_thinker(arena)
    battle = await arena.create()
    await arena.turn(battle["id"])
    assert [worker.requests[0].sampling.thinking_budget for worker in workers] == [None, None]


@pytest.mark.parametrize("paced", [0.0, 400.0])
async def test_nobody_learns_which_hidden_model_thinks_before_the_vote(open_arena: OpenArena, paced: float) -> None:
    async with open_arena(paced=paced) as arena:
        await add_thinker(arena, num_tokens=60)
        battle = await arena.create()
        events = await arena.turn(battle["id"])
        before = await arena.view(battle["id"])
        resumed = await arena.events("GET", f"/arena/battles/{battle['id']}/stream")
        assert (await arena.vote(battle["id"])).status_code == 200
        after = await arena.view(battle["id"])

    assert end_state(events) == "answered"
    seen = [event.data for event in (*events, *resumed)] + [json.dumps(before)]
    assert not [text for text in seen if "t0 " in text]
    assert {event.event for event in events} == {"delta", "finished", "turn_finished"}
    assert [before["turns"][0][side]["thoughts"] for side in "ab"] == ["", ""]
    assert sorted(after["turns"][0][side]["thoughts"] for side in "ab") == ["", thoughts(3)]


async def test_a_side_that_only_thinks_holds_up_both_and_tells_no_more(open_arena: OpenArena) -> None:
    async with open_arena(paced=400.0) as arena:
        alpha, _ = await add_thinker(arena, num_tokens=60, num_thoughts=40)
        alpha.delay_s = 0.02
        battle = await arena.create()
        events = await arena.turn(battle["id"])
        sizes = [
            [
                len(json.loads(event.data)["text"])
                for event in of_kind(events, "delta")
                if f'"side":"{side}"' in event.data
            ]
            for side in "ab"
        ]
    assert sizes[0] == sizes[1]
    assert shown(events, "text") == {"a": words(60), "b": words(60)}


async def test_a_model_that_names_itself_in_its_thoughts_has_given_itself_away(arena: Arena) -> None:
    alpha, beta = await arena.add_two()
    for worker in (alpha, beta):
        worker.num_thoughts, worker.thought = 1, "I am alpha, made by Acme."
    battle = await arena.create()
    await arena.turn(battle["id"])
    assert (await arena.view(battle["id"]))["identity_revealed"] is True


async def test_thoughts_count_for_no_feature_of_a_vote(arena: Arena) -> None:
    alpha, beta = await add_thinker(arena)
    for worker in (alpha, beta):
        worker.num_thoughts, worker.thought = 2, "# A header\n\n* **bold**\n```python\nx = 1\n```\n"
    battle = await arena.create("alpha", "beta")
    await arena.turn(battle["id"])
    await arena.vote(battle["id"])
    [vote] = await arena.vote_log()

    assert vote["a"]["style"] == {"tokens": 5, "headers": 0, "lists": 0, "bold": 0}
    assert vote["a"]["completion_tokens"] == 7
    assert "code" not in vote["categories"]
    export = await arena.client.get("/arena/votes?conversations=true", headers=arena.admin)
    said = json.loads(export.text.splitlines()[0])["conversations"]["a"][1]
    assert said == {"role": "assistant", "content": words(5), "reasoning_content": 2 * str(alpha.thought)}


def test_uncounted_thoughts_are_taken_off_the_length_of_an_answer() -> None:
    usage = Usage.counted(7, 100)
    assert _num_tokens(StoredAnswer(text="x" * 40, usage=usage)) == 100
    assert _num_tokens(StoredAnswer(text="x" * 40, thoughts="hm", usage=usage)) == 10
    assert _num_tokens(StoredAnswer(text="x" * 40, thoughts="hm", usage=Usage.counted(7, 100, num_thoughts=80))) == 20


def _entry(name: str, data: str, private: dict[str, Any]) -> tuple[str, dict[str, str]]:
    return "1-0", {"event": name, "data": data, "private": json.dumps(private)}


def test_progress_is_read_back_from_what_was_held_and_what_was_shown() -> None:
    held = _entry(HELD, "{}", {"a": {"tokens": [1, 2], "text": "", "thoughts": "hm"}, "b": {"tokens": [], "text": ""}})
    delta = _entry(
        "delta",
        DeltaEvent(side="a", seq=0, text="ye").model_dump_json(),
        {"tokens": [3, 4], "text": "yes", "thoughts": "!"},
    )
    a = read_progress([held, delta])["a"]
    assert ("".join(a.thoughts), "".join(a.texts), a.token_ids, a.waiting) == ("hm!", "yes", [1, 2, 3, 4], "s")
    assert a.has_all_tokens


def test_what_a_model_without_token_ids_has_thought_in_secret_is_begun_again() -> None:
    held = _entry(HELD, "{}", {"a": {"tokens": [], "thoughts": "hm", "first_token_ms": 5.0}})
    a = read_progress([held])["a"]
    assert (a.thoughts, a.first_token_ms, a.has_all_tokens) == ([], None, True)
