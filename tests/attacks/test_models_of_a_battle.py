"""An attacker plays battles, watches everything public meanwhile, and guesses the models before the vote.

The pace of the stream is watched, too: delays, speeds, gaps and sizes of events. What the answers themselves tell,
their words and lengths, is not used: no server can hide the style of a model.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from controller.access.cache_salts import CacheSalts
from tests.attacks.conftest import (
    HEARTBEAT_S,
    IS_FULL,
    MODELS,
    Engines,
    Target,
    client_of,
    loaded_engines,
    open_target,
    unlike,
)
from tests.attacks.observer import (
    PROBES,
    TELLS_NOTHING,
    USED_BY_A_BATTLE,
    Figures,
    Guesses,
    Observer,
    best,
    flatten,
    movements,
    routes_of,
)
from tests.attacks.pace import pace_of_turn
from tests.controller.support.arena import visitor

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

NUM_BATTLES = 300 if IS_FULL else 12
NUM_BATTLES_OF_CONTROL = 60 if IS_FULL else 16
CHANCE_OF_PAIR = 1 / 3  #: three models
CHANCE_OF_SIDES = 1 / 2
UNLIKELY = 1e-4  #: a finding less likely than this by chance is a leak
FOUND = 0.01  #: less likely than this: the control found what it was shown
#: Share of battles that a broken connection may take from the attacker: on a loaded machine one breaks now and then.
MOST_BROKEN = 0.05
LOOK_EVERY_S = 0.02 if IS_FULL else 0.2  #: as often as controllers read the loads of workers
NO_CREDENTIAL: Mapping[str, str] = {}
SETTLE_S = 3 * HEARTBEAT_S  #: every report of the battle has arrived
Probe = Callable[[Target, httpx.AsyncClient, dict[str, Any]], Awaitable[Figures]]  #: what it finds of a battle's view
_numbers = itertools.count()
_addresses = (f"{high}.{low}" for high in itertools.cycle(range(256)) for low in range(256))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engines() -> AsyncIterator[Engines]:
    async with loaded_engines() as loaded:
        yield loaded


async def test_every_route_is_polled_used_or_closed(engines: Engines, tmp_path: Path) -> None:
    async with open_target(engines, tmp_path / "arena") as target:
        polled = {f"GET {path}" for service, path in await _public_paths(target) if service == "controller"}
        assert {"GET /arena/workers", "GET /ready", "GET /v1/models", "GET /arena/leaderboard"} <= polled
        for route in routes_of(target.app) - USED_BY_A_BATTLE - PROBES - TELLS_NOTHING:
            method, path = route.split()
            reply = await target.arena.client.request(method, _filled(path))
            is_polled = f"GET {_filled(path)}" in polled
            assert is_polled or reply.status_code == 401, f"{route} is public: make the attack use it"


async def test_nothing_public_tells_the_models_of_a_battle(
    engines: Engines, tmp_path: Path, record_property: Any
) -> None:
    async with open_target(engines, tmp_path / "arena") as target:
        guesses = await _attack(target, NUM_BATTLES, probes=(_probe_caches, _probe_with_chats, _probe_battle))

    for what, scores, chance in _results(guesses):
        name, hits, trials, likelihood = best(scores, chance)
        told = f"{what}: best of {len(scores)} classifiers {hits} of {trials} ({name}), p = {likelihood:.2g}"
        record_property(what, told)
        print(told)
        assert likelihood > UNLIKELY, told


async def test_the_same_attacker_finds_the_models_where_figures_salts_or_pace_tell_them(
    engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    """The attack works: it finds what it is told. Each leak has figures of its own, by which it is judged, and nothing
    else is asked for: without salts only the probes. Answers are shown as they come in both arenas, since a pace tells
    nothing of the other figures and takes seconds."""
    async with open_target(unlike(engines), tmp_path / "figures and pace", paced=0.0) as target:
        as_it_comes = await _attack(target, NUM_BATTLES_OF_CONTROL, probes=(), headers=target.arena.admin)
    monkeypatch.setattr(CacheSalts, "_salt", lambda *_: "")
    async with open_target(engines, tmp_path / "salts", paced=0.0) as target:
        unsalted = await _attack(target, NUM_BATTLES_OF_CONTROL, probes=(_probe_caches,), headers=None)

    found = {
        "pair, figures shown": (_of(as_it_comes.pair_scores(), "generation_tokens_total"), CHANCE_OF_PAIR),
        "pair, no salts": (_of(unsalted.pair_scores(), "probe lead of a"), CHANCE_OF_PAIR),
        "sides, no salts": (_of(unsalted.side_scores(), "probe lead of a"), CHANCE_OF_SIDES),
        "sides, no pace": (as_it_comes.sides_by_sign("pace first lead of a", MODELS), CHANCE_OF_SIDES),
    }
    for what, (scores, chance) in found.items():
        name, hits, trials, likelihood = best(scores, chance)
        told = f"{what}: {hits} of {trials} ({name}), p = {likelihood:.2g}"
        record_property(what, told)
        print(told)
        assert likelihood < FOUND, told


def _of(scores: dict[str, tuple[int, int]], figure: str) -> dict[str, tuple[int, int]]:
    """The classifiers that use a figure: all of them are too many for a few battles."""
    return {classifier: score for classifier, score in scores.items() if figure in classifier}


def _results(guesses: Guesses) -> list[tuple[str, dict[str, tuple[int, int]], float]]:
    return [
        ("pair", guesses.pair_scores(), CHANCE_OF_PAIR),
        ("sides", guesses.side_scores(), CHANCE_OF_SIDES),
    ]


async def _attack(
    target: Target, num_battles: int, *, probes: Sequence[Probe], headers: Mapping[str, str] | None = NO_CREDENTIAL
) -> Guesses:
    """Play battles and record what moved and what `probes` found, each after the answers. `headers` are those of the
    polls; None: nothing is polled. Both are for the control."""
    guesses = Guesses(MODELS)
    paths = [] if headers is None else await _public_paths(target, **headers)
    async with client_of(target.arena.url) as client:
        clients = {"controller": client}
        for model, url in target.worker_urls.items():
            clients[f"worker {model}"] = client_of(url)
        observer = None if headers is None else Observer(clients, paths, **headers)
        try:
            num_broken = 0
            while guesses.num_battles < num_battles:
                try:
                    moved, sides = await _battle(target, observer, client, probes)
                except httpx.TransportError:
                    num_broken += 1
                    assert num_broken <= MOST_BROKEN * num_battles, "too many connections break"
                    continue
                guesses.add(moved, sides)
        finally:
            for each in clients.values():
                await each.aclose()
    return guesses


async def _battle(
    target: Target, observer: Observer | None, client: httpx.AsyncClient, probes: Sequence[Probe]
) -> tuple[Figures, tuple[str, str]]:
    number = next(_numbers)
    prompt = f"Story {number}: " + " ".join(f"a bird with {number + count} feathers" for count in range(12))
    battle_id = (await target.arena.create(client=client))["id"]
    before = await observer.look() if observer else {}
    turn = asyncio.create_task(pace_of_turn(target.arena, battle_id, prompt, client))
    during = []
    try:
        while observer and not turn.done():
            during.append(await observer.look())
            await asyncio.sleep(LOOK_EVERY_S)
    except httpx.TransportError:
        turn.cancel()
        await asyncio.gather(turn, return_exceptions=True)
        raise
    found = await turn
    view = await target.arena.view(battle_id)
    for probe in probes:
        found |= await probe(target, client, view)
    if observer:
        await asyncio.sleep(SETTLE_S)
        found |= movements(before, during, await observer.look())
    vote = await client.post(f"/arena/battles/{battle_id}/vote", json={"outcome": "tie"})
    revealed = vote.raise_for_status().json()["models"]
    return found, (revealed["a"], revealed["b"])


async def _probe_battle(_target: Target, client: httpx.AsyncClient, battle: dict[str, Any]) -> Figures:
    """Ask for what a battle gives only after its vote."""
    found: Figures = {}
    for name, method, path in (
        ("share", "POST", f"/arena/battles/{battle['id']}/share"),
        ("history", "GET", "/arena/history"),
    ):
        reply = await client.request(method, path)
        found |= {f"{name} status": reply.status_code, f"{name} length": len(reply.content)}
    return found


async def _probe_caches(_target: Target, client: httpx.AsyncClient, battle: dict[str, Any]) -> Figures:
    """Ask every model to go on with the answer of each side, from the voter's address and from another one: the model
    that has the answer in its cache is the side's.

    No two probes of a model come from one address or send one text: the second would find what the first has left.
    """
    [turn] = battle["turns"]
    found: Figures = {}
    for model in MODELS:
        stranger = visitor(f"198.51.{next(_addresses)}")
        found |= await _probe_once(client, f"own a {model}", model, turn["content"], turn["a"]["text"], {})
        found |= await _probe_once(client, f"other b {model}", model, turn["content"], turn["b"]["text"], stranger)
        a, b = (found.get(f"probe {name} {model} cached", 0.0) for name in ("own a", "other b"))
        found[f"probe lead of a {model}"] = a - b
    return found


async def _probe_once(
    client: httpx.AsyncClient, name: str, model: str, prompt: str, text: str, headers: dict[str, str]
) -> Figures:
    messages = [
        {"role": "user", "content": prompt},
        {"role": "assistant", "content": text},
        {"role": "user", "content": "Go on."},
    ]
    body = {"model": model, "messages": messages, "max_tokens": 1}
    answer = await client.post("/v1/chat/completions", json=body, headers=headers)
    found: Figures = {f"probe {name} status": answer.status_code}
    if answer.is_success:
        found[f"probe {name} cached"] = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return found


async def _probe_with_chats(target: Target, client: httpx.AsyncClient, battle: dict[str, Any]) -> Figures:
    """Ask every model the battle's question in a chat of the same visitor: one that has the question in its cache
    begins earlier."""
    question = {"content": battle["turns"][0]["content"]}
    found: Figures = {}
    for model in MODELS:
        body = {"model": model, "sampling": {"max_tokens": 1}}
        chat = (await client.post("/arena/chats", json=body)).raise_for_status().json()
        path = f"/arena/chats/{chat['id']}"
        began = time.perf_counter()
        async for _ in target.arena.streamed("POST", f"{path}/turns", client=client, json=question):
            found.setdefault(f"chat first event {model}", time.perf_counter() - began)
        found[f"chat whole {model}"] = time.perf_counter() - began
        flatten((await client.get(path)).json(), f"chat {model}", found)
        (await client.delete(path)).raise_for_status()
    return found


async def _public_paths(target: Target, **headers: str) -> list[tuple[str, str]]:
    """Services and paths whose GET answers without a credential, or with those in `headers`."""
    own = {route.split()[1] for route in routes_of(target.app) - USED_BY_A_BATTLE - PROBES if route.startswith("GET ")}
    candidates = [("controller", _filled(path)) for path in own]
    probes = ("/health", "/ready", "/metrics", "/version", "/v1/models", "/internal/pool")
    candidates += [(f"worker {model}", path) for model in MODELS for path in probes]
    urls = {"controller": target.arena.url, **{f"worker {model}": url for model, url in target.worker_urls.items()}}
    found = []
    for service, path in candidates:
        async with client_of(urls[service]) as client:
            if (await client.get(path, headers=headers)).status_code not in (401, 403):
                found.append((service, path))
    return found


def _filled(path: str) -> str:
    return (
        path.replace("{model:path}", MODELS[0])
        .replace("{battle_id}", "none")
        .replace("{chat_id}", "none")
        .replace("{worker_id}", "none")
        .replace("{share_id}", "none")
    )
