"""From nothing to the first token of a worker, and what it then keeps in memory against its weights and page pool."""

import asyncio
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.peers.noise import resident_bytes
from benchmarks.serving.worker import served_model
from cli.bench_serving import Load, run_closed
from cli.bench_workloads import TextWork, random_texts
from cli.openai_client import connect
from wire.chat import ChatMessage

POOL_BYTES = 512 * 2**20
_IMPORTS = "import engine.core, engine.runner, model_worker.app, os; print(os.getpid(), flush=True); input()"


def measure_cold_start(model: Path, *, threads: int, repeats: int, streams: int) -> dict[str, Any]:
    starts, resident, loaded = [], [], []
    for _ in range(repeats):
        with served_model(model, "--threads", str(threads), "--kv-cache-bytes", str(POOL_BYTES)) as worker:
            asyncio.run(_first_token(worker.url, model.name))
            starts.append(time.perf_counter() - worker.spawned_s)
            resident.append(resident_bytes(worker.pid))
            asyncio.run(_load(worker.url, model.name, random_texts(streams, 22, 64)))
            loaded.append(resident_bytes(worker.pid))
    weights = sum(path.stat().st_size for path in model.glob("*.safetensors"))
    return {
        "first_token_s": round(statistics.median(starts), 2),
        "first_token_s_all": [round(second, 2) for second in starts],
        "resident_bytes_at_first_token": int(statistics.median(resident)),
        "resident_bytes_after_streams": int(statistics.median(loaded)),
        "streams": streams,
        "weight_bytes": weights,
        "pool_bytes": POOL_BYTES,
        "interpreter_and_imports_bytes": _bytes_of_imports(),
    }


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
