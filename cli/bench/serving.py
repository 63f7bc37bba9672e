"""Loads any server with the OpenAI API, with a fixed number of requests in flight or a fixed request rate.

Times are measured at the client: time to first token (TTFT), time per output token after it (TPOT), gaps between pieces
of text (ITL), whole answers, and the tokens of all requests per second. Prompts differ from one another, so that prefix
caches do not help. Goodput counts the requests that met every target.
"""

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from cli.bench.record import PERCENTS, percentile
from cli.bench.workloads import TextWork
from cli.errors import CliError
from cli.openai_client import OpenAiClient
from wire.chat import ChatMessage

#: Times that --goodput can bound, in milliseconds.
TARGETS = ("ttft", "tpot", "itl", "total")


@dataclass(frozen=True, slots=True)
class Answered:
    """The result of one request. If `error` is set the request failed, and its times are meaningless."""

    ttft_s: float = 0.0
    total_s: float = 0.0
    gaps_s: tuple[float, ...] = ()
    prompt_tokens: int = 0
    output_tokens: int = 0
    error: str | None = None

    @property
    def tpot_s(self) -> float | None:
        """Mean time per token after the first, in seconds; None for a single token."""
        return (self.total_s - self.ttft_s) / (self.output_tokens - 1) if self.output_tokens > 1 else None

    def meets(self, targets_ms: Mapping[str, float]) -> bool:
        """True if the request succeeded within every target; itl is its longest gap."""
        seen = {
            "ttft": self.ttft_s,
            "tpot": self.tpot_s or 0.0,
            "itl": max(self.gaps_s, default=0.0),
            "total": self.total_s,
        }
        return self.error is None and all(1e3 * seen[name] <= limit for name, limit in targets_ms.items())


@dataclass(frozen=True, slots=True)
class Load:
    """The requests of one level. `ignore_eos` gives every answer its full length; servers that refuse it need False."""

    model: str
    requests: Sequence[TextWork]
    ignore_eos: bool = True
    targets_ms: Mapping[str, float] | None = None


async def run_closed(client: OpenAiClient, load: Load, concurrency: int, advance: Callable[[], None]) -> dict[str, Any]:
    """Keep `concurrency` requests in flight until all are answered; returns one row of the report."""
    remaining: Iterator[TextWork] = iter(load.requests)
    answers: list[Answered] = []

    async def keep_busy() -> None:
        for item in remaining:  # shared by all tasks: each takes the next request
            answers.append(await _ask(client, load, item))
            advance()

    started = time.perf_counter()
    await asyncio.gather(*(keep_busy() for _ in range(concurrency)))
    return {"concurrency": concurrency, **_row(answers, time.perf_counter() - started, load)}


async def run_open(
    client: OpenAiClient, load: Load, requests_per_s: float, seed: int, advance: Callable[[], None]
) -> dict[str, Any]:
    """Send requests at random times (Poisson), independent of answers; inf: all at once. Returns one row of the
    report."""
    answers: list[Answered] = []

    async def send(item: TextWork) -> None:
        answers.append(await _ask(client, load, item))
        advance()

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        async for item in _arrivals(load.requests, requests_per_s, seed):
            group.create_task(send(item))
    return {
        "request_rate": requests_per_s if math.isfinite(requests_per_s) else "inf",
        **_row(answers, time.perf_counter() - started, load),
    }


async def _arrivals(items: Sequence[TextWork], requests_per_s: float, seed: int) -> AsyncIterator[TextWork]:
    generator = random.Random(seed)
    due = time.perf_counter()
    for item in items:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        yield item
        if math.isfinite(requests_per_s):
            due += generator.expovariate(requests_per_s)


async def _ask(client: OpenAiClient, load: Load, item: TextWork) -> Answered:
    started = time.perf_counter()
    times: list[float] = []
    usage: dict[str, int] = {}
    messages = (ChatMessage(role="user", content=item.text),)
    options = {"max_tokens": item.out, "temperature": 0.0, "ignore_eos": load.ignore_eos or None}
    try:
        async for chunk in client.stream_chat(load.model, messages, **options):
            deltas = [choice["delta"] for choice in chunk["choices"]]
            if any(delta.get("content") or delta.get("reasoning_content") for delta in deltas):
                times.append(time.perf_counter())
            usage = chunk.get("usage") or usage
    except CliError as error:
        return Answered(error=str(error))
    ended = time.perf_counter()
    if not times or not usage:
        return Answered(error="the answer had no text" if usage else "the server sent no usage")
    gaps = tuple(after - before for before, after in pairwise(times))
    return Answered(times[0] - started, ended - started, gaps, usage["prompt_tokens"], usage["completion_tokens"])


def _row(answers: Sequence[Answered], wall_s: float, load: Load) -> dict[str, Any]:
    good = [answer for answer in answers if answer.error is None]
    errors = [answer.error for answer in answers if answer.error is not None]
    tpot = [answer.tpot_s for answer in good if answer.tpot_s is not None]
    row = {
        "requests": len(answers),
        "failed": len(errors),
        "first_error": errors[0] if errors else None,
        "wall_s": round(wall_s, 3),
        "requests_per_s": round(len(good) / wall_s, 3),
        "output_tokens_per_s": round(sum(answer.output_tokens for answer in good) / wall_s, 1),
        "prompt_tokens": sum(answer.prompt_tokens for answer in good),
        "output_tokens": sum(answer.output_tokens for answer in good),
        **_percentiles("ttft_ms", [answer.ttft_s for answer in good]),
        **_percentiles("tpot_ms", tpot),
        **_percentiles("itl_ms", [gap for answer in good for gap in answer.gaps_s]),
        **_percentiles("total_ms", [answer.total_s for answer in good]),
    }
    if load.targets_ms:
        num_within = sum(answer.meets(load.targets_ms) for answer in answers)
        row["requests_within_targets"] = num_within
        row["goodput_requests_per_s"] = round(num_within / wall_s, 3)
    return row


def _percentiles(name: str, seconds: Sequence[float]) -> dict[str, float | None]:
    if not seconds:
        return {f"{name}_p{percent}": None for percent in PERCENTS}
    return {f"{name}_p{percent}": round(percentile(seconds, percent) * 1000, 2) for percent in PERCENTS}
