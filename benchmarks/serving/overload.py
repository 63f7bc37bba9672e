"""What an arena does at ten times the load that it can serve: how much it still answers, and how fast it refuses.

Echo engines with a fixed speed, so that the capacity is known and the answers cost little of the machine. First as many
clients as there are places measure the peak; then requests come at random times, independent of answers, at a multiple
of the peak. The clients run in a process of their own.

python -m benchmarks.serving.overload [--factor 10] [--seconds 20] [--json FILE]
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.comparison.arena import running_arena
from benchmarks.peers.noise import NoiseMeter
from benchmarks.serving.light_client import LightClient, encode_post
from cli.bench import record
from cli.bench.record import percentile

RESULT = Path(__file__).parent.parent / "results" / "overload.json"
MODELS = ("alpha", "beta")
MAX_RUNNING = 8  #: of each worker
MAX_QUEUED = 16
TOKENS = 16  #: of each answer
TOKENS_PER_S = 50.0  #: faster ones would make a peak at which the requests alone fill two cores
PROMPT = "one two three four five six seven eight"
SETTINGS = {
    "AGON_MAX_RUNNING": str(MAX_RUNNING),
    "AGON_MAX_QUEUED_REQUESTS": str(MAX_QUEUED),
    "AGON_ECHO_TOKENS_PER_S": str(TOKENS_PER_S),
    "AGON_ECHO_NUM_TOKENS": str(TOKENS),
    # The limits by address would refuse the load generator before the arena is full.
    "AGON_LOCAL_RATE_PER_MINUTE": "1000000",
    "AGON_LOCAL_RATE_BURST": "100000",
}


@dataclass
class Tally:
    """Results of one kind of request. Times in seconds."""

    answered: int = 0
    answers_s: list[float] = field(default_factory=list)
    refusals_s: list[float] = field(default_factory=list)
    retry_after_s: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)

    def row(self, seconds: float) -> dict[str, Any]:
        """Rates and percentiles of a run that lasted `seconds`."""
        return {
            "answered_per_s": round(self.answered / seconds, 2),
            "refused_per_s": round(len(self.refusals_s) / seconds, 2),
            **{f"refusal_ms_p{p}": _ms(self.refusals_s, p) for p in (50, 99, 100)},
            **{f"answer_ms_p{p}": _ms(self.answers_s, p) for p in (50, 99)},
            "retry_after_s_median": percentile(self.retry_after_s, 50) if self.retry_after_s else None,
            "statuses": dict(self.statuses),
        }


def _ms(seconds: list[float], percent: int) -> float | None:
    return round(1000 * percentile(seconds, percent), 1) if seconds else None


class Clients:
    """Sends requests to one controller and tallies the results by kind."""

    def __init__(self, url: str) -> None:
        self._host = url.removeprefix("http://")
        name, port = self._host.split(":")
        self._http = LightClient(name, int(port))
        self._chats = [self._encoded("/v1/chat/completions", _chat(model)) for model in MODELS]
        self._new_battle = self._encoded("/arena/battles", {"mode": "anonymous"})
        self.tallies = {"chat": Tally(), "battle": Tally()}

    async def chat(self) -> None:
        """One answer of one model by /v1."""
        await self._send("chat", random.choice(self._chats))

    async def battle(self) -> None:
        """A new battle and its first turn."""
        created = await self._send("battle", self._new_battle, is_answer=False)
        if created is not None:
            path = f"/arena/battles/{json.loads(created)['id']}/turns"
            await self._send("battle", self._encoded(path, {"content": PROMPT}))

    def close(self) -> None:
        """Close the idle connections."""
        self._http.close()

    def _encoded(self, path: str, body: Any) -> bytes:
        return encode_post(self._host, path, json.dumps(body).encode())

    async def _send(self, kind: str, request: bytes, *, is_answer: bool = True) -> bytes | None:
        tally, started = self.tallies[kind], time.perf_counter()
        try:
            answer = await self._http.send(request)
        except OSError as error:
            tally.statuses[type(error).__name__] += 1
            return None
        took_s = time.perf_counter() - started
        tally.statuses[str(answer.status or "cut")] += 1
        if answer.status in (429, 503):
            tally.refusals_s.append(took_s)
            tally.retry_after_s.append(float(answer.headers[b"retry-after"]))
        elif answer.status == 200 and is_answer:
            tally.answered += 1
            tally.answers_s.append(took_s)
        return answer.body if 200 <= answer.status < 300 else None


def _chat(model: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": PROMPT}]}


async def _closed(url: str, kind: str, seconds: float, concurrency: int) -> dict[str, Any]:
    """`concurrency` clients, each of which asks again as soon as it has an answer."""
    clients = Clients(url)
    give_up_at = time.perf_counter() + seconds

    async def keep_asking() -> None:
        while time.perf_counter() < give_up_at:
            await getattr(clients, kind)()

    await asyncio.gather(*(keep_asking() for _ in range(concurrency)))
    clients.close()
    return clients.tallies[kind].row(seconds)


async def _open(url: str, rates: dict[str, float], seconds: float) -> dict[str, Any]:
    """Requests at random times, of every kind at its rate per second. A late generator sends what is due at once."""
    clients = Clients(url)
    started = time.perf_counter()

    async def arrive(group: asyncio.TaskGroup, kind: str, rate: float) -> None:
        due = started
        while due < started + seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(getattr(clients, kind)())
            due += random.expovariate(rate)

    async with asyncio.TaskGroup() as group:
        for kind, rate in rates.items():
            group.create_task(arrive(group, kind, rate))
    clients.close()
    wall_s = time.perf_counter() - started
    return {kind: {**clients.tallies[kind].row(wall_s), "wall_s": round(wall_s, 2)} for kind in rates}


def _in_own_process(work: Callable[..., Any], *args: Any) -> Any:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_run, (work, args))


def _run(work: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    return uvloop.run(work(*args))


def measure(folder: Path, *, factor: float, seconds: float) -> list[dict[str, Any]]:
    """One row for each kind of request at its peak and far above it. Of the mix each kind is one half."""
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"model_type": "echo"}))
    names = [f"{name}={model}" for name in MODELS]
    places = MAX_RUNNING + MAX_QUEUED
    rows = []
    with running_arena(folder / "data", names, "--engine", "echo", settings=SETTINGS) as arena:
        peaks: dict[str, float] = {}
        for kind, concurrency in (("chat", len(MODELS) * places), ("battle", places)):
            row = _in_own_process(_closed, arena.url, kind, seconds / 2, concurrency)
            peaks[kind] = row["answered_per_s"]
            rows.append({"load": f"{kind} at peak", "kind": kind, **row})
            print(rows[-1], flush=True)
        loads = {kind: {kind: factor * peak} for kind, peak in peaks.items()}
        loads["both"] = {kind: factor * peak / len(peaks) for kind, peak in peaks.items()}
        for name, rates in loads.items():
            for kind, row in _in_own_process(_open, arena.url, rates, seconds).items():
                rows.append({"load": f"{name} x {factor:g}", "kind": kind, **row})
                rows[-1]["of_peak"] = round(row["answered_per_s"] / peaks[kind], 3)
                print(rows[-1], flush=True)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write the JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--factor", type=float, default=10.0, help="load as a multiple of the peak")
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of each load")
    parser.add_argument("--json", type=Path, default=RESULT)
    chosen = parser.parse_args(arguments)
    document = record.document("overload", {"factor": chosen.factor, "seconds": chosen.seconds}, [])
    with NoiseMeter(os.getpid()) as meter, tempfile.TemporaryDirectory(prefix="agon-overload-") as folder:
        rows = measure(Path(folder), factor=chosen.factor, seconds=chosen.seconds)
    record.write(chosen.json, {**document, "rows": rows, "noise": asdict(meter.noise())})
    print(chosen.json, file=sys.stderr)


if __name__ == "__main__":
    main()
