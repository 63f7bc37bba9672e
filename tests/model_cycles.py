"""`make soak-models`: models come and go under load, and nothing is left behind.

    python -m tests.model_cycles --cycles 200 --visitors 4

Runs an arena (`agon up` with the demo models, one worker process). Visitors fight anonymous battles and ask /v1 all the
time, while an administrator adds a model, lets it sleep, wakes it and removes it, again and again. Fails on an error
that a visitor sees, and where the worker process has more descriptors, mappings, threads or used pages afterwards than
after the first cycles, or without visitors more memory. Prints figures as JSON.
"""

import argparse
import asyncio
import contextlib
import json
import re
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.arena import UpProcess, free_ports
from wire.sse import SseDecoder

DEMO_MODELS = Path(__file__).parents[1] / "demo_models"
WARM_CYCLES = 10  #: the first ones fill caches: of names, connections, compiled code
IDLE_S = 10.0  #: after the last visitor: kept connections are closed by then
EXTRA = "extra"
QUESTIONS = ("What is 17 + 25?", "Name three colours.", "Hello! Who are you?")


@dataclass
class Tally:
    """What visitors have seen."""

    battles: int = 0
    completions: int = 0
    waking: int = 0  #: turns whose page said that a model wakes
    errors: Counter[str] = field(default_factory=Counter)


async def fight(client: httpx.AsyncClient, tally: Tally, number: int) -> None:
    """One anonymous battle of one turn."""
    created = await client.post("/arena/battles", json={"mode": "anonymous"})
    if created.status_code != 201:
        tally.errors[f"create {created.status_code} {created.text[:120]}"] += 1
        return
    path = f"/arena/battles/{created.json()['id']}/turns"
    decoder, is_over = SseDecoder(), False
    async with client.stream("POST", path, json={"content": QUESTIONS[number % len(QUESTIONS)]}) as response:
        if response.status_code != 200:
            tally.errors[f"turn {response.status_code} {(await response.aread())[:120]!r}"] += 1
            return
        async for part in response.aiter_raw():
            for event in decoder.feed(part):
                if event.event in ("failed", "error"):
                    tally.errors[f"{event.event} {event.data[:120]}"] += 1
                tally.waking += event.event == "waking"
                is_over |= event.event == "turn_finished"
    if not is_over:
        tally.errors["a stream without an end"] += 1
    tally.battles += 1


async def complete(client: httpx.AsyncClient, tally: Tally, number: int) -> None:
    """One request of /v1 to a model that stays."""
    model = ("finch", "raven", "robin")[number % 3]
    message = {"role": "user", "content": QUESTIONS[number % len(QUESTIONS)]}
    answer = await client.post("/v1/chat/completions", json={"model": model, "messages": [message], "max_tokens": 24})
    if answer.status_code != 200:
        tally.errors[f"completion {answer.status_code} {answer.text[:120]}"] += 1
    tally.completions += 1


async def visit(client: httpx.AsyncClient, tally: Tally, first: int) -> None:
    """A visitor who never stops."""
    number = first
    while True:
        number += 1
        try:
            await (fight if number % 3 else complete)(client, tally, number)
        except httpx.HTTPError as error:
            tally.errors[type(error).__name__] += 1
            await asyncio.sleep(0.1)


@dataclass(frozen=True)
class Footprint:
    """What the worker process holds."""

    descriptors: int
    mappings: int
    threads: int
    rss_mib: int

    @classmethod
    def of(cls, pid: int) -> "Footprint":
        """Of a process now."""
        proc = Path("/proc") / str(pid)
        status = (proc / "status").read_text()
        return cls(
            descriptors=len(list((proc / "fd").iterdir())),
            mappings=(proc / "maps").read_text().count("\n"),
            threads=_number(r"Threads:\s+(\d+)", status),
            rss_mib=_number(r"VmRSS:\s+(\d+)", status) // 1024,
        )


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    assert found is not None
    return int(found[1])


class Admin:
    """The administrator, through the controller's routes."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.seconds: dict[str, list[float]] = {"add": [], "sleep": [], "wake": [], "remove": []}

    async def cycle(self, source: str) -> None:
        """Add, sleep, wake, remove. Raises AssertionError where one of them fails."""
        began = time.monotonic()
        await self._post("/arena/admin/served", {"name": EXTRA, "source": source})
        await self._until("resident")
        self.seconds["add"].append(time.monotonic() - began)
        for action in ("sleep", "wake", "remove"):
            began = time.monotonic()
            await self._post("/arena/admin/served/act", {"name": EXTRA, "action": action})
            if action == "remove":
                await self._until(None)
            self.seconds[action].append(time.monotonic() - began)

    async def served(self) -> dict[str, Any]:
        """The only worker process."""
        [process] = (await self._client.get("/arena/admin/served")).raise_for_status().json()["processes"]
        return dict(process)

    async def _until(self, residence: str | None) -> None:
        async with asyncio.timeout(120):
            while True:
                rows = {row["name"]: row for row in (await self.served())["models"]}
                row = rows.get(EXTRA)
                assert row is None or row["error"] is None, row
                if (None if row is None else row["residence"]) == residence:
                    return
                await asyncio.sleep(0.02)

    async def _post(self, path: str, body: dict[str, str]) -> None:
        answer = await self._client.post(path, json=body)
        assert answer.is_success, answer.text


async def used_bytes(url: str, token: str, models: tuple[str, ...]) -> int:
    """Bytes of pages that sequences hold, in all models."""
    async with httpx.AsyncClient(base_url=url, trust_env=False, headers={"Authorization": f"Bearer {token}"}) as client:
        views = [(await client.get("/internal/pool", params={"model": model})).json() for model in models]
    return sum(view["kv_bytes_used"] for view in views)


async def run(arena: UpProcess, worker_url: str, cycles: int, visitors: int) -> dict[str, Any]:
    """The whole soak. Returns its figures; `faults` is empty if nothing is wrong."""
    secrets = json.loads((arena.data_dir / "secrets.json").read_text())
    pid = worker_pid(arena.process.pid)
    tally = Tally()
    options: dict[str, Any] = {"base_url": arena.controller_url, "trust_env": False, "timeout": 180}
    headers = {"Authorization": f"Bearer {secrets['admin_token']}"}
    async with httpx.AsyncClient(**options) as client, httpx.AsyncClient(**options, headers=headers) as admin_client:
        admin = Admin(admin_client)
        crowd = [asyncio.create_task(visit(client, tally, 100 * number)) for number in range(visitors)]
        first = Footprint.of(pid)
        began = time.monotonic()
        for number in range(cycles):
            await admin.cycle(str(DEMO_MODELS / "robin"))
            if number + 1 == min(WARM_CYCLES, cycles):
                first = Footprint.of(pid)
            if (number + 1) % 20 == 0:
                print(f"{number + 1} cycles, {tally}, {Footprint.of(pid)}", file=sys.stderr, flush=True)
        seconds = time.monotonic() - began
        for task in crowd:
            task.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)
        names = tuple(row["name"] for row in (await admin.served())["models"])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(30):
                while (used := await used_bytes(worker_url, secrets["worker_token"], names)) > 0:
                    await asyncio.sleep(0.2)
        await asyncio.sleep(IDLE_S)
        last = Footprint.of(pid)
    faults = [f"a visitor saw: {error} ({count} times)" for error, count in tally.errors.items()]
    if used:
        faults.append(f"{used} bytes of pages are still held by sequences")
    growths = [("descriptors", 8), ("mappings", 24), ("threads", 4)]
    if not visitors:  # whose cached prefixes fill the page pool
        growths.append(("rss_mib", 6))
    for what, least in growths:
        before, after = getattr(first, what), getattr(last, what)
        if after > before + least:
            faults.append(f"{what} grew from {before} to {after}")
    return {
        "cycles": cycles,
        "seconds": round(seconds, 1),
        "visitors": visitors,
        "battles": tally.battles,
        "completions": tally.completions,
        "turns_that_waited_for_a_waking": tally.waking,
        "median_s": {name: round(sorted(values)[len(values) // 2], 3) for name, values in admin.seconds.items()},
        "worst_s": {name: round(max(values), 3) for name, values in admin.seconds.items()},
        "after_warm_up": asdict(first),
        "at_the_end": asdict(last),
        "used_bytes": used,
        "faults": faults,
    }


def worker_pid(parent: int) -> int:
    """The model worker among the children of `agon up`."""
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            is_child = _number(r"PPid:\s+(\d+)", (path / "status").read_text()) == parent
            if is_child and b"model_worker" in (path / "cmdline").read_bytes():
                return int(path.name)
    raise AssertionError("no worker runs")


def main() -> int:
    """Print the figures; 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--visitors", type=int, default=4)
    asked = parser.parse_args()
    ports = free_ports(1)
    with tempfile.TemporaryDirectory() as folder:
        arena = UpProcess(Path(folder) / "arena", [], ports, {})
        try:
            arena.wait_ready()
            worker_url = f"http://127.0.0.1:{ports.first_worker}"
            found = asyncio.run(run(arena, worker_url, asked.cycles, asked.visitors))
        finally:
            arena.process.terminate()
            arena.process.wait(60)
    print(json.dumps(found, indent=1))
    return 1 if found["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
