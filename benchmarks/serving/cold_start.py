"""From nothing to the first token of a worker, and what it then keeps in memory against its weights and page pool."""

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.noise import proportional_bytes, resident_bytes
from benchmarks.serving.worker import served_model
from cli.bench.serving import Load, run_closed
from cli.bench.workloads import TextWork, random_texts
from cli.openai_client import connect
from wire.chat import ChatMessage

POOL_BYTES = 512 * 2**20
_IMPORTS = "import engine.core, engine.runner, model_worker.app, os; print(os.getpid(), flush=True); input()"


def measure_cold_start(model: Path, *, threads: int, repeats: int, streams: int) -> dict[str, Any]:
    """Cold starts of a worker that packs its weights itself, and of one that finds them packed in the cache folder."""
    options = ["--threads", str(threads), "--kv-cache-bytes", str(POOL_BYTES), "--share-weights"]
    with served_model(model, *options, "auto"):
        pass  # leaves its packed weights behind
    # In turns, so that whatever else the machine does meets both.
    rounds = [[_start(model, [*options, how], streams) for how in ("off", "auto")] for _ in range(repeats)]
    own, found = zip(*rounds, strict=True)
    return {
        **_medians(own),
        "found_packed": _medians(found),
        "two_workers_bytes": {how: _two_workers_bytes(model, [*options, how]) for how in ("off", "auto")},
        "streams": streams,
        "weight_bytes": sum(path.stat().st_size for path in model.glob("*.safetensors")),
        "pool_bytes": POOL_BYTES,
        "interpreter_and_imports_bytes": _bytes_of_imports(),
    }


def _start(model: Path, options: list[str], streams: int) -> tuple[float, int, int]:
    """Seconds to the first token, resident bytes then, and after many streams."""
    with served_model(model, *options) as worker:
        asyncio.run(_first_token(worker.url, model.name))
        seconds, resident = time.perf_counter() - worker.spawned_s, resident_bytes(worker.pid)
        asyncio.run(_load(worker.url, model.name, random_texts(streams, 22, 64)))
        return seconds, resident, resident_bytes(worker.pid)


def _medians(starts: Sequence[tuple[float, int, int]]) -> dict[str, Any]:
    seconds, resident, loaded = zip(*starts, strict=True)
    return {
        "first_token_s": round(statistics.median(seconds), 2),
        "first_token_s_all": [round(second, 2) for second in seconds],
        "resident_bytes_at_first_token": int(statistics.median(resident)),
        "resident_bytes_after_streams": int(statistics.median(loaded)),
    }


def _two_workers_bytes(model: Path, options: list[str]) -> int:
    """Memory of two workers of one model, each with its share of the pages that others use too."""
    with served_model(model, *options) as one, served_model(model, *options) as other:
        for worker in (one, other):
            asyncio.run(_first_token(worker.url, model.name))
        return sum(proportional_bytes(worker.pid) for worker in (one, other))


async def _first_token(url: str, model: str) -> None:
    async with connect(url, None) as client:
        message = ChatMessage(role="user", content="Hello")
        async for chunk in client.stream_chat(model, (message,), max_tokens=1, temperature=0.0, ignore_eos=True):
            if chunk["choices"] and chunk["choices"][0]["delta"].get("content"):
                return


async def _load(url: str, model: str, items: list[TextWork]) -> None:
    async with connect(url, None) as client:
        row = await run_closed(client, Load(model, items), len(items), lambda: None)
    if row["failed"]:
        raise RuntimeError(row["first_error"])


def _bytes_of_imports() -> int:
    """Resident set of a Python that has imported what a worker imports, torch among it, and loaded no model."""
    process = subprocess.Popen(
        [sys.executable, "-c", _IMPORTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        size = resident_bytes(process.pid)
        process.communicate("\n")
    return size
