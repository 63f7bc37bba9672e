"""How long steps take beside an event loop: with the engine in a thread of its process, and in a process of its own.

python -m benchmarks.steps.served [--rows 1,16,64,256] [--seconds 5] [--quick] [--json FILE]

Each step takes 2 ms of a device that computes nothing (idle_device.py). An event loop reads all answers and writes an
event for each delta, as a worker does; where it is saturated, it never rests. Prints JSON: milliseconds from one step
to the next, as means, since the loop sees only how many there were. The two forms take turns; --rounds says how often.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Literal

os.environ["TRITON_INTERPRET"] = "0"  # before Triton is imported

from benchmarks.steps.idle_device import IdleDevice
from benchmarks.steps.load import DEVICE_S, LAYERS, MODEL, PARAMS, PROMPT_TOKENS, Kind, load_idle, write_config
from cli.bench import record
from engine.async_engine import AsyncEngine, RequestStream
from engine.config import EngineConfig
from model_worker.main import SWITCH_INTERVAL_S

Form = Literal["thread", "process"]
FORMS: tuple[Form, ...] = ("thread", "process")
KINDS: tuple[Kind, ...] = ("decode", "mixed")
#: Of prompts that wait for the only free place, so that the next one is there when the last one has gone.
_NUM_WAITING = 6
_WARM_S = 1.0
_BUSY_S = 0.0005  #: between two turns of the saturated loop


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1,16,64,256")
    parser.add_argument("--seconds", type=float, default=5.0, help="at each point")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one short point: to see that everything runs")
    parser.add_argument("--json", type=Path, help="also write the document into this file")
    chosen = parser.parse_args(arguments)
    rows = [2] if chosen.quick else [int(count) for count in chosen.rows.split(",")]
    seconds, rounds = (0.3, 1) if chosen.quick else (chosen.seconds, chosen.rounds)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    settings = {"layers": LAYERS, "prompt_tokens": PROMPT_TOKENS, "device_ms": 1e3 * DEVICE_S, "seconds": seconds}
    document = record.document("served steps", settings, [])  # before: the commit that the run started with
    device = IdleDevice()
    found: dict[tuple[Any, ...], list[dict[str, float]]] = {}
    for count, _, form in itertools.product(rows, range(rounds), FORMS):
        for point, figures in asyncio.run(measure(form, count, seconds, device)):
            found.setdefault((form, count, *point), []).append(figures)
            print((form, count, *point), figures, file=sys.stderr, flush=True)
    document |= {"load_average": os.getloadavg(), "rounds": rounds, "points": [_point(*pair) for pair in found.items()]}
    print(json.dumps(document, indent=1))
    if chosen.json is not None:
        record.write(chosen.json, document)


def _point(key: tuple[Any, ...], rounds: Sequence[dict[str, float]]) -> dict[str, Any]:
    """The medians of all rounds."""
    form, rows, kind, is_saturated = key
    medians = {name: median(figures[name] for figures in rounds) for name in rounds[0]}
    return {"engine": form, "rows": rows, "step": kind, "is_loop_saturated": is_saturated, **medians}


async def measure(
    form: Form, rows: int, seconds: float, device: IdleDevice
) -> list[tuple[tuple[Kind, bool], dict[str, float]]]:
    """Each kind of step beside a quiet and beside a saturated loop, with one engine of `rows` places for decodes and
    one for prompts."""
    found = []
    with tempfile.TemporaryDirectory(prefix="agon-steps-") as folder:
        config = write_config(Path(folder), rows + 1)
        engine = await start(form, config, device)
        for kind, is_saturated in itertools.product(KINDS, (False, True)):
            async with loaded(engine, kind, rows, is_saturated) as turns:
                await asyncio.sleep(_WARM_S)
                before, num_turns, started = engine.stats(), turns[0], time.perf_counter()
                await asyncio.sleep(seconds)
                after, passed_s = engine.stats(), time.perf_counter() - started
            num_steps = after.steps_total - before.steps_total
            num_prompts = (after.prompt_tokens_total - before.prompt_tokens_total) / PROMPT_TOKENS
            figures = {
                "step_ms": round(1e3 * passed_s / max(1, num_steps), 3),
                "prompts_per_step": round(num_prompts / max(1, num_steps), 2),
                "loop_turns_per_s": round((turns[0] - num_turns) / passed_s),
            }
            found.append(((kind, is_saturated), figures))
        await engine.shutdown()
    return found


async def start(form: Form, config: EngineConfig, device: IdleDevice) -> AsyncEngine:
    if form == "process":
        return await AsyncEngine.in_own_process(config, "benchmarks.steps.engine_process")
    return await AsyncEngine.start(lambda: load_idle(config, device, DEVICE_S)[0])


@asynccontextmanager
async def loaded(engine: AsyncEngine, kind: Kind, rows: int, is_saturated: bool) -> AsyncIterator[list[int]]:
    """Requests that keep the engine busy. Yields a list whose only element counts the turns of a saturated loop."""
    turns = [0]
    params = PARAMS["sampled"]
    streams = [engine.generate(_prompt(8 + row % 16), params) for row in range(rows)]
    work = [asyncio.create_task(_write_events(stream)) for stream in streams]
    if kind == "mixed":
        work += [asyncio.create_task(_ask(engine)) for _ in range(_NUM_WAITING)]
    if is_saturated:
        work.append(asyncio.create_task(_never_rest(turns)))
    try:
        yield turns
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        while engine.stats().running or engine.stats().waiting:
            await engine.picture(1)


async def _write_events(stream: RequestStream) -> None:
    async with stream:
        async for delta in stream:
            _event(delta.text)


async def _ask(engine: AsyncEngine) -> None:
    params = replace(PARAMS["sampled"], max_tokens=1)
    while True:
        async for delta in engine.generate(_prompt(PROMPT_TOKENS), params):
            _event(delta.text)


async def _never_rest(turns: list[int]) -> None:
    while True:
        until = time.perf_counter() + _BUSY_S
        while time.perf_counter() < until:
            _event("a")
        turns[0] += 1
        await asyncio.sleep(0)


def _event(text: str) -> bytes:
    choice = {"index": 0, "delta": {"content": text}}
    return f"data: {json.dumps({'id': 'chatcmpl-1', 'object': 'chat.completion.chunk', 'choices': [choice]})}".encode()


def _prompt(num_tokens: int) -> list[int]:
    return random.choices(range(300, MODEL["vocab_size"]), k=num_tokens)


if __name__ == "__main__":
    main()
