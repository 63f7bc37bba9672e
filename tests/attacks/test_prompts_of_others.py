"""An attacker asks whether another visitor has sent a certain prompt: by `cached_tokens` and by the time of the answer.

The victim sends either this prompt or another one of the same length, so that a busy or a warm worker says nothing.
"""

import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from controller.access.cache_salts import CacheSalts
from tests.attacks.conftest import IS_FULL, MODELS, Engines, Target, client_of, loaded_engines, open_target
from tests.attacks.observer import binomial_tail, rank_sum_p
from tests.controller.support.arena import of_kind, visitor

pytestmark = [pytest.mark.asyncio(loop_scope="module"), *([pytest.mark.slow] if IS_FULL else [])]

NUM_TRIALS = 200 if IS_FULL else 24
UNLIKELY = 1e-4
VICTIM, ATTACKER = "203.0.113.1", "198.51.100.1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engines() -> AsyncIterator[Engines]:
    async with loaded_engines() as loaded:
        yield loaded


@dataclass
class Trials:
    """What the attacker measured, for prompts that the victim had sent and for others."""

    cached: dict[bool, list[int]] = field(default_factory=lambda: {True: [], False: []})
    first_token_s: dict[bool, list[float]] = field(default_factory=lambda: {True: [], False: []})

    @property
    def num_right(self) -> int:
        """Guesses that are right when the attacker says "sent" for every prompt with cached tokens."""
        return sum(tokens > 0 for tokens in self.cached[True]) + sum(tokens == 0 for tokens in self.cached[False])

    def told(self) -> str:
        """All results in a line."""
        mean_ms = {sent: 1000 * sum(times) / len(times) for sent, times in self.first_token_s.items()}
        p_time = rank_sum_p(self.first_token_s[True], self.first_token_s[False])
        trials = len(self.cached[True]) + len(self.cached[False])
        return (
            f"{self.num_right} of {trials} guessed by cached_tokens; most cached tokens of a sent prompt "
            f"{max(self.cached[True])}, of another {max(self.cached[False])}; first token after {mean_ms[True]:.1f} ms "
            f"and {mean_ms[False]:.1f} ms (rank sum p = {p_time:.2g})"
        )


async def test_a_prompt_that_another_visitor_sent_looks_like_any_other(
    engines: Engines, tmp_path: Path, record_property: Any
) -> None:
    async with open_target(engines, tmp_path / "arena", paced=0.0) as target:
        trials = await _attack(target, "salted")

    record_property("trials", trials.told())
    print(trials.told())
    assert set(trials.cached[True]) == set(trials.cached[False]) == {0}


async def test_the_same_attacker_finds_the_prompts_where_salts_are_missing(
    engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    monkeypatch.setattr(CacheSalts, "_salt", lambda *_: "")
    async with open_target(engines, tmp_path / "arena", paced=0.0) as target:
        trials = await _attack(target, "unsalted")

    record_property("trials", trials.told())
    print(trials.told())
    assert binomial_tail(trials.num_right, NUM_TRIALS, 0.5) < UNLIKELY


async def test_a_visitor_finds_his_own_prompts(engines: Engines, tmp_path: Path) -> None:
    """Salts cost no reuse where it is wanted: in later turns of a battle, and for the same caller of /v1."""
    async with open_target(engines, tmp_path / "arena", paced=0.0) as target:
        arena = target.arena
        battle = await arena.create("finch", "raven")
        prompt = _prompt("own", 0)
        cached = []
        for _ in range(2):
            events = await arena.turn(battle["id"], prompt)
            assert len(of_kind(events, "finished")) == 2
            turn = (await arena.view(battle["id"]))["turns"][-1]
            cached.append([turn[side]["usage"]["prompt_tokens_details"]["cached_tokens"] for side in ("a", "b")])
        other = await arena.create("finch", "raven")
        await arena.turn(other["id"], prompt)
        turn = (await arena.view(other["id"]))["turns"][-1]
        in_another_battle = [turn[side]["usage"]["prompt_tokens_details"]["cached_tokens"] for side in ("a", "b")]
        async with client_of(target.arena.url) as client:
            asked = [(await _ask(client, "finch", prompt, VICTIM))[0] for _ in range(2)]

    assert cached[0] == in_another_battle == [0, 0]
    assert min(cached[1]) >= 16
    assert asked[0] == 0
    assert asked[1] >= 16


async def _attack(target: Target, name: str) -> Trials:
    """In each trial the victim sends one of two prompts, in a battle or to /v1; the attacker asks for the first one."""
    draw = random.Random(11)
    trials = Trials()
    async with client_of(target.arena.url) as client:
        for number in range(NUM_TRIALS):
            model, was_sent, in_battle = draw.choice(MODELS), draw.random() < 0.5, draw.random() < 0.5
            prompt, other = _prompt(name, 2 * number), _prompt(name, 2 * number + 1)
            sent = prompt if was_sent else other
            if in_battle:
                battle = await target.arena.create(model, next(each for each in MODELS if each != model))
                await target.arena.turn(battle["id"], sent, headers=visitor(VICTIM))
            else:
                await _ask(client, model, sent, VICTIM)
            cached, first_token_s = await _ask(client, model, prompt, ATTACKER)
            trials.cached[was_sent].append(cached)
            trials.first_token_s[was_sent].append(first_token_s)
    return trials


async def _ask(client: httpx.AsyncClient, model: str, prompt: str, address: str) -> tuple[int, float]:
    """The cached tokens of a request to /v1, and the seconds until its one token came."""
    body = {"model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": 1}
    started = time.perf_counter()
    answer = await client.post("/v1/chat/completions", json=body, headers=visitor(address))
    taken_s = time.perf_counter() - started
    usage = answer.raise_for_status().json()["usage"]
    return int(usage["prompt_tokens_details"]["cached_tokens"]), taken_s


def _prompt(name: str, number: int) -> str:
    """A prompt of several pages that no other trial shares from its first page on."""
    return " ".join(f"{name} {number + 1000} and {count} birds on a wire" for count in range(20))
