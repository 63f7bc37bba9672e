"""What must stay flat: disconnects at random moments, and a day of battles."""

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.run import Run
from tests.faults.visitors import words

_NUM_GUESTS = 16
#: Connections of a controller's pools. A stream that was left keeps its reader until its blocked read ends, a second
#: later; its guest has begun some others by then.
_POOLED = 6 * _NUM_GUESTS
_SETTLE_S = 40.0  #: keep-alive connections and leases of what was cut
_MAX_PHASE_S = 0.25
#: A day at one battle every ten seconds.
BATTLES_A_DAY = 8640
_SAMPLES = 48  #: of memory and disk: every half hour of the day
#: Growth per thousand battles in the second half of a day that is still flat: caches and fragmentation.
_FLAT_MB = 1.0


async def disconnect_at_random(run: Run) -> None:
    """Each round a guest leaves in the middle of something: while it sends its request, before the answer, in the
    middle of a stream, while it resumes or votes, at a controller or at a worker. Nothing may be left of it."""
    await _warm_up(run)
    before = await _held(run)
    rounds = iter(run.each_round())

    async def guest() -> None:
        for rng in rounds:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
                await _visit_and_leave(run, rng)

    await asyncio.gather(*(guest() for _ in range(_NUM_GUESTS)))
    deadline = time.monotonic() + _SETTLE_S
    while (after := await _held(run)) and time.monotonic() < deadline:
        more = {what: number - before.get(what, 0) for what, number in after.items()}
        if not any(number > 0 for number in more.values()):
            break
        await asyncio.sleep(1)
    else:
        for what, number in sorted(more.items()):
            if number > 0:
                run.tally.break_promise("leaks", f"{number} more {what} than before", number)
    await run.audit()


async def live_a_day(run: Run) -> None:
    """The battles of a day, as fast as they go. Each round is one battle; memory and disk are sampled. Two visitors use
    the web UI meanwhile."""
    started = time.monotonic()
    samples: list[_Sample] = []
    every = max(1, run.rounds // _SAMPLES)
    rounds = iter(run.each_round())
    done = 0

    async def visitor(number: int) -> None:
        nonlocal done
        own = run.visitor(f"visitor {number}")
        for _ in rounds:
            await own.battle()
            done += 1
            if done % every == 0:
                samples.append(_sample(run, done))

    async with run.browsers(2):  # each battle of theirs is a new session of the web UI
        await asyncio.gather(*(visitor(number) for number in range(12)))
    run.tally.counts["battles_per_s_x10"] = round(10 * run.rounds / (time.monotonic() - started))
    samples.append(_sample(run, done))  # before the audit, which exports the whole log
    await run.audit()
    _judge(run, samples)


async def _visit_and_leave(run: Run, rng: random.Random) -> None:
    phase = rng.choice(("head", "body", "answer", "stream", "resume", "vote", "openai", "worker"))
    run.tally.count(f"left_{phase}")
    port = int(rng.choice(run.arena.controller_urls).rpartition(":")[2])
    if phase in ("openai", "worker"):
        model = rng.choice(run.arena.plan.models)
        if phase == "worker":
            names = [index for index, worker in enumerate(run.arena.workers) if f"-{model}-" in worker.name]
            port = int(run.arena.worker_urls[rng.choice(names)].rpartition(":")[2])
        body = {"model": model, "stream": True, "messages": [{"role": "user", "content": words(rng)}]}
        await _send_and_leave(port, "/v1/chat/completions", body, rng, run.arena.secrets.worker_token)
        return
    created = await _exchange(port, "/arena/battles", {"mode": "anonymous"})
    while "id" not in created:  # on a busy machine the controller refuses some
        run.tally.count("create_refused")
        await asyncio.sleep(0.1)
        created = await _exchange(port, "/arena/battles", {"mode": "anonymous"})
    battle_id = created["id"]
    path = f"/arena/battles/{battle_id}"
    if phase == "head":
        await _send_and_leave(port, f"{path}/turns", {"content": words(rng)}, rng, cut_at=rng.uniform(0.1, 0.9))
        return
    if phase == "body":
        await _send_and_leave(port, f"{path}/turns", {"content": words(rng)}, rng, cut_at=0.98)
        return
    await _send_and_leave(port, f"{path}/turns", {"content": words(rng)}, rng, waits=phase != "answer")
    if phase in ("resume", "vote"):
        await _send_and_leave(port, f"{path}/stream", None, rng)
    if phase == "vote":
        await run.ledger.sent(battle_id, "a")
        await _send_and_leave(port, f"{path}/vote", {"outcome": "a"}, rng)


async def _exchange(port: int, path: str, body: object) -> dict[str, Any]:
    """A whole request; returns the JSON of its answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(_request(path, body, ""))
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line)
        answer: dict[str, Any] = json.loads(await reader.readexactly(length))
        return answer
    finally:
        writer.close()


async def _send_and_leave(
    port: int,
    path: str,
    body: object,
    rng: random.Random,
    token: str = "",
    *,
    cut_at: float = 1.0,
    waits: bool = True,
) -> None:
    """Send the share `cut_at` of a request, read for a random time, and leave, half of the time by RST."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request = _request(path, body, token)
    writer.write(request[: max(1, int(len(request) * cut_at))])
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(rng.uniform(0, _MAX_PHASE_S if waits else 0.01)):
            while await reader.read(4096):
                pass
    if rng.random() < 0.5:
        writer.transport.abort()
    else:
        writer.close()


def _request(path: str, body: object, token: str) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close"]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    return "\r\n".join([*lines, "", ""]).encode() + content


async def _warm_up(run: Run) -> None:
    """Every connection pool gets its usual size before the first count."""
    async with run.load(_NUM_GUESTS, pace_s=0):
        await asyncio.sleep(3)
    await run.audit()
    await asyncio.sleep(1)


async def _held(run: Run) -> dict[str, int]:
    """What the services hold now: tasks by name, and descriptors; of the connections to the store those beyond what its
    pools, which keep as many as were ever needed at once, may have."""
    held: Counter[str] = Counter()
    for service in (*run.arena.controllers, *run.arena.workers):
        held.update(f"tasks {name} of {service.name}" for name in await service.task_names())
        to_store, held[f"descriptors of {service.name}"] = service.num_descriptors()
        held[f"connections to the store of {service.name}"] = max(0, to_store - _POOLED)
    held["pages"] = await run.arena.used_pages()
    held["open turns"] = await run.arena.open_turns()
    return dict(held)


@dataclass(frozen=True)
class _Sample:
    battles: int
    rss_mb: dict[str, float]
    store_mb: float
    logs_mb: float


def _sample(run: Run, battles: int) -> _Sample:
    store = run.arena.embedded.folder
    return _Sample(
        battles=battles,
        rss_mb={service.name: service.rss_bytes() / 1e6 for service in run.arena.services},
        store_mb=_folder_mb(store),
        logs_mb=_folder_mb(run.arena.folder / "data") - _folder_mb(store),
    )


def _folder_mb(folder: Path) -> float:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # a log that is rewritten vanishes
            total += path.stat().st_size if path.is_file() else 0
    return total / 1e6


def _judge(run: Run, samples: list[_Sample]) -> None:
    """Slopes over the second half, per thousand battles. The store grows with the battles that it keeps."""
    half = [sample for sample in samples if sample.battles >= run.rounds / 2]
    for service in run.arena.services:
        slope = _slope([(sample.battles / 1000, sample.rss_mb[service.name]) for sample in half])
        run.tally.figures[f"rss_mb_{service.name}"] = round(samples[-1].rss_mb[service.name], 1)
        run.tally.figures[f"rss_mb_per_1000_battles_{service.name}"] = round(slope, 2)
        if service is not run.arena.store and slope > _FLAT_MB and run.rounds >= 2000:
            run.tally.break_promise("leaks", f"{service.name} grows by {slope:.2f} MB in 1,000 battles")
    kilobattles = max(samples[-1].battles, 1) / 1000
    run.tally.figures["store_files_mb_per_1000_battles"] = round(samples[-1].store_mb / kilobattles, 2)
    run.tally.figures["store_files_mb_max"] = round(max(sample.store_mb for sample in samples), 1)
    run.tally.figures["journal_and_log_files_mb_per_1000_battles"] = round(samples[-1].logs_mb / kilobattles, 2)


def _slope(points: list[tuple[float, float]]) -> float:
    """Least squares; 0 for fewer than two points."""
    if len(points) < 2:
        return 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
